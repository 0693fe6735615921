// What the doctor says of recordings that were made on an H200: tests/goldens/README.md says which, and what was measured beside.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "diagnose/compare/compare.h"
#include "diagnose/diagnose.h"
#include "diagnose/reading/timeline_reader.h"
#include "places.h"

namespace millrace::diagnose {
namespace {

struct Golden {
    const char* name;
    Kind kind;
    int line;
    double truth_ms;  ///< 1/sick - 1/cured of plain runs in the same call
};

constexpr Golden kSick[] = {
    {"cache_cleared", Kind::kAllocatorChurn, 15, 2.01},   {"item_every_step", Kind::kHostSync, 23, 4.93},
    {"item_every_step_again", Kind::kHostSync, 23, 4.93}, {"journal_on_disk", Kind::kFileOutput, 20, 14.76},
    {"norms_on_host", Kind::kHostSync, 15, 3.85},         {"pageable", Kind::kPageableCopy, 14, 26.84},
    {"slow_loader", Kind::kLoaderWait, 30, 64.75},        {"table_rebuilt", Kind::kRepeatedWork, 14, 6.61},
    {"tiny_kernels", Kind::kLaunchBound, 12, 5.85},
};
constexpr const char* kWell[] = {"healthy", "item_every_step_cured"};

#if MILLRACE_HAVE_ZSTD
#define SKIP_UNREADABLE()
#else
#define SKIP_UNREADABLE() GTEST_SKIP() << "golden recordings are packed, and this build has no zstd"
#endif

Timeline golden(const char* name) {
    auto timeline = read_timeline(testing::source_root() / "tests/goldens/recordings" / name);
    EXPECT_TRUE(timeline.ok()) << name << ": " << timeline.error().text();
    return timeline.ok() ? std::move(*timeline) : Timeline{};
}

void expect_explained(const Diagnosis& diagnosis, const char* name) {
    const double sum = std::accumulate(diagnosis.breakdown_ms.begin(), diagnosis.breakdown_ms.end(), 0.0);
    double mean = 0;
    for (const auto& [begin, end] : diagnosis.recorded) mean += static_cast<double>(end - begin) * 1e-6;
    mean /= static_cast<double>(std::max<std::size_t>(1, diagnosis.recorded.size()));
    EXPECT_NEAR(sum, mean, 0.01 * mean) << name;
    EXPECT_LT(diagnosis.breakdown_ms[static_cast<std::size_t>(Owner::kUnexplained)], 0.1 * sum) << name;
}

TEST(GoldenRecordings, EachIllnessIsNamedAtItsLineWithWhatItCosts) {
    SKIP_UNREADABLE();
    for (const Golden& sick : kSick) {
        const Diagnosis diagnosis = diagnose(golden(sick.name));
        ASSERT_FALSE(diagnosis.findings.empty()) << sick.name;
        const Finding& first = diagnosis.findings.front();
        EXPECT_EQ(first.kind, sick.kind) << sick.name << ": " << first.what;
        ASSERT_TRUE(first.where) << sick.name;
        EXPECT_EQ(first.where->line, sick.line) << sick.name;
        EXPECT_NEAR(first.lost_ms_per_step, sick.truth_ms, std::max(0.25 * sick.truth_ms, 0.02 * diagnosis.step_ms)) << sick.name;
        expect_explained(diagnosis, sick.name);
        // Costs are those of a step without recording, and so is their share.
        ASSERT_TRUE(diagnosis.undisturbed_step_ms) << sick.name;
        EXPECT_NEAR(first.lost_ms_per_step / lost_share(diagnosis, first), *diagnosis.undisturbed_step_ms,
                    0.15 * *diagnosis.undisturbed_step_ms)
            << sick.name;
    }
}

TEST(GoldenRecordings, TheLedgerHasTheRunsWallTimeAndItsTraining) {
    SKIP_UNREADABLE();
    // Their command lines end with the number of steps.
    for (const char* name : {"healthy", "item_every_step", "norms_on_host", "pageable", "slow_loader", "tiny_kernels"}) {
        const Timeline timeline = golden(name);
        const Diagnosis diagnosis = diagnose(timeline);
        ASSERT_TRUE(diagnosis.run.wall_s && diagnosis.run.seconds) << name;
        const auto& seconds = *diagnosis.run.seconds;
        EXPECT_NEAR(std::accumulate(seconds.begin(), seconds.end(), 0.0), *diagnosis.run.wall_s, 0.01 * *diagnosis.run.wall_s)
            << name;
        const double steps = std::stod(timeline.title.substr(timeline.title.rfind(' ')));
        const double training = steps * diagnosis.undisturbed_step_ms.value_or(diagnosis.step_ms) * 1e-3;
        EXPECT_NEAR(seconds[static_cast<std::size_t>(Activity::kTraining)], training, 0.1 * training) << name;
        EXPECT_EQ(seconds[static_cast<std::size_t>(Activity::kCompiling)], 0) << name << " imports a compiler and never calls it";
    }
}

TEST(GoldenRecordings, HealthyProgramsGetACleanBill) {
    SKIP_UNREADABLE();
    for (const char* name : kWell) {
        const Diagnosis diagnosis = diagnose(golden(name));
        EXPECT_TRUE(diagnosis.healthy) << name;
        EXPECT_GT(diagnosis.busy_share, 0.95) << name;
        expect_explained(diagnosis, name);
    }
}

TEST(GoldenRecordings, CompareTellsTheCureFromAnotherRun) {
    SKIP_UNREADABLE();
    const auto side = [](const char* name) {
        const Timeline timeline = golden(name);
        const Diagnosis diagnosis = diagnose(timeline);
        return CompareSide{name, speed_blocks(timeline, diagnosis), diagnosis.busy_share, diagnosis.breakdown_ms};
    };
    const CompareSide sick = side("item_every_step"), cured = side("item_every_step_cured");
    EXPECT_EQ(compare(sick, cured).verdict, Verdict::kBetter);
    EXPECT_EQ(compare(cured, sick).verdict, Verdict::kWorse);
    EXPECT_EQ(compare(sick, side("item_every_step_again")).verdict, Verdict::kNoDifference);
    EXPECT_EQ(compare(cured, side("healthy")).verdict, Verdict::kNoDifference) << "the same work, but for one copy";
}

}  // namespace
}  // namespace millrace::diagnose
