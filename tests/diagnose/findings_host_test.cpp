#include <tuple>

#include "diagnose/simulated_cases.h"

namespace millrace::diagnose {
namespace {

/// A step that spends some time asleep before its launches.
StepBody asleep(const std::string& wait, const std::vector<Frame>& library = {}) {
    return [=](SimulatedProgram& p, int, bool cured) {
        Stack stack = library;
        stack.push_back(user_line(14, "hold_back"));
        stack.push_back(user_line(30));
        p.at(stack);
        if (!cured) p.work(20'000, 'S', wait);
        p.at(31);
        p.upload(1e6, true);
        train(p, {8, 400});
    };
}

TEST(PythonWork, AThreadThatSleepsIsNotSaidToCompute) {
    expect_case(asleep("clock_nanosleep"), Kind::kPythonWork, 14);
    const Diagnosis diagnosis = diagnose(simulate(asleep("clock_nanosleep"), false).timeline);
    const Finding* finding = finding_of(diagnosis, Kind::kPythonWork);
    ASSERT_NE(finding, nullptr) << told(diagnosis);
    EXPECT_EQ(finding->what, "The training thread sleeps because it asks to while the GPU has nothing to do.");
    EXPECT_NE(finding->evidence.find("100 % of it asleep in the system call clock_nanosleep"), std::string::npos)
        << finding->evidence;
    EXPECT_NE(finding->fix.find("sleep out of the loop"), std::string::npos) << finding->fix;
}

TEST(PythonWork, WhatIsWaitedForIsSaid) {
    const Frame lock{"/usr/lib/python3.12/threading.py", 355, "wait", false};
    const Frame socket{"/usr/lib/python3.12/socket.py", 720, "readinto", false};
    const Frame child{"/usr/lib/python3.12/subprocess.py", 2053, "_try_wait", false};
    const std::tuple<const char*, Frame, const char*> cases[] = {{"futex", lock, "another thread or a lock"},
                                                                 {"recvfrom", socket, "a socket"},
                                                                 {"wait4", child, "a child process"},
                                                                 {"other", socket, "something that is not the GPU"},
                                                                 {"", socket, "something that is not the GPU"}};
    for (const auto& [wait, frame, thing] : cases) {
        const Diagnosis diagnosis = diagnose(simulate(asleep(wait, {frame}), false).timeline);
        const Finding* finding = finding_of(diagnosis, Kind::kPythonWork);
        ASSERT_NE(finding, nullptr) << wait << told(diagnosis);
        EXPECT_EQ(finding->where->line, 14);
        EXPECT_NE(finding->what.find(thing), std::string::npos) << wait << ": " << finding->what;
        EXPECT_EQ(finding->what.find("computes"), std::string::npos);
    }
}

TEST(PythonWork, CodeThatMostlyComputesComputes) {
    const Diagnosis diagnosis = diagnose(simulate(
                                             [](SimulatedProgram& p, int, bool) {
                                                 p.at({user_line(14, "augment"), user_line(30)});
                                                 p.work(20'000);
                                                 p.work(8'000, 'S', "futex");
                                                 p.at(31);
                                                 train(p, {8, 400});
                                             },
                                             false)
                                             .timeline);
    const Finding* finding = finding_of(diagnosis, Kind::kPythonWork);
    ASSERT_NE(finding, nullptr) << told(diagnosis);
    EXPECT_NE(finding->what.find("computes on the CPU"), std::string::npos) << finding->what;
}

TEST(PythonWork, ReadingAFileIsLoading) {
    const Diagnosis diagnosis = diagnose(simulate(asleep("pread64"), false).timeline);
    EXPECT_NE(finding_of(diagnosis, Kind::kLoaderWait), nullptr) << told(diagnosis);
    EXPECT_EQ(finding_of(diagnosis, Kind::kPythonWork), nullptr) << told(diagnosis);
}

TEST(LaunchBound, LaunchesUnderAFunctionThatCallsItselfCountOnce) {
    const StepBody body = [](SimulatedProgram& p, int, bool) {
        p.at({user_line(20, "flat"), user_line(50)});
        for (int i = 0; i < 60; ++i) p.launch(fmt::format("gemm{}", i), 2);
        // Four tenths of all launches, under the same line three times each.
        p.at({user_line(70, "climb"), user_line(70, "climb"), user_line(70, "climb"), user_line(51)});
        for (int i = 0; i < 40; ++i) p.launch(fmt::format("leaf{}", i), 2);
        p.at({user_line(50)});
        p.launch("multi_tensor_apply_kernel", 2);
    };
    const Diagnosis diagnosis = diagnose(simulate(body, false).timeline);
    const Finding* found = finding_of(diagnosis, Kind::kLaunchBound);
    ASSERT_TRUE(found && found->where) << told(diagnosis);
    EXPECT_NE(found->where->line, 70);
}

}  // namespace
}  // namespace millrace::diagnose
