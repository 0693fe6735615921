#include "diagnose/replay/replay.h"

#include <gtest/gtest.h>

#include <cmath>

#include "diagnose/simulated_cases.h"

namespace millrace::diagnose {
namespace {

Lane lane_of(const Timeline& timeline) {
    const auto launcher = find_launcher(timeline);
    EXPECT_TRUE(launcher);
    return read_lane(timeline, *launcher, timeline.windows.front().begin, timeline.windows.front().end);
}

/// Ways in which hosts and devices wait for each other.
std::vector<StepBody> bodies() {
    return {[](SimulatedProgram& p, int, bool) {
                train(p, {12, 400});
            },
            [](SimulatedProgram& p, int, bool) {
                train(p, {30, 5});
            },
            [](SimulatedProgram& p, int, bool) {
                p.work(3'000);
                train(p, {7, 211});
                p.item();
            },
            [](SimulatedProgram& p, int, bool) {
                p.upload(31e6, false);
                p.stream_sync();
                train(p, {5, 300});
                p.device_sync();
                for (int i = 0; i < 3; ++i) p.free_memory();
                for (int i = 0; i < 3; ++i) p.allocate();
            },
            [](SimulatedProgram& p, int, bool) {
                p.upload(60e6, true, 0, kSideStream);
                p.stream_wait(kStream, kSideStream);
                train(p, {5, 150});
                p.stream_wait(kSideStream, kStream);
            },
            [](SimulatedProgram& p, int, bool) { p.graph(3'001, 97); }};
}

TEST(Replay, OfWhatWasRecordedEndsWhenItEnded) {
    std::size_t number = 0;
    for (const StepBody& body : bodies()) {
        SCOPED_TRACE(number++);
        const Timeline timeline = simulate(body, false, 131).timeline;
        const Lane lane = lane_of(timeline);
        const Played played = play(build_model(timeline, lane));
        Time recorded = 0, replayed = 0;
        for (const Job& job : lane.jobs) recorded = std::max(recorded, job.end);
        for (const Time end : played.task_end) replayed = std::max(replayed, end);
        EXPECT_NEAR(static_cast<double>(replayed), static_cast<double>(recorded), 0.01 * static_cast<double>(recorded));
    }
}

TEST(Replay, TheQueueIsAsLongAsTheRecordingShows) {
    SimulatedProgram::Traits traits;
    traits.queue = 300;
    const Timeline timeline = simulate([](SimulatedProgram& p, int, bool) { train(p, {12, 400}); }, false, 60, traits).timeline;
    const Model model = build_model(timeline, lane_of(timeline));
    EXPECT_NEAR(static_cast<double>(model.queue_limit), 300, 5);
}

TEST(Replay, AWindowThatBeginsWithAFullQueueShowsHowLongItIs) {
    SimulatedProgram::Traits traits;
    traits.queue = 300;
    const Timeline timeline = begun_late(simulate(
                                             [](SimulatedProgram& p, int, bool) {
                                                 train(p, {12, 400});
                                             },
                                             false, 80, traits)
                                             .timeline);
    const Lane lane = lane_of(timeline);
    Model model = build_model(timeline, lane);
    EXPECT_NEAR(static_cast<double>(model.queue_limit), 300, 5);
    Time host = 0, longest_lag = 0;
    for (const Act& act : model.acts) host += act.gap + act.own;
    for (std::size_t i = 1; i < model.tasks.size(); ++i) longest_lag = std::max(longest_lag, model.tasks[i].lag);
    EXPECT_LT(host, (lane.jobs.back().end - lane.begin) / 4) << "what launches wait for is not the host's own";
    EXPECT_LT(longest_lag, 100'000) << "nor is it the way from the host to the device";
}

TEST(Replay, ACopyBesideTheKernelsDoesNotShowHowLongTheQueueIs) {
    SimulatedProgram::Traits traits;
    traits.queue = 300;
    Timeline whole = simulate(
                         [](SimulatedProgram& p, int, bool) {
                             p.upload(1e5, true, 0, kSideStream);
                             train(p, {12, 400});
                         },
                         false, 40, traits)
                         .timeline;
    // The window begins with the copy, which begins at once.
    const auto copies = [](const Call& call) { return call.kind == CallKind::kCopyAsync; };
    const auto middle = whole.calls.begin() + static_cast<std::ptrdiff_t>(whole.calls.size() / 2);
    const Time begin = std::find_if(middle, whole.calls.end(), copies)->begin;
    const Timeline timeline = begun_late(std::move(whole), begin);
    const Lane lane = lane_of(timeline);
    const Model model = build_model(timeline, lane);
    Time host = 0;
    for (const Act& act : model.acts) host += act.gap + act.own;
    EXPECT_LT(host, (lane.jobs.back().end - lane.begin) / 4) << "what launches wait for is not the host's own";
    EXPECT_NEAR(static_cast<double>(model.queue_limit), 300, 5);
}

TEST(Replay, StreamsWorkInOrderAndWaitForEachOther) {
    Model model;
    model.acts = {{.gap = 0, .own = 10}, {.gap = 0, .own = 10}, {.gap = 5, .own = 1, .tail = 2, .first_wait = 0, .waits = 1}};
    model.tasks = {{.act = 0, .lag = 4, .duration = 100}, {.act = 1, .lag = 4, .pause = 1, .duration = 50, .previous = 0}};
    model.waits = {1};
    model.queue_limit = 1024;
    Played played = play(model);
    EXPECT_EQ(played.task_begin[0], 4);
    EXPECT_EQ(played.task_begin[1], 105);
    EXPECT_EQ(played.act_end[2], 155 + 2);
    // A job of another stream comes in between.
    model.tasks[1].previous = kNoIndex;
    model.tasks[1].depends = 0;
    EXPECT_EQ(play(model).task_begin[1], 104);
    // With room for one job the second launch waits for the first job's end.
    model.tasks[1].depends = kNoIndex;
    model.acts[1].queues = true;
    model.queue_limit = 1;
    EXPECT_EQ(play(model).task_begin[1], 108);
    // A batch that is not ready holds the call up.
    model.queue_limit = 1024;
    model.acts[1].ready = 1'000;
    EXPECT_EQ(play(model).task_begin[1], 1'004);
}

TEST(Replay, IdleTimeIsCountedBeforeTheJobThatEndsIt) {
    Played played;
    played.task_begin = {0, 100, 20};
    played.task_end = {10, 120, 90};
    EXPECT_EQ(idle_before(played), (std::vector<Time>{0, 10, 10}));
}

TEST(Replay, ThreadsThatTakeTurnsAreOneLine) {
    const Timeline timeline = simulate(
                                  [](SimulatedProgram& p, int, bool) {
                                      p.foreign_upload(1e6);
                                      train(p, {5, 100});
                                  },
                                  false)
                                  .timeline;
    const auto launcher = find_launcher(timeline);
    ASSERT_TRUE(launcher);
    EXPECT_EQ(launcher->threads, (std::vector<std::uint32_t>{kMainThread, kBackwardThread}));
}

}  // namespace
}  // namespace millrace::diagnose
