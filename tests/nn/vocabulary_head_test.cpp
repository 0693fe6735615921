// The vocabulary head against a linear layer with stored logits and token_cross_entropy behind it: same losses, same gradients,
// same steps.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>

#include "models/model_rig.h"
#include "nn/losses.h"
#include "nn/text.h"
#include "ops/parts/parts.h"
#include "optim/update.h"
#include "tape/program.h"
#include "tape/record.h"

namespace millrace::nn::vocabulary_head {
namespace {

struct Where {
    const char* name;
    ops::DeviceKind device;
    tape::Precision precision;
    double tolerance;  ///< of gradients and losses, relative to the largest
};

constexpr std::int32_t kSentences = 5, kTokens = 30, kBefore = 2, kFirst = 1, kIn = 6, kCols = 72, kVocabulary = 150;
constexpr std::int32_t kRows = kSentences * (kBefore + kTokens);

/// A linear layer below a head of one kind or the other, in a program of whole steps.
struct Rig {
    enum class Head : std::uint8_t { stored, tiled };

    base::Status start(const Where& where, Head kind, bool training = true, int micro_batches = 1, bool second_loss = false) {
        MILLRACE_LET(made, ops::make_backend(where.device, {}));
        backend = std::move(made);
        tape::StoreOptions options;
        options.precision = where.precision;
        options.ring_capacity = 16;
        optim::request_arenas(settings, options);
        store = std::make_unique<tape::Store>(*backend, options);
        const Dense below(*store, {"below"}, {}, linear(kIn, kCols));
        const VocabularyHead head(*store, "head", kVocabulary, kCols);
        const tensor::DType stat = tape::stat_of(where.precision);
        windows = store->add_data("windows", tensor::DType::i32, kSentences, kTokens + 1);
        lengths = store->add_data("lengths", tensor::DType::i32, kSentences, 1);
        input = store->add_data("input", tape::real_of(where.precision), kRows, kIn);
        goal = store->add_data("goal", tape::real_of(where.precision), kRows, kCols);
        tally = store->add_data("tally", stat, 1, ops::kTallyColumns);
        MILLRACE_TRY(store->allocate());
        store->initialize({11});
        auto states = store->read_states();
        optim::apply(settings, states);
        store->write_states(states);
        arena = std::make_unique<tape::Arena>(*backend);

        tape::BuildOptions build;
        build.training = training;
        build.share = 1.0 / micro_batches;
        tape::Builder builder(*store, build);
        optim::append_step_begin(builder);
        const tensor::View gradients = store->gradient_arena();
        const tensor::View sums = builder.buffer(1, 1, gradients.cols, gradients.dtype, tape::Role::gradient, "sums");
        builder.append(tape::record_of(&ops::fill::kDef, ops::FillParams{}, "parts", {sums}));
        builder.close_section();
        const tape::Value x = below.forward(builder, {input, false});
        if (second_loss) mse(builder, x, goal);
        // As a language model reads them: token t + 1 of a window is predicted at position t.
        const Sequences targets{windows.columns(1, kTokens), lengths, kBefore};
        const TokenLossOptions loss{.as_loss = !second_loss, .tally = tally};
        if (kind == Head::tiled)
            head.loss(builder, x, targets, kFirst, loss);
        else
            token_cross_entropy(builder, head.logits(builder, x), targets, kFirst, loss);
        if (training) builder.backward();
        if (training && micro_batches > 1)
            builder.append(tape::record_of(&ops::add_part::kDef, ops::AddPartParams{}, "parts", {store->gradient_arena(), sums}));
        builder.close_section(micro_batches);
        if (training) optim::append_update(builder, settings);
        builder.close_section();
        program = std::make_unique<tape::Program>("step", *store, std::move(builder), *arena);
        MILLRACE_TRY(arena->allocate());
        return program->prepare();
    }
    void feed(double special = 0) {
        std::vector<double> tokens, values, wanted;
        for (std::uint64_t i = 0; i < kSentences * (kTokens + 1); ++i)
            tokens.push_back(base::random_bits(3, 0, 0, 1, i) % kVocabulary);
        for (std::uint64_t i = 0; i < kRows * kIn; ++i)
            values.push_back(std::round(64 * base::random_normal(3, 0, 0, 2, i)) / 64);
        for (std::uint64_t i = 0; i < kRows * kCols; ++i) wanted.push_back(base::random_normal(3, 0, 0, 3, i));
        if (special != 0) values[4 * kIn + 1] = special;
        program->write(windows, tokens);
        program->write(lengths, lengths_given);
        program->write(input, values);
        program->write(goal, wanted);
    }
    [[nodiscard]] std::vector<float> all(tape::Store::Arena which) const {
        std::vector<float> values;
        for (std::size_t id = 0; id < store->parameters().size(); ++id) {
            const auto part = store->read_parameter(static_cast<tape::ParameterId>(id), 0, 0, which);
            values.insert(values.end(), part.begin(), part.end());
        }
        return values;
    }

