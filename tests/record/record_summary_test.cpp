#include <gtest/gtest.h>

#include <string>

#include "record/record_session.h"

namespace millrace::record {
namespace {

bool says(const RecordOutcome& outcome, const char* words) { return summary_text(outcome).find(words) != std::string::npos; }

TEST(RecordSummary, SaysWhyThereAreNoSteps) {
    RecordOutcome outcome;
    outcome.run = "runs/a";
    EXPECT_TRUE(says(outcome, "nothing of a GPU was recorded"));
    EXPECT_TRUE(says(outcome, "no process of the command used CUDA"));
    EXPECT_TRUE(says(outcome, "if it should have: "));
    EXPECT_FALSE(says(outcome, "millrace diagnose")) << "which would have no data";
    outcome.probed = 1;
    outcome.windows = 1;
    outcome.records = 263;
    EXPECT_TRUE(says(outcome, "it ended within the first window"));
    EXPECT_TRUE(says(outcome, "next: millrace diagnose runs/a"));
    EXPECT_FALSE(says(outcome, "no step repeated"));
    EXPECT_FALSE(says(outcome, "used CUDA"));
    outcome.windows = 3;
    EXPECT_TRUE(says(outcome, "no step repeated often enough to be told"));
}

TEST(RecordSummary, TellsStepsInsideAndOutsideOfWindows) {
    RecordOutcome outcome;
    outcome.probed = 1;
    outcome.windows = 3;
    outcome.records = 9000;
    outcome.steps = 1999.6;
    outcome.step_ms = 6.154;
    outcome.window_step_ms = 7.28;
    EXPECT_TRUE(says(outcome, "about 2000 steps, 6.15 ms each (7.28 ms while recorded)"));
    outcome.cost = 0.006;
    outcome.window_cost = 0.155;
    outcome.waiting_share = 0.009;
    EXPECT_FALSE(says(outcome, "CUPTI slows each launch"));
    outcome.waiting_share = 0.046;
    EXPECT_TRUE(says(outcome, "; up to 4.6"));
    EXPECT_TRUE(says(outcome, "CUPTI slows each launch"));
}

}  // namespace
}  // namespace millrace::record
