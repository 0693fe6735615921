// One step of the energy flow over so many rows that the CUDA backend takes its heads together and pads what is not whole,
// against the CPU.

#include <gtest/gtest.h>

#include <cmath>

#include "models/flow_rig.h"

namespace millrace::models {
namespace {

using testing::FlowRig;
using testing::some_vectors;

struct RowsOutcome {
    double loss = 0;
    std::vector<std::string> names;
    std::vector<std::vector<float>> gradients;
};

/// 47 x 45 flows of one sample, heads of 64 and 64.
EnergyFlowConfig many_flows(Recompute recompute) {
    EnergyFlowConfig c;
    c.width = 47;
    c.height = 45;
    c.depth = 6;
    c.hidden = 128;
    c.embedding = 9;
    c.noise = 0;
    c.recompute = recompute;
    return c;
}

void run_step(const EnergyFlowConfig& config, ops::DeviceKind device, tape::Precision precision, RowsOutcome& outcome) {
    FlowRig flows(config, 1);
    testing::Rig& rig = flows.rig;
    const auto started = flows.start(device, precision);
    ASSERT_TRUE(started.ok()) << started.error().text();
    tape::Builder builder(*rig.store, tape::BuildOptions{});
    flows.model.build(builder, flows.source, data::Part::train, 1);
    tape::Program step("step", *rig.store, std::move(builder), *rig.arena);
    ASSERT_TRUE(rig.arena->allocate().ok());
    const auto prepared = step.prepare();
    ASSERT_TRUE(prepared.ok()) << prepared.error().text();
    for (std::size_t id = 0; id < rig.store->parameters().size(); ++id) {
        const tape::Parameter& p = rig.store->parameters()[id];
        if (!p.names[0].starts_with("carrier.energy.2") && !p.names[0].starts_with("carrier.move.2")) continue;
        std::vector<float> values = some_vectors(static_cast<std::size_t>(p.count()));
        for (float& value : values) value *= 0.2f;
        rig.store->write_parameter(static_cast<tape::ParameterId>(id), 0, 0, values);
    }
    rig.store->refresh_copies();
    flows.source.feed(*rig.store, some_vectors(static_cast<std::size_t>(config.embedding)),
                      some_vectors(static_cast<std::size_t>(config.embedding)));
    step.run();
    outcome.loss = rig.store->read_states()[0].loss;
    for (std::size_t id = 0; id < rig.store->parameters().size(); ++id) {
        if (rig.store->parameters()[id].fixed) continue;  // frozen: there is no gradient
        outcome.names.push_back(rig.store->parameters()[id].names[0]);
        outcome.gradients.push_back(
            rig.store->read_parameter(static_cast<tape::ParameterId>(id), 0, 0, tape::Store::Arena::gradient));
    }
    EXPECT_TRUE(rig.backend->check().ok());
}

double norm(const std::vector<float>& values) {
    double squares = 0;
    for (const float v : values) squares += double{v} * v;
    return std::sqrt(squares);
}

class ManyFlows : public ::testing::TestWithParam<Recompute> {};

TEST_P(ManyFlows, CudaFollowsTheCpu) {
    if (const std::string why = testing::missing(ops::DeviceKind::cuda); !why.empty()) GTEST_SKIP() << why;
    RowsOutcome cpu;
    run_step(many_flows(GetParam()), ops::DeviceKind::cpu, tape::Precision::f32, cpu);
    double largest = 0;
    for (const auto& gradient : cpu.gradients) largest = std::max(largest, norm(gradient));
    ASSERT_GT(largest, 0);
    for (const auto& [precision, tolerance] : {std::pair{tape::Precision::f32, 5e-3}, std::pair{tape::Precision::bf16, 0.2}}) {
        SCOPED_TRACE(precision == tape::Precision::bf16 ? "bf16" : "f32");
        RowsOutcome cuda;
        run_step(many_flows(GetParam()), ops::DeviceKind::cuda, precision, cuda);
        EXPECT_NEAR(cuda.loss, cpu.loss, tolerance * cpu.loss);
        ASSERT_EQ(cuda.names, cpu.names);
        for (std::size_t i = 0; i < cpu.gradients.size(); ++i) {
            std::vector<float> apart = cuda.gradients[i];
            for (std::size_t j = 0; j < apart.size(); ++j) apart[j] -= cpu.gradients[i][j];
            EXPECT_LE(norm(apart), tolerance * std::max(norm(cpu.gradients[i]), 1e-2 * largest)) << cpu.names[i];
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Ways, ManyFlows, ::testing::Values(Recompute::none, Recompute::step),
                         [](const auto& tested) { return tested.param == Recompute::none ? "kept" : "computed_again"; });

}  // namespace
}  // namespace millrace::models
