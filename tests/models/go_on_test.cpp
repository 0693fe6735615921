// Writing text: a token at a time gives what the whole window gives, and tokens are drawn as asked.

#include "models/language_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "models/language_rig.h"

namespace millrace::models {
namespace {

using testing::FedWindows;
using testing::LanguageRig;

class StepByStep : public ::testing::TestWithParam<ops::DeviceKind> {
protected:
    void SetUp() override {
        if (const std::string why = testing::missing(GetParam()); !why.empty()) GTEST_SKIP() << why;
    }
};

/// Logits of every position from the whole window: the vocabulary's layer is computed here.
std::vector<double> whole_logits(LanguageRig& rig, tape::Program& program, const tensor::View& hidden,
                                 const std::vector<std::int32_t>& tokens) {
    const LanguageConfig& c = rig.model->language();
    rig.windows->feed(*rig.store, tokens, {c.length});
    program.run();
    const std::vector<double> x = program.read(hidden);
    std::vector<float> weight, bias;
    for (std::size_t id = 0; id < rig.store->parameters().size(); ++id) {
        const std::string& name = rig.store->parameters()[id].names.front();
        if (name == "head.weight") weight = rig.store->read_parameter(static_cast<tape::ParameterId>(id), 0, 0);
        if (name == "head.bias") bias = rig.store->read_parameter(static_cast<tape::ParameterId>(id), 0, 0);
    }
    const auto width = static_cast<std::size_t>(c.width), words = static_cast<std::size_t>(c.vocabulary);
    std::vector<double> logits;
    for (std::size_t p = 0; p < static_cast<std::size_t>(c.length); ++p)
        for (std::size_t v = 0; v < words; ++v) {
            double sum = double{bias[v]};
            for (std::size_t i = 0; i < width; ++i) sum += x[p * width + i] * double{weight[v * width + i]};
            logits.push_back(sum);
        }
    return logits;
}

TEST_P(StepByStep, EqualsTheWholeWindow) {
    const LanguageConfig shape{23, 7, 16, 2, 24};
    for (const bool tree : {false, true}) {
        LanguageRig rig;
        rig.device = GetParam();
        rig.precision = tape::Precision::f32;
        if (tree) {
            K1Config config;
            config.language = shape;
            config.tree = Tree::regular({2, 3});
            rig.model = std::make_unique<K1>(config);
        } else {
            rig.model = std::make_unique<Transformer>(shape, 2);
        }
        rig.windows = std::make_unique<FedWindows>(1, shape.length, shape.vocabulary);
        // The caches are data of the store, so they are declared by a source of the test's own.
        struct Caches final : data::BatchSource {
            Caches(FedWindows& inner, const std::vector<std::int32_t>& layers, std::int32_t positions, std::int32_t cols)
                : windows(inner), widths(layers), length(positions), width(cols) {}
            [[nodiscard]] std::int32_t samples(data::Part part) const override { return windows.samples(part); }
            [[nodiscard]] const data::Fields& fields() const override { return windows.fields(); }
            base::Status declare(tape::Store& store) override {
                token.ids = store.add_data("token", tensor::DType::i32, 1, 1);
                token.lengths = store.add_data("one", tensor::DType::i32, 1, 1);
                caches.position = store.add_data("position", tensor::DType::i32, 1, 1);
                row = store.add_data("row", tensor::DType::f32, 1, width);
                for (const std::int32_t cols : widths)
                    caches.layers.push_back(store.add_data("cache", tensor::DType::f32, length, 2 * cols));
                token.caches = &caches;
                return windows.declare(store);
            }
            base::Status upload(tape::Store& store) override { return windows.upload(store); }
            std::vector<tensor::View> gather(tape::Builder& builder, data::Part part, std::int32_t rows,
                                             std::span<const data::Wanted> wanted) override {
                return windows.gather(builder, part, rows, wanted);
            }
            FedWindows& windows;
            std::vector<std::int32_t> widths;
            std::int32_t length, width;
            nn::Sequences token;
            nn::StepCaches caches;
            tensor::View row;
        } source(*rig.windows, rig.model->cached_widths(), shape.length, shape.width);
        ASSERT_TRUE(rig.start(*rig.model, source, {5}).ok());
        tape::BuildOptions options;
        options.training = false;
        tape::Builder whole(*rig.store, options), step(*rig.store, options);
        const auto read = source.gather(whole, data::Part::test, 1, std::vector<data::Wanted>{{"tokens"}, {"length"}});
        const tensor::View hidden = rig.model->hidden(whole, nn::Sequences{read[0].columns(0, shape.length), read[1]}).view;
        whole.keep(hidden);
        const tensor::View logits = rig.model->build_step(step, source.token, source.row).view;
        step.keep(logits);
        tape::Program all("whole", *rig.store, std::move(whole), *rig.arena),
            one("step", *rig.store, std::move(step), *rig.arena);
        ASSERT_TRUE(rig.arena->allocate().ok() && all.prepare().ok() && one.prepare().ok());

        const std::vector<std::int32_t> tokens{3, 1, 4, 1, 5, 9, 2, 6};
        const std::vector<double> wanted = whole_logits(rig, all, hidden, tokens);
        const std::vector<float> table = rig.model->position_table(*rig.store, 0);
        for (std::size_t p = 0; p < 7; ++p) {
            one.write(source.token.ids, {static_cast<double>(tokens[p])});
            one.write(source.token.lengths, {1});
            one.write(source.caches.position, {static_cast<double>(p)});
            const auto begin = table.begin() + static_cast<std::ptrdiff_t>(p * 16);
            one.write(source.row, std::vector<double>(begin, begin + 16));
            one.run();
            const std::vector<double> found = one.read(logits);
            for (std::size_t v = 0; v < 23; ++v) EXPECT_NEAR(found[v], wanted[p * 23 + v], 2e-5) << "position " << p;
        }
    }
}
INSTANTIATE_TEST_SUITE_P(Everywhere, StepByStep, ::testing::Values(ops::DeviceKind::cpu, ops::DeviceKind::cuda),
                         [](const auto& one) { return std::string(ops::name_of(one.param)); });

TEST(DrawToken, FollowsTemperatureAndRank) {
    const std::vector<double> logits{9, 1, 2, 0, 2};
    EXPECT_EQ(draw_token(logits, 0, 0, 1, 0.99), 2) << "the first of the likeliest behind the marks";
    EXPECT_EQ(draw_token(logits, 1, 1, 1, 0.99), 2);
    EXPECT_EQ(draw_token(logits, 0, 0, 0, 0.5), 0);
    EXPECT_EQ(draw_token(logits, 1, 2, 1, 0.49), 2) << "two are equally likely";
    EXPECT_EQ(draw_token(logits, 1, 2, 1, 0.51), 4);
    EXPECT_EQ(draw_token({1}, 1, 0, 4, 0.5), 0) << "nothing but marks";
    std::map<std::int32_t, int> counts;
    for (int i = 0; i < 1000; ++i) ++counts[draw_token(logits, 2, 0, 1, (i + 0.5) / 1000)];
    const double sum = std::exp(-0.5) + 1 + std::exp(-1.0) + 1;
    EXPECT_NEAR(counts[1], 1000 * std::exp(-0.5) / sum, 1.5);
    EXPECT_NEAR(counts[2], 1000 / sum, 1.5);
    EXPECT_NEAR(counts[3], 1000 * std::exp(-1.0) / sum, 1.5);
    EXPECT_EQ(counts.count(0), 0u);
}

}  // namespace
}  // namespace millrace::models
