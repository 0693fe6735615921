// The energy flow model against what PyTorch gave (tests/goldens/README.md), and what must hold for any weights.

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "models/energy_flow/ops/flow.h"
#include "models/flow_rig.h"
#include "ops/optimizer/optimizer.h"

namespace millrace::models {
namespace {

using nlohmann::json;
using testing::FlowRig;
using testing::Golden;
using testing::Rig;
using testing::slice;
using testing::small_flow;
using testing::some_vectors;

struct FlowWhere {
    const char* name;
    ops::DeviceKind device;
    tape::Precision precision;
    double surface, loss, gradients, weights;
};

/// What is kept for the way back, and how much of its gradients waits for the weights' products.
struct Keeping {
    const char* name;
    Recompute recompute;
    std::int64_t budget;
    bool skip = false;
};

EnergyFlowConfig config_of(const json& given) {
    EnergyFlowConfig c;
    c.width = given["width"];
    c.height = given["height"];
    c.depth = given["depth"];
    c.hidden = given["hidden"];
    c.layers = given["layers"];
    c.embedding = given["embedding"];
    c.steps = given.value("steps", 0);
    c.headroom = given.value("headroom", 0.0);
    c.spawn_length = given.value("spawn_length", 0.5);
    c.max_spawn = given.value("max_spawn", 1);
    c.arrive = given.value("arrive", 0.6);
    c.noise = given.value("noise", 0.0);
    c.early_stop = given.value("early_stop", false);
    c.min_steps = given.value("min_steps", 0);
    c.stop_at = given.value("stop_at", 0.95);
    c.patience = given.value("patience", 3);
    return c;
}

/// vectors [rows, E] times map^T, map [S, E].
std::vector<float> mapped(const std::vector<float>& vectors, const std::vector<float>& map, std::size_t width) {
    const std::size_t rows = vectors.size() / width, cells = map.size() / width;
    std::vector<float> out(rows * cells);
    for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t s = 0; s < cells; ++s) {
            double sum = 0;
            for (std::size_t i = 0; i < width; ++i)
                sum += static_cast<double>(vectors[r * width + i]) * static_cast<double>(map[s * width + i]);
            out[r * cells + s] = static_cast<float>(sum);
        }
    return out;
}

double worst(const std::vector<double>& found, const std::vector<float>& wanted) {
    EXPECT_EQ(found.size(), wanted.size());
    double most = 0;
    for (std::size_t i = 0; i < std::min(found.size(), wanted.size()); ++i)
        most = std::max(most, std::abs(found[i] - static_cast<double>(wanted[i])));
    return most;
}

class EnergyFlowParity : public ::testing::TestWithParam<std::tuple<FlowWhere, std::string, Keeping>> {
protected:
    void SetUp() override {
        if (const std::string why = testing::missing(where().device); !why.empty()) GTEST_SKIP() << why;
    }
    [[nodiscard]] const FlowWhere& where() const { return std::get<0>(GetParam()); }
    Golden golden_{std::get<1>(GetParam())};
};

TEST_P(EnergyFlowParity, TenStepsGiveTheReferencesNumbers) {
    const json given = golden_.meta("model");
    EnergyFlowConfig config = config_of(given);
    config.recompute = std::get<2>(GetParam()).recompute;
    config.skip_arrived = std::get<2>(GetParam()).skip;
    config.gradient_budget = std::get<2>(GetParam()).budget;
    const auto batch = static_cast<std::int32_t>(golden_.shape("x")[1]);
    FlowRig flows(config, batch);
    Rig& rig = flows.rig;
    const json optimizer = golden_.meta("optimizer");
    rig.settings.kind = ops::OptimizerKind::adamw;
    rig.settings.lr = {optimizer["lr"].get<double>()};
    rig.settings.weight_decay = {optimizer["weight_decay"].get<double>()};
    rig.settings.clip_norm = golden_.meta("clip").get<double>();
    const auto started = flows.start(where().device, where().precision);
    ASSERT_TRUE(started.ok()) << started.error().text();
    EXPECT_EQ(rig.store->trainable_count(), golden_.meta("parameters").get<std::int64_t>());
    EXPECT_EQ(config.rows(batch), golden_.meta("derived")["rows"].get<std::int32_t>());

    tape::Program step("step", *rig.store,
                       train::build_training_step(*rig.store, flows.model, flows.source, rig.settings, {batch, 1, 0}),
                       *rig.arena);
    const auto eval = flows.evaluation();
    ASSERT_TRUE(rig.arena->allocate().ok());
    for (tape::Program* program : {&step, eval.get()}) {
        const auto prepared = program->prepare();
        ASSERT_TRUE(prepared.ok()) << prepared.error().text();
    }
    flows.load(golden_, "init");
    const std::vector<float> losses = golden_.floats("loss");
    const auto width = static_cast<std::size_t>(config.embedding), vectors = static_cast<std::size_t>(batch) * width;
    const bool exact = where().precision != tape::Precision::bf16;
    for (std::size_t s = 0; s < losses.size(); ++s) {
        const std::vector<float> x = slice(golden_.floats("x"), s, vectors);
        flows.source.feed(*rig.store, x, slice(golden_.floats("targets"), s, vectors));
        if (s == 0) {
            eval->run();
            EXPECT_LE(worst(flows.kept(flows.source.energies), golden_.floats("mapped")), where().surface);
            if (!config.early_stop) {  // evaluation programs stop by the same rule; the trace of the golden is of training
                EXPECT_LE(worst(flows.kept(flows.source.surface), golden_.floats("surface")), where().surface);
            }
            const std::vector<double> counters = flows.kept(flows.source.counters);
            const std::vector<std::int32_t> wanted = golden_.integers("counters");
            for (std::size_t i = 0; exact && i < 7; ++i) EXPECT_EQ(counters[i], wanted[i]) << "counter " << i;
        }
        step.run();
        const ops::MemberState state = rig.store->read_states()[0];
        EXPECT_NEAR(state.loss / state.rows, losses[s], where().loss) << "step " << s;
        EXPECT_EQ(state.applied, s + 1);
        if (s > 0) continue;
        std::vector<float> all_found, all_wanted;
        for (std::size_t id = 0; id < rig.store->parameters().size(); ++id) {
            const std::string& name = rig.store->parameters()[id].names[0];
            if (rig.store->parameters()[id].fixed) continue;
            const auto found = rig.store->read_parameter(static_cast<tape::ParameterId>(id), 0, 0, tape::Store::Arena::gradient);
            const std::vector<float> wanted = golden_.floats("grad." + name);
            if (exact) {
                EXPECT_LE(testing::relative_distance(found, wanted), where().gradients) << name;
            }
            all_found.insert(all_found.end(), found.begin(), found.end());
            all_wanted.insert(all_wanted.end(), wanted.begin(), wanted.end());
        }
        EXPECT_LE(testing::relative_distance(all_found, all_wanted), where().gradients) << "all gradients as one vector";
    }
    for (std::size_t id = 0; id < rig.store->parameters().size(); ++id) {
        const std::string& name = rig.store->parameters()[id].names[0];
        if (name == "target_map") {
            EXPECT_EQ(rig.store->read_parameter(static_cast<tape::ParameterId>(id), 0, 0), golden_.floats("init." + name));
            continue;
        }
        EXPECT_LE(testing::relative_distance(rig.store->read_parameter(static_cast<tape::ParameterId>(id), 0, 0),
                                             golden_.floats("after10." + name)),
                  where().weights)
            << name;
    }
}

const FlowWhere kFlowRef{"ref", ops::DeviceKind::ref, tape::Precision::f64, 1e-5, 1e-5, 1e-4, 1e-3};
const FlowWhere kFlowCpu{"cpu", ops::DeviceKind::cpu, tape::Precision::f32, 1e-5, 1e-5, 1e-4, 1e-3};
const FlowWhere kFlowCuda{"cuda", ops::DeviceKind::cuda, tape::Precision::f32, 1e-4, 1e-4, 1e-3, 1e-3};
const FlowWhere kFlowCudaBf16{"cuda_bf16", ops::DeviceKind::cuda, tape::Precision::bf16, 0.1, 0.05, 0.2, 0.05};

const Keeping kAll{"all", Recompute::none, 1 << 30}, kGates{"gates_again", Recompute::gates, 1 << 30},
    kSteps{"steps_again", Recompute::step, 1}, kSkipping{"skipping", Recompute::none, 1, true},
    kSkippingGates{"skipping_gates_again", Recompute::gates, 1, true};

INSTANTIATE_TEST_SUITE_P(Goldens, EnergyFlowParity,
                         ::testing::Combine(::testing::Values(kFlowRef, kFlowCpu, kFlowCuda, kFlowCudaBf16),
                                            ::testing::Values("energy_flow", "energy_flow_spawn", "energy_flow_spawn_full",
                                                              "energy_flow_isometry", "energy_flow_projection",
                                                              "energy_flow_stop_share", "energy_flow_stop_patience"),
                                            ::testing::Values(kAll, kGates, kSteps, kSkipping, kSkippingGates)),
                         [](const auto& each) {
                             return std::string(std::get<0>(each.param).name) + "_" + std::get<1>(each.param) + "_" +
                                    std::get<2>(each.param).name;
                         });

class NewEnergyFlow : public ::testing::TestWithParam<FlowWhere> {};

TEST_P(NewEnergyFlow, ReturnsTheMappersSurface) {
    FlowRig flows(small_flow(), 3);
    ASSERT_TRUE(flows.start(GetParam().device, GetParam().precision).ok());
    const auto eval = flows.evaluation();
    ASSERT_TRUE(flows.rig.arena->allocate().ok());
    ASSERT_TRUE(eval->prepare().ok());
    flows.source.feed(*flows.rig.store, some_vectors(27), std::vector<float>(27));
    eval->run();
    const std::vector<double> surface = flows.kept(flows.source.surface), energies = flows.kept(flows.source.energies);
    ASSERT_EQ(surface.size(), 60u);
    for (std::size_t i = 0; i < surface.size(); ++i) EXPECT_NEAR(surface[i], energies[i], 1e-5);
    EXPECT_GT(*std::max_element(energies.begin(), energies.end()), 0);
    const std::vector<double> counters = flows.kept(flows.source.counters);
    EXPECT_EQ(counters[ops::flow_counter::arrived_up] + counters[ops::flow_counter::arrived_down], 60) << "all of them arrive";
}

TEST_P(NewEnergyFlow, LaysDownTheEnergyThatIsCarriedAndPermutesWithTheBatch) {
    FlowRig flows(small_flow(), 3);
    ASSERT_TRUE(flows.start(GetParam().device, GetParam().precision).ok());
    const auto eval = flows.evaluation();
    ASSERT_TRUE(flows.rig.arena->allocate().ok());
    ASSERT_TRUE(eval->prepare().ok());
    // Heads that push flows around.
    for (std::size_t id = 0; id < flows.rig.store->parameters().size(); ++id) {
        const tape::Parameter& p = flows.rig.store->parameters()[id];
        if (!p.names[0].starts_with("carrier.energy.2") && !p.names[0].starts_with("carrier.move.2")) continue;
        flows.rig.store->write_parameter(static_cast<tape::ParameterId>(id), 0, 0,
                                         some_vectors(static_cast<std::size_t>(p.count())));
    }
    const std::vector<float> x = some_vectors(27);
    flows.source.feed(*flows.rig.store, x, std::vector<float>(27));
    eval->run();
    const std::vector<double> surface = flows.kept(flows.source.surface), table = flows.kept(flows.source.table);
    double carried = 0;
    for (std::size_t row = 0; row < 60; ++row) {
        const double* flow = table.data() + row * ops::kFlowColumns;
        carried += flow[ops::flow::energy] * (flow[ops::flow::active] != 0 ? std::abs(flow[ops::flow::z]) : 1);
    }
    EXPECT_NEAR(std::accumulate(surface.begin(), surface.end(), 0.0), carried, 1e-4);

    std::vector<float> turned(x.begin() + 9, x.end());
    turned.insert(turned.end(), x.begin(), x.begin() + 9);
    flows.source.feed(*flows.rig.store, turned, std::vector<float>(27));
    eval->run();
    const std::vector<double> after = flows.kept(flows.source.surface);
    for (std::size_t i = 0; i < 60; ++i) EXPECT_NEAR(after[i], surface[(i + 20) % 60], 1e-5) << i;
}

INSTANTIATE_TEST_SUITE_P(Places, NewEnergyFlow, ::testing::Values(kFlowRef, kFlowCpu),
                         [](const auto& each) { return std::string(each.param.name); });

TEST(EnergyFlowConfig, RefusesWhatCannotBeBuilt) {
    EnergyFlowConfig c = small_flow();
    EXPECT_TRUE(validate(c).ok());
    c.width = 1;
    EXPECT_FALSE(validate(c).ok());
    c = small_flow();
    c.hidden = 7;
    EXPECT_FALSE(validate(c).ok());
    c = small_flow();
    c.depth = 1;
    EXPECT_FALSE(validate(c).ok());
    c = small_flow();
    c.arrive = 0.01;
    EXPECT_FALSE(validate(c).ok());
}

TEST(EnergyFlowConfig, TargetMapIsAnIsometryTimesTheSurfacesScale) {
    EnergyFlowConfig c = small_flow();  // 20 cells, 9 entries
    FlowRig flows(c, 3);
    ASSERT_TRUE(flows.start(kFlowRef.device, kFlowRef.precision).ok());
    const std::vector<float> map = flows.rig.store->read_parameter(flows.model.target_map(), 0, 0);
    ASSERT_EQ(map.size(), 180u);
    const std::vector<float> vector = some_vectors(9);
    const std::vector<float> surface = mapped(vector, map, 9);
    double before = 0, after = 0;
    for (const float v : vector) before += static_cast<double>(v) * static_cast<double>(v);
    for (const float v : surface) after += static_cast<double>(v) * static_cast<double>(v);
    EXPECT_NEAR(after / before, c.surface_scale * c.surface_scale * 20, 1e-4);
    EXPECT_EQ(cosine_ceiling(c), 1);
    c.embedding = 80;
    EXPECT_EQ(cosine_ceiling(c), 0.5);
}

}  // namespace
}  // namespace millrace::models
