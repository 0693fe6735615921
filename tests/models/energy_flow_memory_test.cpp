// What is kept for the way back through time changes memory, not gradients.

#include <gtest/gtest.h>

#include "models/flow_rig.h"

namespace millrace::models {
namespace {

using testing::FlowRig;
using testing::some_vectors;

constexpr std::int32_t kBatch = 3;

struct Outcome {
    std::int64_t arena = 0;
    double loss = 0;
    std::vector<std::int32_t> counters;
    std::vector<float> gradients;
};

/// 7 x 5 cells, five steps, three layers of odd width; flows spawn beyond the capacity, are pushed at random and stop early.
EnergyFlowConfig odd_flow() {
    EnergyFlowConfig c;
    c.width = 7;
    c.height = 5;
    c.depth = 11;
    c.hidden = 22;
    c.layers = 3;
    c.embedding = 9;
    c.headroom = 0.31;
    c.spawn_length = 0.3;
    c.max_spawn = 2;
    c.arrive = 0.7;
    c.noise = 0.4;
    c.early_stop = true;
    c.min_steps = 2;
    c.stop_at = 0.2;
    return c;
}

std::int64_t gate_gradients_of_a_step(const EnergyFlowConfig& c) {
    return std::int64_t{c.rows(kBatch)} * 4 * c.hidden * c.layers * static_cast<std::int64_t>(sizeof(float));
}

/// Gradients of one step on the CPU from heads that push flows around.
Outcome gradients_of(const EnergyFlowConfig& config) {
    FlowRig flows(config, kBatch);
    testing::Rig& rig = flows.rig;
    Outcome outcome;
    const auto started = flows.start(ops::DeviceKind::cpu, tape::Precision::f32);
    EXPECT_TRUE(started.ok()) << started.error().text();
    tape::BuildOptions options;
    tape::Builder builder(*rig.store, options);
    flows.model.build(builder, flows.source, data::Part::train, kBatch);
    FlowRig::keep(builder, flows.model.cube().counters(), flows.source.counters);
    tape::Program step("step", *rig.store, std::move(builder), *rig.arena);
    EXPECT_TRUE(rig.arena->allocate().ok());
    const auto prepared = step.prepare();
    EXPECT_TRUE(prepared.ok()) << prepared.error().text();
    for (std::size_t id = 0; id < rig.store->parameters().size(); ++id) {
        const tape::Parameter& p = rig.store->parameters()[id];
        if (!p.names[0].starts_with("carrier.energy.2") && !p.names[0].starts_with("carrier.move.2")) continue;
        rig.store->write_parameter(static_cast<tape::ParameterId>(id), 0, 0, some_vectors(static_cast<std::size_t>(p.count())));
    }
    flows.source.feed(*rig.store, some_vectors(static_cast<std::size_t>(kBatch * config.embedding)),
                      some_vectors(static_cast<std::size_t>(kBatch * config.embedding)));
    step.run();
    outcome.arena = step.plan().bytes;
    outcome.loss = rig.store->read_states()[0].loss;
    for (const double count : flows.kept(flows.source.counters)) outcome.counters.push_back(static_cast<std::int32_t>(count));
    for (std::size_t id = 0; id < rig.store->parameters().size(); ++id) {
        if (rig.store->parameters()[id].fixed) continue;
        const auto part = rig.store->read_parameter(static_cast<tape::ParameterId>(id), 0, 0, tape::Store::Arena::gradient);
        outcome.gradients.insert(outcome.gradients.end(), part.begin(), part.end());
    }
    return outcome;
}

TEST(EnergyFlowMemory, ComputingAgainLeavesTheSameBits) {
    EnergyFlowConfig config = odd_flow();
    for (const std::int64_t steps : {1, 2, 5}) {
        config.gradient_budget = steps * gate_gradients_of_a_step(config);
        config.recompute = Recompute::none;
        const Outcome kept = gradients_of(config);
        namespace counter = ops::flow_counter;
        EXPECT_GT(kept.counters[counter::spawned], 0);
        EXPECT_GT(kept.counters[counter::refused], 0);
        EXPECT_GT(kept.counters[counter::reflected], 0);
        EXPECT_EQ(kept.counters[counter::stopped], 1);
        EXPECT_LT(kept.counters[counter::steps], config.step_count());
        std::int64_t before = kept.arena;
        for (const Recompute recompute : {Recompute::gates, Recompute::step}) {
            config.recompute = recompute;
            const Outcome again = gradients_of(config);
            EXPECT_EQ(again.loss, kept.loss) << name_of(recompute);
            EXPECT_EQ(again.counters, kept.counters) << name_of(recompute);
            EXPECT_EQ(again.gradients, kept.gradients) << name_of(recompute) << ", chunks of " << steps;
            EXPECT_LT(again.arena, before) << name_of(recompute) << ", chunks of " << steps;
            before = again.arena;
        }
    }
}

TEST(EnergyFlowMemory, ChunksOfStepsGiveTheGradientsOfOneProduct) {
    EnergyFlowConfig config = odd_flow();
    config.skip_arrived = false;  // sets borders of its own
    for (const Recompute recompute : {Recompute::none, Recompute::gates, Recompute::step}) {
        config.recompute = recompute;
        config.gradient_budget = std::int64_t{1} << 30;
        const Outcome whole = gradients_of(config);
        for (const std::int64_t steps : {1, 2, 3, 4}) {
            config.gradient_budget = steps * gate_gradients_of_a_step(config);
            const Outcome chunked = gradients_of(config);
            EXPECT_LT(testing::relative_distance(chunked.gradients, whole.gradients), 1e-6) << steps;
            EXPECT_LT(chunked.arena, whole.arena) << steps;
        }
    }
}

TEST(EnergyFlowMemory, UngivenBudgetIsAllStepsUnlessSomethingIsComputedAgain) {
    EnergyFlowConfig config = odd_flow();
    for (const Recompute recompute : {Recompute::none, Recompute::step}) {
        config.recompute = recompute;
        config.gradient_budget = 0;
        const std::int64_t ungiven = gradients_of(config).arena;
        config.gradient_budget = (recompute == Recompute::none ? 5 : 2) * gate_gradients_of_a_step(config);
        EXPECT_EQ(ungiven, gradients_of(config).arena) << name_of(recompute);
    }
}

TEST(EnergyFlowMemory, EvaluationKeepsNothing) {
    EnergyFlowConfig config = odd_flow();
    std::vector<std::int64_t> arenas;
    for (const Recompute recompute : {Recompute::none, Recompute::step}) {
        config.recompute = recompute;
        FlowRig flows(config, kBatch);
        ASSERT_TRUE(flows.start(ops::DeviceKind::cpu, tape::Precision::f32).ok());
        arenas.push_back(flows.evaluation()->plan().bytes);
    }
    EXPECT_EQ(arenas[0], arenas[1]);
    EXPECT_LT(arenas[0], gradients_of(config).arena);
}

}  // namespace
}  // namespace millrace::models
