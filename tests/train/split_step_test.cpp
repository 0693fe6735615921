// A step that runs in parts against the same step at once: same losses, same gradients.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/philox.h"
#include "data/text/tokenizer.h"
#include "models/cnn/cnn.h"
#include "models/energy_flow/energy_flow.h"
#include "models/leak_cnn/leak_cnn.h"
#include "models/model_rig.h"
#include "models/transformer/transformer.h"
#include "ops/loss/loss.h"
#include "train/engine.h"
#include "train/table_source.h"

namespace millrace::train::split_step {
namespace {

using data::Field;
using models::LossKind;
using testing::TableSource;

constexpr std::int32_t kSamples = 31, kRows = 12, kTokens = 7, kWords = 23;

std::vector<double> numbers(std::int32_t width, std::uint32_t stream) {
    std::vector<double> values;
    for (std::int32_t i = 0; i < kSamples * width; ++i)
        values.push_back(static_cast<double>(base::random_normal(5, 0, 0, stream, static_cast<std::uint64_t>(i))));
    return values;
}
std::vector<double> words(std::int32_t width) {
    std::vector<double> values;
    for (std::int32_t i = 0; i < kSamples * width; ++i)
        values.push_back(base::random_bits(5, 0, 0, 9, static_cast<std::uint64_t>(i)) % kWords);
    return values;
}
/// Uneven, some without a token.
std::vector<double> lengths() {
    std::vector<double> values;
    for (std::int32_t i = 0; i < kSamples; ++i) values.push_back(i % 4 == 3 ? i % 2 : i * 5 % (kTokens + 1));
    return values;
}
/// The second class is rare.
std::vector<double> labels() {
    std::vector<double> values;
    for (std::int32_t i = 0; i < kSamples; ++i) values.push_back(i % 5 == 1 ? 1 : 0);
    return values;
}

/// A model with data for it.
struct Subject {
    const char* name;
    int members;
    std::unique_ptr<models::Model> (*model)();
    std::vector<TableSource::Table> (*tables)();
};

std::unique_ptr<models::Model> leak(LossKind loss, bool balanced = false) {
    models::LeakCnnConfig config;
    config.bands = 16;
    config.channels = {4, 6};
    config.hidden = 8;
    config.dropout = 0;
    config.loss = loss;
    config.balanced = balanced;
    config.boost = {1, 7};
    config.classes = {{"NOLEAK", "LEAK"}, {25, 6}, 1, {}};
    return std::make_unique<models::LeakCnn>(config);
}
std::vector<TableSource::Table> recordings() {
    return {{{"features", Field::Kind::real, 16}, numbers(16, 1)}, {{"label", Field::Kind::integer, 1, 2}, labels()}};
}

std::unique_ptr<models::Model> images(std::vector<double> class_weights) {
    models::CnnConfig config;
    config.task.input = {"image", data::Field::Kind::real, 36};
    config.task.input.shape = {6, 6, 1};
    config.task.outputs = 2;
    config.task.class_weights = std::move(class_weights);
    config.channels = {4};
    config.hidden = 8;
    config.dropout = 0;
    return std::make_unique<models::Cnn>(config);
}
std::vector<TableSource::Table> pictures() {
    return {{{"image", Field::Kind::real, 36}, numbers(36, 1)}, {{"label", Field::Kind::integer, 1, 2}, labels()}};
}

models::LanguageConfig language() {
    models::LanguageConfig config;
    config.vocabulary = kWords;
    config.length = kTokens;
    config.width = 16;
    config.heads = 2;
    config.inner = 24;
    return config;
}
std::vector<TableSource::Table> text() {
    return {{{"tokens", Field::Kind::integer, kTokens + 1, kWords}, words(kTokens + 1)},
            {{"length", Field::Kind::integer, 1, kTokens + 1}, lengths()}};
}

models::EnergyFlowConfig flow() {
    models::EnergyFlowConfig config;
    config.width = 5;
    config.height = 4;
    config.depth = 8;
    config.hidden = 8;
    config.embedding = 11;
    config.noise = 0;
    config.text_bridge = {.enabled = true, .width = 16, .layers = 1, .heads = 2, .inner = 24, .decode_weight = 0.5};
    return config;
}
std::vector<TableSource::Table> sentences() {
    return {{{"vector", Field::Kind::real, 11}, numbers(11, 1)},
            {{"goal", Field::Kind::real, 11}, numbers(11, 2)},
            {{"input_tokens", Field::Kind::integer, kTokens, kWords}, words(kTokens)},
            {{"input_length", Field::Kind::integer, 1, kTokens + 1}, lengths()},
            {{"target_tokens", Field::Kind::integer, kTokens, kWords}, words(kTokens)},
            {{"target_length", Field::Kind::integer, 1, kTokens + 1}, lengths()}};
}

const Subject kSubjects[] = {
    {"weighted", 2, [] { return leak(LossKind::weighted); }, recordings},
    {"focal", 2, [] { return leak(LossKind::focal); }, recordings},
    {"tokens", 3, []() -> std::unique_ptr<models::Model> { return std::make_unique<models::Transformer>(language(), 1); }, text},
    {"bridge", 1,
     []() -> std::unique_ptr<models::Model> {
         const auto tokenizer = std::make_shared<const data::Tokenizer>(data::Tokenizer::count_words("a b c", kWords).value());
         return std::make_unique<models::EnergyFlow>(flow(), models::TextShape{tokenizer, kTokens, kTokens});
     },
     sentences},
    {"classes", 1, [] { return images({}); }, pictures},
    {"balanced", 2,
     [] {
         return images({0.62, 2.58});
     },
     pictures},
    {"balanced_leak", 2, [] { return leak(LossKind::plain, true); }, recordings},
};

struct Where {
    const char* name;
    ops::DeviceKind device;
    tape::Precision precision;
    double tolerance;
};
constexpr Where kPlaces[] = {{"ref", ops::DeviceKind::ref, tape::Precision::f64, 1e-7},  // read back as f32
                             {"cpu", ops::DeviceKind::cpu, tape::Precision::f32, 1e-6},
                             {"cuda", ops::DeviceKind::cuda, tape::Precision::f32, 1e-6}};

class SplitStep : public ::testing::TestWithParam<std::tuple<Subject, Where>> {
protected:
    struct Stepped {
        testing::Tensors gradients;
        std::vector<ops::MemberState> states;
        std::size_t totals = 0;  ///< records of loss_total
    };
    /// The first step of a fresh model.
    static Stepped step(const StepRows& rows) {
        const auto& [subject, where] = GetParam();
        testing::Rig rig;
        rig.device = where.device;
        rig.precision = where.precision;
        rig.members = subject.members;
        rig.settings.accumulation = rows.parts();
        const auto model = subject.model();
        TableSource source(kSamples, subject.tables());
        std::vector<std::uint64_t> seeds;
        for (int k = 0; k < subject.members; ++k) seeds.push_back(3 + static_cast<std::uint64_t>(k));
        const auto started = rig.start(*model, source, seeds);
        EXPECT_TRUE(started.ok()) << started.error().text();
        tape::Builder builder = build_training_step(*rig.store, *model, source, rig.settings, rows);
        EXPECT_TRUE(builder.row_couplings().empty()) << builder.row_couplings().front();
        Stepped stepped;
        for (const ops::Record& record : builder.records()) stepped.totals += record.op == &ops::loss_total::kDef ? 1 : 0;
        tape::Program program("step", *rig.store, std::move(builder), *rig.arena);
        EXPECT_TRUE(rig.arena->allocate().ok() && program.prepare().ok());
        program.run();
        rig.backend->synchronize();
        stepped.gradients = testing::first_gradients(*rig.store);
        stepped.states = rig.store->read_states();
        return stepped;
    }
};

TEST_P(SplitStep, PartsAddUpToTheWhole) {
    const auto& [subject, where] = GetParam();
    if (const std::string why = testing::missing(where.device); !why.empty()) GTEST_SKIP() << why;
    const Stepped whole = step({kRows, 1, 0});
    EXPECT_EQ(whole.totals, 0u) << "a step of one part needs no other kernels";
    for (const StepRows& rows : {StepRows{6, 2, 0}, StepRows{5, 2, 2}, StepRows{11, 1, 1}, StepRows{1, 12, 0}}) {
        SCOPED_TRACE(std::to_string(rows.full) + " parts of " + std::to_string(rows.rows));
        const Stepped parts = step(rows);
        EXPECT_EQ(testing::tensors_apart(parts.gradients, whole.gradients, where.tolerance), "");
        for (std::size_t k = 0; k < whole.states.size(); ++k) {
            const ops::MemberState &found = parts.states[k], &wanted = whole.states[k];
            EXPECT_EQ(found.nonfinite, 0u);
            EXPECT_EQ(found.rows, wanted.rows);
            EXPECT_EQ(found.correct, wanted.correct);
            EXPECT_GT(wanted.loss, 0);
            EXPECT_NEAR(found.loss, wanted.loss, where.tolerance * wanted.loss);
            EXPECT_NEAR(found.penalty, wanted.penalty, where.tolerance * wanted.penalty);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, SplitStep, ::testing::Combine(::testing::ValuesIn(kSubjects), ::testing::ValuesIn(kPlaces)),
                         [](const auto& given) {
                             return std::string(std::get<0>(given.param).name) + "_" + std::get<1>(given.param).name;
                         });

/// A language model as its author left it who knows nothing of parts.
class WithoutTotals final : public models::Model {
public:
    base::Status declare(tape::Store& store) override { return inner_.declare(store); }
    [[nodiscard]] data::Fields wants() const override { return inner_.wants(); }
    models::Outputs build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) override {
        return inner_.build(builder, source, part, rows);
    }
    [[nodiscard]] bool classifies() const override { return false; }

private:
    models::Transformer inner_{language(), 1};
};

base::Result<std::unique_ptr<Engine>> make_engine(std::unique_ptr<models::Model> model, std::int64_t memory,
                                                  std::int32_t micro_batch) {
    RunSettings settings;
    settings.model = "transformer";
    settings.batch = kRows;
    settings.eval_batch = 1;
    settings.seeds = {3};
    settings.memory_limit = memory;
    settings.micro_batch = micro_batch;
    MILLRACE_LET(backend, ops::make_backend(ops::DeviceKind::cpu, {}));
    return Engine::create(std::move(backend), std::move(model), std::make_unique<TableSource>(kSamples, text()), settings, {});
}

TEST(SplitBatch, ALossWithoutItsTotalIsNotSplitUnasked) {
    const auto whole = make_engine(std::make_unique<WithoutTotals>(), 0, kRows);
    ASSERT_TRUE(whole.ok()) << whole.error().text();
    const std::int64_t less = (*whole)->memory_needs().total() - 1;
    const auto refused = make_engine(std::make_unique<WithoutTotals>(), less, 0);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().exit_status, 2);
    for (const char* part : {"not split unasked", "a mean over tokens of head", "train.micro_batch = 6 ("})
        EXPECT_NE(refused.error().text().find(part), std::string::npos) << part << " in: " << refused.error().text();
    EXPECT_TRUE(make_engine(std::make_unique<WithoutTotals>(), less, 6).ok()) << "it was asked for";

    const auto split = make_engine(std::make_unique<models::Transformer>(language(), 1), less, 0);
    ASSERT_TRUE(split.ok()) << split.error().text();
    EXPECT_EQ((*split)->micro_batch(), 6);
}

}  // namespace
}  // namespace millrace::train::split_step
