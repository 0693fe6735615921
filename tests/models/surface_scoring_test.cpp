#include "models/energy_flow/ops/flow.h"
#include "models/energy_flow/scoring.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace millrace::models {
namespace {

TEST(SurfaceScoring, CosineIsTheMeanOverRows) {
    const std::vector<float> targets{1, 0, 0, 1, 0.6f, 0.8f};
    const std::vector<float> found{2, 0, 1, 1, -6, -8};
    EXPECT_NEAR(mean_cosine(found, targets, 2), (1 + std::sqrt(0.5) - 1) / 3, 1e-6);
    EXPECT_EQ(mean_cosine({0, 0}, {1, 0}, 2), 0) << "nothing points nowhere";
}

TEST(SurfaceScoring, RetrievalCountsRowsWhoseOwnTargetIsNearest) {
    const std::vector<float> targets{1, 0, 0, 1, -1, 0};
    // The first two find their own, the third is nearest to the second.
    EXPECT_NEAR(retrieval_at_1({5, 1, 0.1f, 0.2f, -0.1f, 0.3f}, targets, 2), 2.0 / 3, 1e-12);
    EXPECT_EQ(retrieval_at_1(targets, targets, 2), 1);
    // Equal targets count as one; a tie between others is no hit for a third.
    EXPECT_EQ(retrieval_at_1({1, 0, 1, 0}, {1, 0, 1, 0}, 2), 1);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(retrieval_at_1({0, 0, nan, 1, 1, 0}, targets, 2), 0) << "nothing, not a number, the opposite";
}

TEST(SurfaceScoring, SumsBatchesOfDifferentSizes) {
    EnergyFlowConfig config;
    config.width = config.height = 2;
    config.depth = 10;
    config.embedding = 2;
    SurfaceScoring scoring(config);
    std::vector<double> counters(ops::kFlowCounters);
    namespace at = ops::flow_counter;
    counters[at::used] = 9;
    counters[at::spawned] = 1;
    counters[at::refused] = 2;
    counters[at::arrived_up] = 3;
    counters[at::arrived_down] = 4;
    counters[at::reflected] = 5;
    counters[at::steps] = 4;
    // Two rows: energies are off by 0.5 everywhere, one cell of eight stays empty.
    scoring.add({{1, 0, 0, 1},
                 {1, 0, 1, 0},
                 {1, 0, 0, 1},
                 {1, 1, 1, 1, 1, 1, 1, 0},
                 std::vector<double>(8, 0.5),
                 std::vector<double>(8),
                 counters});
    counters[at::steps] = 1;
    // One row, energies exact.
    scoring.add({{-1, 0}, {-1, 0}, {-1, 0}, {0, 0, 0, 1}, std::vector<double>(4, 2.0), std::vector<double>(4, 2.0), counters});
    const Scored scored = scoring.finish();
    const auto value = [&](const char* name) { return scored.find(name)->value; };
    EXPECT_NEAR(value("validation_cosine"), 1, 1e-6);
    EXPECT_EQ(value("retrieval_at_1"), 1);
    EXPECT_NEAR(value("mapper_cosine"), 2.0 / 3, 1e-6);
    EXPECT_NEAR(value("mapper_retrieval_at_1"), 2.0 / 3, 1e-6);
    EXPECT_NEAR(value("mapper_loss"), 2 * 0.25 / 3, 1e-12);
    EXPECT_NEAR(value("flow_steps_used"), (2 * 4 + 1) / 3.0, 1e-12);
    EXPECT_NEAR(value("cell_coverage"), 8.0 / 12, 1e-12);
    EXPECT_EQ(value("flows_created"), 18);
    EXPECT_EQ(value("flows_spawned"), 2);
    EXPECT_EQ(value("flows_refused"), 4);
    EXPECT_EQ(value("flows_arrived_up"), 6);
    EXPECT_EQ(value("flows_arrived_down"), 8);
    EXPECT_EQ(value("flows_projected"), 4);
    EXPECT_EQ(value("flows_reflected"), 10);
    EXPECT_EQ(value("cosine_ceiling"), 1);
    EXPECT_EQ(scored.find("accuracy"), nullptr);
}

}  // namespace
}  // namespace millrace::models
