// Each rewrite on against off: the same step, tensor by tensor, on CUDA in bf16, at what the rounding of the two ways explains.

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <set>

#include "base/philox.h"
#include "base/recipe.h"
#include "models/flow_rig.h"
#include "models/language_rig.h"
#include "models/registry.h"
#include "ops/dense/dense.h"
#include "ops/fused.h"

namespace millrace {
namespace {

/// What two ways of doing records may differ by, relative to a tensor's norm.
struct Rounding {
    int tensors = 0;        ///< in 16 bits that the records write; a way may keep them in f32
    std::int64_t rows = 1;  ///< the longest sums

    void count(const ops::Record& fused) {
        for (const ops::Record* part : ops::parts_of(fused))
            for (int slot = 0; slot < part->slot_count(); ++slot) {
                const tensor::View& v = part->slots[static_cast<std::size_t>(slot)];
                if (!v.present()) continue;
                rows = std::max<std::int64_t>(rows, v.rows);
                // Copies of weights are read by the next step.
                if (part->writes(slot) && tensor::size_of(v.dtype) == 2 && part->op->phase != ops::Phase::optimizer) ++tensors;
            }
    }
    /// A rounding to bf16 is off by at most 2^-8, and independent ones add up by their squares. Sums in f32 of terms with both
    /// signs are off by the root of their length, at 2^-20: tensor cores cut off what others round.
    [[nodiscard]] double bound() const {
        return tensors > 0 ? 0x1p-8 * std::sqrt(tensors) : 0x1p-20 * std::sqrt(static_cast<double>(rows));
    }
};

using Names = std::vector<std::string>;

struct StepOutcome {
    testing::Tensors gradients, weights;
    std::map<std::string, Rounding> rewrites;
    std::string listing;
    std::string progress;  ///< of each member: in its state, and as it was reported