    optim::OptimizerSettings settings;
    std::unique_ptr<ops::Backend> backend;
    std::unique_ptr<tape::Store> store;
    std::unique_ptr<tape::Arena> arena;
    std::unique_ptr<tape::Program> program;
    tensor::View windows, lengths, input, goal, tally;
    std::vector<double> lengths_given{kTokens, 7, 0, kTokens, 1};
};

void expect_close(const std::vector<float>& actual, const std::vector<float>& wanted, double tolerance) {
    ASSERT_EQ(actual.size(), wanted.size());
    double most = 0;
    for (const float value : wanted) most = std::max(most, std::abs(double{value}));
    EXPECT_GT(most, 0);
    for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(actual[i], wanted[i], tolerance * most) << i;
}

class VocabularyHeadTest : public ::testing::TestWithParam<Where> {
protected:
    void SetUp() override {
        if (const std::string why = millrace::testing::missing(GetParam().device); !why.empty()) GTEST_SKIP() << why;
    }
    /// One step of both; loss, penalty, tally, gradients and weights behind it are the same.
    void expect_equal(bool training, int micro_batches, bool second_loss, const std::vector<double>& lengths) {
        Rig rigs[2];
        for (const Rig::Head kind : {Rig::Head::stored, Rig::Head::tiled}) {
            Rig& rig = rigs[static_cast<int>(kind)];
            const auto started = rig.start(GetParam(), kind, training, micro_batches, second_loss);
            ASSERT_TRUE(started.ok()) << started.error().text();
            rig.lengths_given = lengths;
            rig.feed();
            rig.program->run();
        }
        const double tolerance = GetParam().tolerance;
        const ops::MemberState stored = rigs[0].store->read_states()[0], tiled = rigs[1].store->read_states()[0];
        EXPECT_EQ(tiled.nonfinite, 0u);
        EXPECT_EQ(tiled.rows, stored.rows);
        EXPECT_EQ(tiled.applied, stored.applied);
        EXPECT_NEAR(tiled.loss, stored.loss, tolerance * (1 + stored.loss));
        EXPECT_NEAR(tiled.penalty, stored.penalty, tolerance * (1 + stored.penalty));
        const std::vector<double> counted = rigs[1].program->read(rigs[1].tally), wanted = rigs[0].program->read(rigs[0].tally);
        EXPECT_EQ(counted[ops::tally::tokens], wanted[ops::tally::tokens]);
        if (!tape::has_copies(GetParam().precision)) {
            EXPECT_EQ(counted[ops::tally::right], wanted[ops::tally::right]);
        }
        if (!training || wanted[ops::tally::tokens] == 0) return;
        expect_close(rigs[1].all(tape::Store::Arena::gradient), rigs[0].all(tape::Store::Arena::gradient), tolerance);
        expect_close(rigs[1].all(tape::Store::Arena::value), rigs[0].all(tape::Store::Arena::value), 20 * tolerance);
    }
    const std::vector<double> lengths_{kTokens, 7, 0, kTokens, 1};
};

TEST_P(VocabularyHeadTest, TrainsAsStoredLogitsDo) { expect_equal(true, 1, false, lengths_); }
TEST_P(VocabularyHeadTest, AddsToTheGradientOfAnotherLoss) { expect_equal(true, 1, true, lengths_); }
TEST_P(VocabularyHeadTest, MicroBatchesAddUp) { expect_equal(true, 2, false, lengths_); }
TEST_P(VocabularyHeadTest, EvaluatesAsStoredLogitsDo) { expect_equal(false, 1, false, lengths_); }
TEST_P(VocabularyHeadTest, WithoutTokensThereIsNoLoss) { expect_equal(true, 1, false, {0, 0, 0, 0, 0}); }

TEST_P(VocabularyHeadTest, NotANumberDropsTheStep) {
    Rig rig;
    const auto started = rig.start(GetParam(), Rig::Head::tiled);
    ASSERT_TRUE(started.ok()) << started.error().text();
    const std::vector<float> before = rig.all(tape::Store::Arena::value);
    rig.feed(std::numeric_limits<double>::quiet_NaN());
    rig.program->run();
    EXPECT_EQ(rig.store->read_states()[0].skipped, 1u);
    EXPECT_EQ(rig.all(tape::Store::Arena::value), before);
    rig.feed();
    rig.program->run();
    EXPECT_EQ(rig.store->read_states()[0].skipped, 1u);
    EXPECT_NE(rig.all(tape::Store::Arena::value), before);
}

TEST(VocabularyHead, StartsUniformUnlessToldOtherwise) {
    const auto backend = ops::make_backend(ops::DeviceKind::ref, {}).value();
    tape::StoreOptions options;
    options.precision = tape::Precision::f64;
    tape::Store store(*backend, options);
    const VocabularyHead usual(store, "usual", 50, 16), told(store, "told", 50, 16, tape::Init::value(2), tape::Init::value(0));
    ASSERT_TRUE(store.allocate().ok());
    store.initialize({5});
    ASSERT_EQ(store.parameters().size(), 4u);
    EXPECT_EQ(store.parameters()[0].names[0], "usual.weight");
    EXPECT_EQ(store.parameters()[1].names[0], "usual.bias");
    for (const tape::ParameterId id : {0, 1}) {
        float most = 0;
        for (const float value : store.read_parameter(id, 0, 0)) most = std::max(most, std::abs(value));
        EXPECT_LE(most, 0.25f);
        EXPECT_GT(most, 0.2f);
    }
    EXPECT_EQ(store.read_parameter(2, 0, 0), std::vector<float>(800, 2.0f));
    EXPECT_EQ(store.read_parameter(3, 0, 0), std::vector<float>(50, 0.0f));
}

INSTANTIATE_TEST_SUITE_P(All, VocabularyHeadTest,
                         ::testing::Values(Where{"ref", ops::DeviceKind::ref, tape::Precision::f64, 1e-10},
                                           Where{"cpu", ops::DeviceKind::cpu, tape::Precision::f32, 1e-5},
                                           Where{"cuda", ops::DeviceKind::cuda, tape::Precision::f32, 1e-5},
                                           Where{"cuda_bf16", ops::DeviceKind::cuda, tape::Precision::bf16, 3e-2},
                                           Where{"cuda_f16", ops::DeviceKind::cuda, tape::Precision::f16, 1e-2}),
                         [](const auto& given) { return std::string(given.param.name); });

}  // namespace
}  // namespace millrace::nn::vocabulary_head
