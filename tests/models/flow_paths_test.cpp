// The ways of flows, made from the tables of a program that keeps them all.

#include "models/energy_flow/flow_trace.h"

#include <gtest/gtest.h>

#include <cmath>

#include "models/energy_flow/ops/flow.h"
#include "models/energy_flow/scoring.h"
#include "models/flow_rig.h"

namespace millrace::models {
namespace {

using testing::FlowRig;
using testing::small_flow;
using testing::some_vectors;

struct Traced {
    FlowTrace trace;
    std::vector<std::vector<double>> tensors;
};

/// One sample through a model whose heads are not zero, so that flows wander.
Traced traced(const EnergyFlowConfig& config, float heads) {
    FlowRig flow(config, 1);
    EXPECT_TRUE(flow.start(ops::DeviceKind::cpu, tape::Precision::f32).ok());
    const auto& parameters = flow.rig.store->parameters();
    for (std::size_t id = 0; id < parameters.size(); ++id) {
        const std::string& name = parameters[id].names[0];
        if (name != "carrier.energy.2.weight" && name != "carrier.move.2.weight") continue;
        auto values = some_vectors(static_cast<std::size_t>(parameters[id].count()));
        for (float& value : values) value *= heads;
        flow.rig.store->write_parameter(static_cast<tape::ParameterId>(id), 0, 0, values);
    }
    flow.rig.store->refresh_copies();
    const auto width = static_cast<std::size_t>(config.embedding);
    std::vector<float> vectors = some_vectors(2 * width),
                       answer(vectors.begin() + static_cast<std::ptrdiff_t>(width), vectors.end());
    double length = 0;
    for (const float value : answer) length += double{value} * value;
    for (float& value : answer) value /= static_cast<float>(std::sqrt(length));
    vectors.resize(width);
    flow.source.feed(*flow.rig.store, vectors, answer);

    tape::BuildOptions options;
    options.training = false;
    tape::Builder builder(*flow.rig.store, options);
    const std::vector<tensor::View> kept = flow.model.build_trace(builder, flow.source, data::Part::validation).kept;
    tape::Program program("trace", *flow.rig.store, std::move(builder), *flow.rig.arena);
    EXPECT_TRUE(flow.rig.arena->allocate().ok());
    EXPECT_TRUE(program.prepare().ok());
    program.run();
    Traced result;
    for (const tensor::View& view : kept) result.tensors.push_back(program.read(view));
    result.trace = flow.model.trace_of(result.tensors);
    return result;
}

double distance(const FlowPoint& a, const FlowPoint& b) { return std::hypot(a.x - b.x, a.y - b.y, a.z - b.z); }

TEST(FlowPaths, BeginInTheCellsAndEndWhereTheTableSays) {
    const EnergyFlowConfig config = small_flow();
    const auto [trace, tensors] = traced(config, 0.4f);
    ASSERT_EQ(trace.paths.size(), 20u);
    const std::vector<double>& last = tensors[SurfaceScoring::tensors + 5];
    for (const FlowPath& path : trace.paths) {
        const FlowPoint &first = path.points.front(), &end = path.points.back();
        EXPECT_NEAR(first.x, -1 + 2.0 * (path.row % 5) / 4, 1e-6);
        EXPECT_NEAR(first.y, -1 + 2.0 * (path.row / 5) / 3, 1e-6);
        EXPECT_EQ(first.z, 0);
        EXPECT_EQ(first.energy, trace.input[static_cast<std::size_t>(path.row)]);
        const double* row = &last[static_cast<std::size_t>(path.row) * ops::kFlowColumns];
        EXPECT_EQ(end.x, row[ops::flow::x]);
        EXPECT_EQ(end.z, row[ops::flow::z]);
        EXPECT_EQ(path.arrived, std::abs(end.z) == 1);
        for (const FlowPoint& point : path.points) {
            EXPECT_LE(std::abs(point.x), 1);
            EXPECT_LE(std::abs(point.y), 1);
            if (point.walls > 0) {
                EXPECT_NEAR(std::max(std::abs(point.x), std::abs(point.y)), 1, 1e-9);
            }
        }
    }
}

TEST(FlowPaths, HaveAsManyBouncesAsTheCountersSay) {
    const auto [trace, tensors] = traced(small_flow(), 0.4f);
    std::int64_t bounces = 0;
    for (const FlowPath& path : trace.paths)
        for (const FlowPoint& point : path.points) bounces += point.walls;
    EXPECT_GT(bounces, 0);
    EXPECT_EQ(bounces, tensors[SurfaceScoring::counters][ops::flow_counter::reflected]);
}

TEST(FlowPaths, WhatTheyLayOnBothPlanesIsTheSurface) {
    for (const double arrive : {0.6, 1.0}) {
        EnergyFlowConfig config = small_flow();
        config.arrive = arrive;
        config.headroom = 0.5;
        config.spawn_length = 0.3;
        const FlowTrace trace = traced(config, 0.4f).trace;
        std::int64_t spawned = 0;
        for (const FlowPath& path : trace.paths) spawned += path.parent >= 0 ? 1 : 0;
        EXPECT_GT(spawned, 0);
        double up = 0, down = 0;
        for (std::size_t cell = 0; cell < trace.output.size(); ++cell) {
            EXPECT_NEAR(trace.above[cell] + trace.below[cell], trace.output[cell], 1e-5) << cell;
            up += std::abs(trace.above[cell]);
            down += std::abs(trace.below[cell]);
        }
        EXPECT_GT(up, 0);
        EXPECT_GT(down, 0);
    }
}

TEST(FlowPaths, ChildrenBeginWhereTheStrideOfTheirParentBegan) {
    EnergyFlowConfig config = small_flow();
    config.headroom = 0.5;
    config.spawn_length = 0.3;
    const FlowTrace trace = traced(config, 0.4f).trace;
    int children = 0;
    for (const FlowPath& path : trace.paths) {
        if (path.parent < 0) continue;
        children += 1;
        ASSERT_LT(path.parent, path.row);
        double nearest = 9;
        for (const FlowPath& other : trace.paths)
            if (other.row == path.parent)
                for (const FlowPoint& point : other.points) nearest = std::min(nearest, distance(point, path.points.front()));
        EXPECT_LT(nearest, 1e-9);
    }
    EXPECT_GT(children, 0);
}

TEST(FlowPaths, AnEarlyStopEndsThem) {
    EnergyFlowConfig config = small_flow();
    config.early_stop = true;
    config.min_steps = 1;
    config.stop_at = 0.01;
    config.steps = 9;
    const FlowTrace trace = traced(config, 0.4f).trace;
    EXPECT_LT(trace.steps_used, trace.steps);
    double sum = 0, deposited = 0;
    for (const double value : trace.output) sum += value;
    for (const FlowPath& path : trace.paths) deposited += path.deposited;
    EXPECT_NEAR(sum, deposited, 1e-5);
}

TEST(FlowPaths, CosinesAreThoseOfTheScores) {
    const EnergyFlowConfig config = small_flow();
    const auto [trace, tensors] = traced(config, 0.4f);
    SurfaceScoring scoring(config);
    scoring.add({tensors.begin(), tensors.begin() + SurfaceScoring::tensors});
    const Scored scored = scoring.finish();
    EXPECT_EQ(trace.output_cosine, scored.find("validation_cosine")->value);
    EXPECT_EQ(trace.input_cosine, scored.find("mapper_cosine")->value);
    EXPECT_NEAR(trace.target_cosine, 1, 1e-5) << "20 cells hold all of 9 entries";
}

TEST(FlowPaths, AMoveBeyondBothWallsOfACornerBouncesTwice) {
    EnergyFlowConfig config;
    config.width = config.height = 2;
    std::vector<double> before(4 * 8), after, moves(4 * 8);
    for (std::size_t row = 0; row < 4; ++row) before[row * 8 + ops::flow::parent] = -1;
    before[ops::flow::x] = before[ops::flow::y] = 0.8;
    before[ops::flow::energy] = 2;
    before[ops::flow::heading] = 1;
    after = before;
    after[ops::flow::x] = 0.8;
    after[ops::flow::y] = 0.9;
    after[ops::flow::z] = 0.5;
    after[ops::flow::active] = 1;
    moves[ops::moved::move_x] = 0.4;
    moves[ops::moved::move_y] = 0.3;
    moves[ops::moved::bits] = ops::kAlive | ops::kMirroredX | ops::kMirroredY;
    const std::vector<FlowPath> paths = flow_paths(config, {before, after}, {moves});
    ASSERT_EQ(paths.size(), 4u);
    const std::vector<FlowPoint>& points = paths[0].points;
    ASSERT_EQ(points.size(), 4u);
    EXPECT_NEAR(points[1].x, 1, 1e-6);
    EXPECT_NEAR(points[1].y, 0.95, 1e-6);
    EXPECT_NEAR(points[1].z, 0.25, 1e-6);
    EXPECT_NEAR(points[2].x, 0.8 + 0.4 * (1 - 2.0 / 3), 1e-6);
    EXPECT_NEAR(points[2].y, 1, 1e-6);
    EXPECT_EQ(points[1].walls, 1);
    EXPECT_EQ(points[2].walls, 1);
    EXPECT_EQ(points[3].walls, 0);
    EXPECT_FALSE(paths[0].arrived);
    EXPECT_EQ(paths[0].deposited, 1);
    EXPECT_EQ(paths[1].points.size(), 1u) << "a row that was not alive stays";
}

}  // namespace
}  // namespace millrace::models
