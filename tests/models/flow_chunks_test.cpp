// Leaving out chunks of steps changes time, not gradients, wherever in a chunk the last flow arrives.

#include <gtest/gtest.h>

#include "models/flow_rig.h"

namespace millrace::models {
namespace {

using testing::FlowRig;
using testing::some_vectors;

constexpr std::int32_t kChunkBatch = 2;

/// Ten steps, of which undisturbed flows need six; chunks of three: 0, 3, 6, 9.
EnergyFlowConfig ten_steps() {
    EnergyFlowConfig c;
    c.width = 5;
    c.height = 4;
    c.depth = 20;
    c.hidden = 6;
    c.embedding = 9;
    c.noise = 0;
    c.early_stop = true;
    c.gradient_budget = 3ll * c.rows(kChunkBatch) * 4 * c.hidden * c.layers * static_cast<std::int64_t>(sizeof(float));
    return c;
}

struct Place {
    ops::DeviceKind device = ops::DeviceKind::cpu;
    tape::Precision precision = tape::Precision::f32;
    double tolerance = 1e-5;
};

/// One step in memory full of NaN, replayed where the device can. Member m is pushed upwards by the z of its move's bias,
/// push[m].
void run_step(const EnergyFlowConfig& config, const Place& place, const std::vector<float>& push, std::vector<float>& gradients) {
    FlowRig flows(config, kChunkBatch);
    testing::Rig& rig = flows.rig;
    std::vector<std::uint64_t> seeds;
    for (std::size_t m = 0; m < push.size(); ++m) seeds.push_back(m + 1);
    rig.members = static_cast<int>(push.size());
    rig.device = place.device;
    rig.precision = place.precision;
    const auto started = rig.start(flows.model, flows.source, seeds);
    ASSERT_TRUE(started.ok()) << started.error().text();
    tape::Builder builder(*rig.store, tape::BuildOptions{});
    flows.model.build(builder, flows.source, data::Part::train, kChunkBatch);
    tape::Program step("step", *rig.store, std::move(builder), *rig.arena);
    ASSERT_TRUE(rig.arena->allocate().ok());
    const auto prepared = step.prepare();
    ASSERT_TRUE(prepared.ok()) << prepared.error().text();
    const auto& parameters = rig.store->parameters();
    const auto members = static_cast<std::int32_t>(push.size());
    for (std::size_t id = 0; id < parameters.size(); ++id) {
        const tape::Parameter& p = parameters[id];
        if (!p.names[0].starts_with("carrier.energy.2") && !p.names[0].starts_with("carrier.move.2")) continue;
        for (std::int32_t m = 0; m < members; ++m) {
            std::vector<float> values = some_vectors(static_cast<std::size_t>(p.count()));
            for (float& v : values) v *= 0.1f;
            if (p.names[0] == "carrier.move.2.bias") values[2] = push[static_cast<std::size_t>(m)];
            rig.store->write_parameter(static_cast<tape::ParameterId>(id), m, 0, values);
        }
    }
    const auto vectors = some_vectors(static_cast<std::size_t>(kChunkBatch * config.embedding));
    flows.source.feed(*rig.store, vectors, vectors);
    rig.store->refresh_copies();
    const std::vector<std::uint8_t> nothing(static_cast<std::size_t>(rig.arena->size().activations), 0xff);
    const auto forget = [&] { rig.backend->upload(rig.arena->data(), nothing.data(), nothing.size()); };
    forget();
    step.run();
    if (rig.backend->can_capture()) {  // that was to warm up: it leaves out nothing
        const auto captured = step.capture();
        ASSERT_TRUE(captured.ok()) << captured.error().text();
        forget();
        step.launch();
    }
    rig.backend->synchronize();
    ASSERT_TRUE(rig.backend->check().ok());
    for (std::size_t id = 0; id < parameters.size(); ++id)
        for (std::int32_t m = 0; m < members && !parameters[id].fixed; ++m) {
            const auto part = rig.store->read_parameter(static_cast<tape::ParameterId>(id), m, 0, tape::Store::Arena::gradient);
            gradients.insert(gradients.end(), part.begin(), part.end());
        }
}

void expect_same(EnergyFlowConfig config, const std::vector<float>& push, const Place& place = {}) {
    config.skip_arrived = false;
    std::vector<float> every, skipped;
    ASSERT_NO_FATAL_FAILURE(run_step(config, place, push, every));
    config.skip_arrived = true;
    ASSERT_NO_FATAL_FAILURE(run_step(config, place, push, skipped));
    EXPECT_LT(testing::relative_distance(skipped, every), place.tolerance);
}

TEST(FlowChunks, StopAnywhereInAChunkLeavesTheGradients) {
    EnergyFlowConfig config = ten_steps();
    config.stop_at = 0;
    for (const Recompute recompute : {Recompute::none, Recompute::step})
        for (const double headroom : {0.0, 0.3})
            for (const std::int32_t layers : {1, 2})
                for (config.min_steps = 1; config.min_steps <= 10; ++config.min_steps) {
                    SCOPED_TRACE(config.min_steps);
                    config.recompute = recompute;
                    config.headroom = headroom;
                    config.layers = layers;
                    expect_same(config, {0});
                }
}

TEST(FlowChunks, StopAnywhereLeavesTheGradientsOfReplayedSteps) {
    if (const std::string why = testing::missing(ops::DeviceKind::cuda); !why.empty()) GTEST_SKIP() << why;
    const Place f32{ops::DeviceKind::cuda, tape::Precision::f32, 1e-4}, bf16{ops::DeviceKind::cuda, tape::Precision::bf16, 2e-2};
    EnergyFlowConfig config = ten_steps(), wide = ten_steps();
    wide.hidden = 64;  // by tensor cores
    wide.gradient_budget = wide.gradient_budget * 64 / config.hidden / 2;
    config.stop_at = wide.stop_at = 0;
    for (std::int32_t steps = 1; steps <= 10; ++steps) {
        SCOPED_TRACE(steps);
        config.min_steps = wide.min_steps = steps;
        expect_same(config, {0}, f32);
        expect_same(wide, {0}, bf16);
    }
}

TEST(FlowChunks, MembersThatStopInOtherChunksLeaveTheGradients) {
    EnergyFlowConfig config = ten_steps();
    config.stop_at = 0.3;
    config.min_steps = 1;
    config.gradient_budget *= 2;  // of two members
    expect_same(config, {0.4f, 0});
    expect_same(config, {0, 0.4f});
}

}  // namespace
}  // namespace millrace::models
