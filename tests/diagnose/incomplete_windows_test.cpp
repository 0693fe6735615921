#include "diagnose/reading/incomplete_windows.h"

#include <gtest/gtest.h>

namespace millrace::diagnose {
namespace {

constexpr std::uint32_t kProcess = 7, kMain = 1, kOther = 2;

/// Two windows of 1,000 ns in each of which two threads launch `count` kernels; `missing(window, thread)`: none of them ran.
template <class Missing>
Timeline made(std::uint32_t count, Missing missing) {
    Timeline timeline;
    for (std::uint32_t window = 0; window < 2; ++window) {
        const Time begin = 10'000 * (window + 1);
        timeline.windows.push_back({begin, begin + 1'000, kProcess});
        for (std::uint32_t i = 0; i < count; ++i)
            for (const std::uint32_t thread : {kMain, kOther}) {
                Call call;
                call.begin = begin + i, call.end = begin + i + 1;
                call.process = kProcess, call.thread = thread, call.kind = CallKind::kLaunch;
                call.correlation = 1 + (window * count + i) * 2 + thread;
                timeline.calls.push_back(call);
                if (missing(window, thread)) continue;
                Work work;
                work.begin = begin + 500 + i, work.end = work.begin + 1;
                work.process = kProcess, work.correlation = call.correlation;
                timeline.work.push_back(work);
            }
    }
    return timeline;
}

TEST(IncompleteWindows, AreLeftOutWithTheirCallsAndWork) {
    Timeline timeline = made(100, [](std::uint32_t window, std::uint32_t thread) { return window == 1 && thread == kMain; });
    Call early;  // of the first window, whose work runs in the second
    early.begin = 10'999, early.end = 11'000, early.process = kProcess, early.thread = kMain, early.kind = CallKind::kLaunch;
    early.correlation = 9'999;
    timeline.calls.insert(timeline.calls.begin() + 200, early);
    leave_out_incomplete_windows(timeline);
    ASSERT_EQ(timeline.windows.size(), 1u);
    EXPECT_EQ(timeline.windows[0].begin, 10'000);
    ASSERT_EQ(timeline.left_out.size(), 1u);
    EXPECT_EQ(timeline.left_out[0].begin, 20'000);
    EXPECT_EQ(timeline.calls.size(), 201u);
    EXPECT_EQ(timeline.work.size(), 200u);
    ASSERT_EQ(timeline.remarks.size(), 1u);
    EXPECT_NE(timeline.remarks[0].find("1 of 2 windows"), std::string::npos);
    EXPECT_NE(timeline.remarks[0].find("thread 1"), std::string::npos);
}

TEST(IncompleteWindows, CompleteOnesStayAsTheyAre) {
    Timeline timeline = made(100, [](std::uint32_t, std::uint32_t) { return false; });
    leave_out_incomplete_windows(timeline);
    EXPECT_EQ(timeline.windows.size(), 2u);
    EXPECT_EQ(timeline.calls.size(), 400u);
    EXPECT_EQ(timeline.work.size(), 400u);
    EXPECT_TRUE(timeline.remarks.empty());
}

TEST(IncompleteWindows, WhereAllAreSoTheyStayAndItIsSaid) {
    Timeline timeline = made(100, [](std::uint32_t, std::uint32_t thread) { return thread == kMain; });
    leave_out_incomplete_windows(timeline);
    EXPECT_EQ(timeline.windows.size(), 2u);
    EXPECT_EQ(timeline.calls.size(), 400u);
    ASSERT_EQ(timeline.remarks.size(), 1u);
    EXPECT_NE(timeline.remarks[0].find("did more than is shown"), std::string::npos);
}

TEST(IncompleteWindows, AFewLaunchesAndThoseIntoGraphsSayNothing) {
    const auto second = [](std::uint32_t window, std::uint32_t thread) { return window == 1 && thread == kMain; };
    Timeline few = made(63, second);
    leave_out_incomplete_windows(few);
    EXPECT_EQ(few.windows.size(), 2u);
    Timeline captured = made(100, second);
    Call capture;
    capture.begin = 20'000, capture.end = 20'001, capture.process = kProcess, capture.thread = kMain;
    capture.kind = CallKind::kCapture;
    captured.calls.insert(captured.calls.begin() + 200, capture);
    leave_out_incomplete_windows(captured);
    EXPECT_EQ(captured.windows.size(), 2u);
    Timeline failed = made(100, second);
    for (Call& call : failed.calls) call.failed = call.begin >= 20'000 && call.thread == kMain;
    leave_out_incomplete_windows(failed);
    EXPECT_EQ(failed.windows.size(), 2u);
}

TEST(IncompleteWindows, ThousandsThatOverlapAreLeftOut) {
    constexpr std::uint32_t kWindows = 10'000, kCalls = 64;
    Timeline timeline;
    for (std::uint32_t i = 0; i < kWindows; ++i) {  // each ends where the last one does, as only a made-up file says
        timeline.windows.push_back({i * 100, kWindows * 100, kProcess});
        for (std::uint32_t j = 0; j < kCalls; ++j) {
            Call call;
            call.begin = call.end = i * 100 + j;
            call.process = kProcess, call.thread = kMain, call.kind = CallKind::kLaunch, call.correlation = i * kCalls + j + 1;
            timeline.calls.push_back(call);
            Work work;
            work.begin = work.end = call.begin, work.process = kProcess, work.correlation = call.correlation;
            if (i % 2 == 0) timeline.work.push_back(work);
        }
    }
    leave_out_incomplete_windows(timeline);  // looked up one by one for each record it took minutes
    EXPECT_EQ(timeline.windows.size(), kWindows / 2);
    EXPECT_EQ(timeline.calls.size(), std::size_t{kWindows} / 2 * kCalls);
}

}  // namespace
}  // namespace millrace::diagnose