    /// Where it differs from one without the rewrites of these names by more than their records explain.
    [[nodiscard]] std::string apart_from(const StepOutcome& off, const Names& names) const {
        Rounding all;
        for (const std::string& name : names)
            if (const auto found = rewrites.find(name); found != rewrites.end()) {
                all.tensors += found->second.tensors;
                all.rows = std::max(all.rows, found->second.rows);
            }
        const std::string apart = testing::tensors_apart(gradients, off.gradients, all.bound(), 0.5);
        return apart.empty() ? "" : fmt::format("{} (bound {:.2g} of {} tensors)", apart, all.bound(), all.tensors);
    }
};

StepOutcome run_once(testing::Rig& rig, tape::Builder&& builder) {
    StepOutcome outcome;
    tape::Program step("step", *rig.store, std::move(builder), *rig.arena);
    EXPECT_TRUE(rig.arena->allocate().ok());
    const auto prepared = step.prepare();
    EXPECT_TRUE(prepared.ok()) << (prepared.ok() ? "" : prepared.error().text());
    if (!prepared.ok()) return outcome;
    step.run();
    rig.backend->synchronize();
    EXPECT_TRUE(rig.backend->check().ok());
    for (const ops::Record& record : step.records()) {
        if (ops::fused_params(record) != nullptr) outcome.rewrites[record.op->name].count(record);
        for (const ops::Record* part : ops::parts_of(record))  // no layer appends one with sums of a bias
            if (part->op == &ops::linear_wgrad::kDef && part->slots[ops::linear_wgrad::dbias].present()) {
                outcome.rewrites["wgrad_bias"].count(*part);
                outcome.rewrites["wgrad_bias"].tensors = 1;  // sums of the gradient that it reads, off: before it was rounded
            }
    }
    EXPECT_EQ(testing::norms_apart(*rig.store), "");
    outcome.listing = step.listing();
    const auto states = rig.store->read_states();
    for (std::size_t k = 0; k < states.size(); ++k)
        outcome.progress += fmt::format("micro {} position {} epoch {} reported {}; ", states[k].micro, states[k].position,
                                        states[k].epoch, rig.store->ring_rows()[states.size() + k].epoch);
    outcome.gradients = testing::first_gradients(*rig.store);
    outcome.weights = testing::trained_tensors(*rig.store, tape::Store::Arena::value);
    return outcome;
}

/// off: rewrites; "dense_forward=tiles": a form that is asked for.
testing::Rig cuda_rig(const std::vector<std::string>& off) {
    testing::Rig rig;
    rig.device = ops::DeviceKind::cuda;
    rig.precision = tape::Precision::bf16;
    rig.deterministic = false;
    for (const std::string& what : off) (what.find('=') == std::string::npos ? rig.rewrites_off : rig.forms).push_back(what);
    return rig;
}

/// Layers with norms, weight gradients side by side.
StepOutcome layers_step(int members, const std::vector<std::string>& off) {
    base::Schema schema;
    schema.add("model", models::schema("collective", "debug").value());
    const auto recipe = base::Recipe::parse("model.name = \"collective\"\nmodel.preset = \"debug\"\n", "test", schema).value();
    constexpr std::int32_t kRows = 32;
    testing::FedSource source(784, 10, {kRows});
    const auto model = models::make(recipe, source.fields()).value();
    testing::Rig rig = cuda_rig(off);
    rig.members = members;
    std::vector<std::uint64_t> seeds;
    for (int k = 0; k < members; ++k) seeds.push_back(7 + static_cast<std::uint64_t>(k));
    const auto started = rig.start(*model, source, seeds);
    EXPECT_TRUE(started.ok()) << (started.ok() ? "" : started.error().text());
    std::vector<float> x(std::size_t{kRows} * 784);
    std::vector<std::int32_t> labels(kRows);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = tensor::from_bf16(tensor::to_bf16(base::random_normal(3, 0, 0, 1, i)));
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(base::random_bits(3, 0, 0, 2, i) % 10);
    source.feed(*rig.store, 0, x, labels);
    return run_once(rig, train::build_training_step(*rig.store, *model, source, rig.settings, {kRows, 1, 0}));
}

StepOutcome two_members_step(const std::vector<std::string>& off) { return layers_step(2, off); }
/// Tiles of weight gradients enough to be computed where they are applied.
StepOutcome many_members_step(const std::vector<std::string>& off) { return layers_step(20, off); }

/// Thousands of rows through recurrent layers and heads.
StepOutcome recurrent_step(const std::vector<std::string>& off) {
    models::EnergyFlowConfig config;
    config.width = config.height = 20;
    config.depth = 10;
    config.hidden = 64;
    config.embedding = 48;
    config.noise = 0;
    constexpr std::int32_t kRows = 8;
    testing::FlowRig flows(config, kRows);
    flows.rig = cuda_rig(off);
    const auto started = flows.rig.start(flows.model, flows.source, {1});
    EXPECT_TRUE(started.ok()) << (started.ok() ? "" : started.error().text());
    const auto& parameters = flows.rig.store->parameters();
    for (std::size_t id = 0; id < parameters.size(); ++id) {  // heads start at zero, which hides their gradients
        if (!parameters[id].names[0].starts_with("carrier.energy.2") && !parameters[id].names[0].starts_with("carrier.move.2"))
            continue;
        std::vector<float> values = testing::some_vectors(static_cast<std::size_t>(parameters[id].count()));
        for (float& v : values) v *= 0.05f;
        flows.rig.store->write_parameter(static_cast<tape::ParameterId>(id), 0, 0, values);
    }
    flows.rig.store->refresh_copies();
    const auto vectors = testing::some_vectors(static_cast<std::size_t>(kRows * config.embedding));
    flows.source.feed(*flows.rig.store, vectors, vectors);
    return run_once(flows.rig,
                    train::build_training_step(*flows.rig.store, flows.model, flows.source, flows.rig.settings, {kRows, 1, 0}));
}

constexpr std::int32_t kWindows = 6, kLength = 37;
const models::LanguageConfig kShortWindows{50, kLength, 128, 4, 256};

/// Two levels: one layer, then three side by side; or two layers in series.
std::unique_ptr<models::LanguageModel> language_model(bool tree, models::LanguageConfig language = kShortWindows) {
    if (!tree) return std::make_unique<models::Transformer>(std::move(language), 2);
    models::K1Config config;
    config.language = std::move(language);
    config.tree = models::Tree::regular({3});
    config.policy = {ops::ChoosePolicy::dense};
    return std::make_unique<models::K1>(config);
}

/// Windows of which most are not filled.
void start_windows(testing::LanguageRig& rig, std::unique_ptr<models::LanguageModel> model, int members,
                   const std::vector<std::string>& off) {
    static_cast<testing::Rig&>(rig) = cuda_rig(off);
    rig.members = members;
    rig.model = std::move(model);
    rig.windows = std::make_unique<testing::FedWindows>(kWindows, kLength, kShortWindows.vocabulary);
    const auto started =
        rig.start(*rig.model, *rig.windows, members == 1 ? std::vector<std::uint64_t>{7} : std::vector<std::uint64_t>{7, 8});
    ASSERT_TRUE(started.ok()) << started.error().text();
    auto states = rig.store->read_states();
    for (std::size_t k = 0; k < states.size(); ++k) states[k].dropout_scale = 1 / static_cast<float>(1 + k);
    rig.store->write_states(states);
    std::vector<std::int32_t> tokens;
    for (std::uint64_t i = 0; i < std::uint64_t{kWindows} * (kLength + 1); ++i)
        tokens.push_back(static_cast<std::int32_t>(base::random_bits(3, 0, 0, 2, i) % 50));
    rig.windows->feed(*rig.store, tokens, {37, 20, 1, 36, 0, 16});
}

StepOutcome windows_step(bool tree, int members, const std::vector<std::string>& off, float dropout = 0) {
    models::LanguageConfig config = kShortWindows;
    config.dropout = dropout;
    testing::LanguageRig rig;
    start_windows(rig, language_model(tree, config), members, off);
    return run_once(rig, train::build_training_step(*rig.store, *rig.model, *rig.windows, rig.settings, {kWindows, 1, 0}));
}
StepOutcome members_step(const std::vector<std::string>& off) { return windows_step(false, 2, off); }
StepOutcome siblings_step(const std::vector<std::string>& off) { return windows_step(true, 1, off); }

StepOutcome run_many_windows(const models::LanguageConfig& config, const std::vector<std::string>& off) {
    constexpr std::int32_t kMany = 96;
    testing::LanguageRig rig;
    static_cast<testing::Rig&>(rig) = cuda_rig(off);
    rig.model = language_model(false, config);
    rig.rows = kMany;
    rig.windows = std::make_unique<testing::FedWindows>(kMany, kLength, kShortWindows.vocabulary);
    const auto started = rig.start(*rig.model, *rig.windows, {7});
    EXPECT_TRUE(started.ok()) << (started.ok() ? "" : started.error().text());
    rig.feed_random(1);
    return run_once(rig, train::build_training_step(*rig.store, *rig.model, *rig.windows, rig.settings, {kMany, 1, 0}));
}

/// Thousands of rows through two layers; two blocks for each window do not fit a GPU at once, so none is shared.
StepOutcome many_windows_step(const std::vector<std::string>& off) { return run_many_windows(kShortWindows, off); }
/// The same through layers that are no single kernel.
StepOutcome wide_windows_step(const std::vector<std::string>& off) {
    models::LanguageConfig config = kShortWindows;
    config.width = 192;
    config.heads = 6;
    config.inner = 520;
    return run_many_windows(config, off);
}

TEST(Rewrites, EachOnAgainstOff) {
    if (const std::string why = testing::missing(ops::DeviceKind::cuda); !why.empty()) GTEST_SKIP() << why;
    const std::vector<std::string> names = ops::rewrite_names();
    std::set<std::string> seen;
    for (const auto step : {two_members_step, many_members_step, recurrent_step, members_step, siblings_step, many_windows_step,
                            wide_windows_step}) {
        const StepOutcome on = step({});
        for (const std::string& name : names) {
            if (!on.rewrites.contains(name)) continue;
            SCOPED_TRACE(name);
            seen.insert(name);
            if (name != "wgrad_bias") {  // which changes records
                EXPECT_NE(on.listing.find(name + " joins"), std::string::npos) << on.listing;
            }
            const StepOutcome off = step({name});
            EXPECT_FALSE(off.rewrites.contains(name));
            EXPECT_EQ(on.apart_from(off, {name}), "");
            EXPECT_EQ(on.progress, off.progress);
            // Adam's first step moves by the sign alone, so rounding shows in every weight with a vanishing gradient.
            if (on.gradients == off.gradients) {
                EXPECT_EQ(testing::tensors_apart(on.weights, off.weights, 1e-6), "");
            }
        }
        EXPECT_TRUE(step({"all"}).rewrites.empty());
    }
    // Both directions at once: each alone reads what the other's kernel wrote.
    const StepOutcome on = many_windows_step({}), off = many_windows_step({"sequence_forward", "sequence_backward"});
    EXPECT_FALSE(off.rewrites.contains("sequence_forward") || off.rewrites.contains("sequence_backward"));
    EXPECT_EQ(on.apart_from(off, {"sequence_forward", "sequence_backward"}), "");
    seen.insert(
        {"line_forward", "line_backward", "batch_statistics", "window_embed"});  // in ConvLines, BatchStatistics, WindowEmbed
    EXPECT_EQ(seen, std::set<std::string>(names.begin(), names.end())) << "a rewrite that no step of this test uses";
}

/// Sums over rows in the epilogue of a product, without a norm and with batch statistics. Both ways have the same forward
/// kernels: one value on the other side of relu's kink would be a twentieth of a narrow layer's gradient.
TEST(Rewrites, PairsAsTilesAgainstSeparateRecords) {
    if (const std::string why = testing::missing(ops::DeviceKind::cuda); !why.empty()) GTEST_SKIP() << why;
    const auto dropping = [](const std::vector<std::string>& off) { return windows_step(false, 2, off, 0.2f); };
    const std::vector<StepOutcome (*)(const std::vector<std::string>&)> steps = {two_members_step, many_windows_step,
                                                                                 members_step, dropping};
    const Names always = {"sequence_forward", "sequence_backward", "wgrad_update"};  // off, so that layers are records
    for (const auto step : steps)
        for (const char* shape : {"small", "square", "turns"})
            for (const char* blocks : {"tiles=seats3", "tiles=cluster2", "tiles=splits2"}) {
                SCOPED_TRACE(std::string(shape) + " " + blocks);
                Names off = always;
                off.insert(off.end(), {"dense_forward=tiles", std::string("tiles=") + shape, blocks});
                Names on = off;
                on.insert(on.end(), {"linear_dgrad=tiles", "backward_pair=tiles", "linear_wgrad=tiles"});
                off.emplace_back("backward_pair");
                const StepOutcome tiles = step(on), separate = step(off);
                EXPECT_TRUE(tiles.rewrites.contains("backward_pair")) << tiles.listing;
                EXPECT_FALSE(separate.rewrites.contains("backward_pair"));
                EXPECT_EQ(testing::tensors_apart(tiles.gradients, separate.gradients, 0.05, 0.5), "");
            }
}

struct Evaluated {
    std::vector<float> rows;  ///< in front of the vocabulary
    int joined = 0;           ///< layers as one kernel
    Rounding rounding;        ///< of these
};
Evaluated evaluate_windows(bool tree, int members, const std::vector<std::string>& off) {
    testing::LanguageRig rig;
    Evaluated found;
    start_windows(rig, language_model(tree), members, off);
    tape::BuildOptions options;
    options.training = false;
    tape::Builder builder(*rig.store, options);
    const tensor::View last = rig.model->build(builder, *rig.windows, data::Part::test, kWindows).prediction.view;
    builder.keep(last);
    builder.close_section();
    tape::Program program("evaluation", *rig.store, std::move(builder), *rig.arena);
    EXPECT_TRUE(rig.arena->allocate().ok() && program.prepare().ok());
    program.run();
    for (const ops::Record& record : program.records())
        if (std::string(record.op->name) == "sequence_forward") {
            found.joined += 1;
            found.rounding.count(record);
        }
    const std::vector<double> values = program.read(last);
    found.rows.assign(values.begin(), values.end());
    return found;
}

TEST(Rewrites, LayersOverShortSequencesInEvaluation) {
    if (const std::string why = testing::missing(ops::DeviceKind::cuda); !why.empty()) GTEST_SKIP() << why;
    for (const bool tree : {false, true}) {
        const Evaluated on = evaluate_windows(tree, tree ? 1 : 2, {}),
                        off = evaluate_windows(tree, tree ? 1 : 2, {"sequence_forward"});
        EXPECT_EQ(on.joined, 2);
        EXPECT_EQ(off.joined, 0);
        EXPECT_LT(testing::relative_distance(on.rows, off.rows), on.rounding.bound());
    }
    // Members of siblings attend in several records.
    EXPECT_EQ(evaluate_windows(true, 2, {}).joined, 1);
}

TEST(Rewrites, LayersWithDropoutOnAgainstOff) {
    if (const std::string why = testing::missing(ops::DeviceKind::cuda); !why.empty()) GTEST_SKIP() << why;
    for (const bool tree : {false, true}) {
        const auto step = [&](const std::vector<std::string>& off) { return windows_step(tree, tree ? 1 : 2, off, 0.2f); };
        const StepOutcome on = step({});
        EXPECT_TRUE(on.rewrites.contains("sequence_forward") && on.rewrites.contains("sequence_backward")) << on.listing;
        for (const std::vector<std::string>& off :
             {std::vector<std::string>{"sequence_forward"}, {"sequence_backward"}, {"sequence_forward", "sequence_backward"}}) {
            SCOPED_TRACE(off.front());
            const StepOutcome separate = step(off);
            for (const std::string& name : off) EXPECT_FALSE(separate.rewrites.contains(name));
            EXPECT_EQ(on.apart_from(separate, off), "");
        }
        EXPECT_NE(testing::tensors_apart(on.gradients, windows_step(tree, tree ? 1 : 2, {}).gradients, 0.05, 0.5), "");
    }
}

TEST(Rewrites, UnknownNamesAreRefusedWithTheKnownOnes) {
    const auto made = ops::make_backend(ops::DeviceKind::cpu, {.rewrites_off = {"fill"}});
    ASSERT_FALSE(made.ok());
    EXPECT_NE(made.error().text().find("fills"), std::string::npos) << made.error().text();
}

TEST(TensorsApart, OneWrongBiasAmongLargeGradientsIsFound) {
    testing::Tensors wanted{{"layer.weight", std::vector<float>(1000, 1)}, {"layer.bias", std::vector<float>(4, 0.5f)}};
    testing::Tensors found = wanted;
    EXPECT_EQ(testing::tensors_apart(found, wanted, 0.1), "");
    found["layer.bias"][2] *= 1.5f;
    EXPECT_NE(testing::tensors_apart(found, wanted, 0.1).find("layer.bias"), std::string::npos);
    found = wanted;
    found["layer.bias"][0] = std::nanf("");
    EXPECT_NE(testing::tensors_apart(found, wanted, 0.1), "");
    found.erase("layer.bias");
    EXPECT_NE(testing::tensors_apart(found, wanted, 0.1), "");
}

}  // namespace
}  // namespace millrace
