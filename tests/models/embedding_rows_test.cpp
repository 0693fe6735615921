// Rows of the embedding that no token names: their gradient is zero, and a step that knows so neither writes nor reads it. Before
// each step the rows hold NaN, which shows who reads them, and behind it, which were written.

#include <cmath>
#include <limits>

#include "base/philox.h"
#include "models/language_rig.h"

namespace millrace {
namespace {

constexpr std::int32_t kVocabulary = 61, kWords = 19, kRowsBatch = 40;
constexpr int kTrainedSteps = 5;

struct RowsCase {
    const char* name;
    std::int32_t length = 37, width = 128;
    tape::Precision precision = tape::Precision::bf16;
    bool left_out = true;  ///< rows without a token are not written
    bool tree = false, deterministic = false;
    std::vector<std::string> off = {};
    ops::OptimizerKind kind = ops::OptimizerKind::adamw;
    ops::DeviceKind device = ops::DeviceKind::cuda;
};

const RowsCase kRowsCases[] = {
    {"wide"},
    {"sgd", 37, 128, tape::Precision::bf16, true, false, false, {}, ops::OptimizerKind::sgd},
    {"f16", 37, 128, tape::Precision::f16},
    {"narrow", 5, 24, tape::Precision::f32},
    {"quads", 5, 12, tape::Precision::bf16},
    {"norms_of_nodes", 37, 128, tape::Precision::bf16, false, true},
    {"deterministic", 37, 128, tape::Precision::bf16, false, false, true},
    {"separate_update", 37, 128, tape::Precision::bf16, false, false, false, {"fused_update"}},
    {"cpu", 5, 12, tape::Precision::f32, false, false, false, {}, ops::OptimizerKind::adamw, ops::DeviceKind::cpu},
};

std::unique_ptr<models::LanguageModel> small_model(const RowsCase& c) {
    models::LanguageConfig language{kVocabulary, c.length, c.width, 2, 2 * c.width};
    if (!c.tree) return std::make_unique<models::Transformer>(std::move(language), 1);
    models::K1Config config;
    config.language = std::move(language);
    config.tree = models::Tree::regular({3});
    config.policy = {ops::ChoosePolicy::topk};
    config.count = 2;
    return std::make_unique<models::K1>(config);
}

/// Neighbouring words, others in every step; the windows before the last are full.
std::vector<std::int32_t> tokens_of(const RowsCase& c, int step) {
    std::vector<std::int32_t> tokens;
    for (std::int32_t i = 0; i < kRowsBatch * (c.length + 1); ++i)
        tokens.push_back(
            7 * step + static_cast<std::int32_t>(
                           base::random_bits(7, static_cast<std::uint32_t>(step), 0, 0, static_cast<std::uint64_t>(i)) % kWords));
    return tokens;
}

struct TrainedRows {
    testing::Tensors weights, moments;
    std::vector<float> norms;
};

/// Rows whose values are all NaN, the embedding's gradient being [vocabulary][width].
std::vector<bool> rows_of_nan(const std::vector<float>& gradient, std::int32_t width) {
    std::vector<bool> rows;
    for (std::size_t row = 0; row < gradient.size(); row += static_cast<std::size_t>(width)) {
        int count = 0;
        for (std::size_t i = 0; i < static_cast<std::size_t>(width); ++i) count += std::isnan(gradient[row + i]) ? 1 : 0;
        EXPECT_TRUE(count == 0 || count == width) << "row " << rows.size() << " is written in part";
        rows.push_back(count > 0);
    }
    return rows;
}

void train_poisoned(const RowsCase& c, bool poisoned, TrainedRows& trained) {
    testing::LanguageRig rig;
    rig.device = c.device;
    rig.precision = c.precision;
    rig.deterministic = c.deterministic;
    rig.rewrites_off = c.off;
    rig.members = 2;
    rig.settings.kind = c.kind;
    rig.settings.weight_decay = {0.01};
    rig.settings.clip_norm = {0.5};
    const auto begun = rig.begin(small_model(c), kRowsBatch, {7, 8});
    ASSERT_TRUE(begun.ok()) << begun.error().text();
    const tape::ParameterId table = 0;
    ASSERT_EQ(rig.store->parameters()[0].names[0], "embed.tokens.weight");
    const std::vector<float> poison(static_cast<std::size_t>(kVocabulary * c.width), std::numeric_limits<float>::quiet_NaN());
    for (int step = 0; step < kTrainedSteps; ++step) {
        const std::vector<std::int32_t> tokens = tokens_of(c, step);
        std::vector<std::int32_t> lengths(kRowsBatch, c.length);
        lengths.back() = 1;
        rig.windows->feed(*rig.store, tokens, lengths);
        for (int k = 0; poisoned && k < rig.members; ++k)
            rig.store->write_parameter(table, 0, k, poison, tape::Store::Arena::gradient);
        if (step == 2) {
            ASSERT_TRUE(rig.training->capture().ok());
        }
        rig.training->launch();
        for (const ops::MemberState& state : rig.store->read_states()) {
            EXPECT_EQ(state.nonfinite, 0u) << "step " << step;
            trained.norms.push_back(state.grad_norm);
        }
        std::vector<bool> wanted(kVocabulary, poisoned && c.left_out);
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            const auto window = i / static_cast<std::size_t>(c.length + 1), at = i % static_cast<std::size_t>(c.length + 1);
            if (static_cast<std::int32_t>(at) < lengths[window]) wanted[static_cast<std::size_t>(tokens[i])] = false;
        }
        for (int k = 0; k < rig.members; ++k)
            EXPECT_EQ(rows_of_nan(rig.store->read_parameter(table, 0, k, tape::Store::Arena::gradient), c.width), wanted)
                << "step " << step << ", member " << k;
    }
    ASSERT_TRUE(rig.backend->check().ok());
    trained.weights = testing::trained_tensors(*rig.store, tape::Store::Arena::value);
    if (c.kind != ops::OptimizerKind::sgd)
        trained.moments = testing::trained_tensors(*rig.store, tape::Store::Arena::second_moment);
}

class EmbeddingRows : public ::testing::TestWithParam<RowsCase> {};

TEST_P(EmbeddingRows, WithoutATokenAreZerosThatNothingReads) {
    if (const std::string why = testing::missing(GetParam().device); !why.empty()) GTEST_SKIP() << why;
    TrainedRows clean, poisoned;
    train_poisoned(GetParam(), false, clean);
    train_poisoned(GetParam(), true, poisoned);
    EXPECT_EQ(clean.norms, poisoned.norms);
    EXPECT_EQ(clean.weights, poisoned.weights);
    EXPECT_EQ(clean.moments, poisoned.moments);
    if (HasFailure() || !GetParam().left_out) return;
    // The same step with all zeros written.
    RowsCase written = GetParam();
    written.off = {"fused_update"};
    written.left_out = false;
    TrainedRows separate;
    train_poisoned(written, true, separate);
    EXPECT_EQ(testing::tensors_apart(separate.weights, clean.weights, 1e-6), "");
}

INSTANTIATE_TEST_SUITE_P(Cases, EmbeddingRows, ::testing::ValuesIn(kRowsCases),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace millrace
