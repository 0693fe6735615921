#include "record/step_count.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

namespace millrace::record {
namespace {

/// Sites 1 and 2 are the same line of a loop, called from two places; 3 is another line.
class StepsCounted : public ::testing::Test {
protected:
    StepsCounted() {
        for (std::uint32_t site = 1; site <= 3; ++site) {
            std::array<Record, 2> slots;
            slots[0].kind = RecordKind::kSite;
            slots[0].id = site;
            slots[0].count = 2;
            const SiteFrame frames[] = {{1, 1, site == 3 ? 40u : 20u, 0}, {1, 2, 90 + site, 0}};
            std::memcpy(static_cast<void*>(&slots[1]), frames, sizeof frames);
            watch_.add(slots[0], std::span(slots).subspan(1));
        }
    }
    void calls(std::uint32_t site, int times, bool counted = false) {
        Record call;
        call.kind = RecordKind::kCall;
        call.what = static_cast<std::uint8_t>(CallKind::kCopyAsync);
        call.site = site;
        for (int i = 0; i < times; ++i) count_.add(call, counted);
    }
    void probe_counts(std::uint32_t site, std::uint64_t calls) {
        for (SiteCalls& each : report_.sites)
            if (each.site == site) return each.calls += calls, count_.take(report_);
        report_.sites.push_back({CallKind::kCopyAsync, site, calls});
        count_.take(report_);
    }
    /// A window whose steps come from updates, or less surely.
    void ends(std::uint32_t site, std::uint32_t per_step, StepSource source = StepSource::kUpdates) {
        StepFacts facts;
        facts.pulse.call = CallKind::kCopyAsync;
        facts.pulse.site = site;
        facts.pulse.per_step = per_step;
        facts.pulse_depth = 1;
        facts.source = source;
        facts.trains = source <= StepSource::kUpdates;
        count_.end_window(facts, surest_, false);
        surest_ = std::min(surest_, sureness(facts));
    }

    StepWatch watch_;
    StepCount count_;
    ProbeReport report_;
    Sureness surest_;
};

TEST_F(StepsCounted, CallsOfTheFirstWindowAreCountedByTheirRecordsAndOthersByTheProbe) {
    calls(1, 40);
    calls(3, 500);
    ends(1, 2);
    probe_counts(1, 960);
    probe_counts(3, 7'000);  // an evaluation
    calls(1, 50, true);      // of a window in which the probe counts on
    EXPECT_EQ(count_.steps(), 500);
    EXPECT_EQ(count_.doubt(watch_), "");
}

TEST_F(StepsCounted, TurnsOfTheLoopThatNoWindowHasShownAreDoubted) {
    calls(1, 40);
    ends(1, 2);
    probe_counts(1, 960);
    probe_counts(2, 16);
    EXPECT_EQ(count_.doubt(watch_), "") << "8 of 500";
    EXPECT_EQ(count_.unseen_site(watch_), 2u);
    probe_counts(2, 14);
    EXPECT_NE(count_.doubt(watch_), "") << "15 of 500";
    count_.take(report_);
    EXPECT_EQ(count_.unseen_site(watch_), 0u) << "they have ended";

    calls(2, 10, true);
    ends(0, 0, StepSource::kLoop);
    EXPECT_EQ(count_.doubt(watch_), "") << "a window has shown that it is no training";
    EXPECT_EQ(count_.steps(), 500);
}

TEST_F(StepsCounted, AsLongAsNoWindowHasShownTrainingAnyOtherSiteAsksForOne) {
    calls(1, 40);
    ends(1, 2, StepSource::kLoop);
    probe_counts(3, 1);
    EXPECT_EQ(count_.unseen_site(watch_), 3u);
    ends(1, 2);
    probe_counts(3, 1);
    EXPECT_EQ(count_.unseen_site(watch_), 0u) << "it is no turn of the step's loop";
}

TEST_F(StepsCounted, WindowThatShowsStepsAtAnotherSiteAddsThem) {
    calls(1, 40);
    ends(1, 2);
    probe_counts(1, 960);
    probe_counts(2, 100);
    calls(2, 20, true);
    ends(2, 2);
    probe_counts(2, 100);
    EXPECT_EQ(count_.steps(), 600);
    EXPECT_EQ(count_.doubt(watch_), "");
}

TEST_F(StepsCounted, WindowsThatContradictEachOtherAreNotBelieved) {
    calls(1, 40);
    ends(1, 2);
    probe_counts(1, 960);
    calls(1, 20, true);
    ends(1, 4);
    EXPECT_NE(count_.doubt(watch_), "");
}

TEST_F(StepsCounted, EvaluationThatComesFirstIsForgotten) {
    calls(3, 40);
    ends(3, 1, StepSource::kLoop);
    probe_counts(3, 960);
    probe_counts(1, 50);
    calls(1, 20, true);
    ends(1, 2);
    probe_counts(1, 950);
    EXPECT_EQ(count_.steps(), 500);
    EXPECT_EQ(count_.doubt(watch_), "");
}

TEST_F(StepsCounted, EvaluationAtTheVeryCallsOfTheStepIsDoubted) {
    for (const bool first : {true, false}) {
        count_ = {};
        surest_ = {};
        calls(1, 40);
        if (first) ends(1, 2, StepSource::kLoop);
        ends(1, 2);
        EXPECT_EQ(count_.doubt(watch_).empty(), !first);
        if (!first) ends(1, 2, StepSource::kLoop);
        EXPECT_NE(count_.doubt(watch_).find("an evaluation"), std::string::npos);
    }
}

TEST_F(StepsCounted, CallsOfTheStepBetweenStepsAreDoubted) {
    for (const std::uint64_t between : {2, 3}) {
        StepFacts facts{.steps = 20, .pulse = {CallKind::kCopyAsync, 2}};
        facts.source = StepSource::kUpdates;
        facts.pulse.site = 1;
        facts.calls_at_site = 40 + between;
        count_ = {};
        calls(1, 40 + static_cast<int>(between));
        count_.end_window(facts, {}, false);
        EXPECT_EQ(count_.doubt(watch_).empty(), between == 2);
    }
}

TEST_F(StepsCounted, WithoutASiteThereIsNoNumber) {
    EXPECT_NE(count_.doubt(watch_), "");
    calls(0, 40);
    ends(0, 2);
    report_.pulses = 60;
    count_.take(report_);
    EXPECT_EQ(count_.steps(), 50);
    EXPECT_NE(count_.doubt(watch_), "");
}

}  // namespace
}  // namespace millrace::record
