#include <tuple>

#include "diagnose/simulated_cases.h"
#include "record/trace_file.h"
#include "temporary_folder.h"

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

/// A step of a millisecond, launched a kernel at a time, with 0.15 ms of work at a line that launches nothing.
StepBody brief_work(double first, double second = 0) {
    return [=](SimulatedProgram& p, int, bool cured) {
        p.at({user_line(11)});
        if (!cured) p.work(first);
        p.at({user_line(12)});
        if (!cured) p.work(second);
        for (int line = 13; line < 33; ++line) {
            p.at(line);
            p.launch("kernel" + std::to_string(line), 2);
        }
        p.at(33);
        p.item();
    };
}

TEST(PythonWork, OfAMillisecondIsToldWhereItsLineLaunchesNothing) {
    SimulatedProgram::Traits traits;
    traits.operator_us = 23;
    const auto step_of = [&](bool cured) { return simulate(brief_work(150), cured, 1'500, traits); };
    const Simulation sick = step_of(false), well = step_of(true);
    const Diagnosis diagnosis = diagnose(sick.timeline);
    SCOPED_TRACE(told(diagnosis));
    ASSERT_LT(sick.step_ms, 1.5);
    const Finding* finding = finding_of(diagnosis, Kind::kPythonWork);
    ASSERT_TRUE(finding && finding->where);
    EXPECT_EQ(finding->where->line, 11);
    EXPECT_NEAR(finding->lost_ms_per_step, sick.step_ms - well.step_ms, 0.25 * (sick.step_ms - well.step_ms));
    const Diagnosis healthy = diagnose(well.timeline);
    EXPECT_EQ(finding_of(healthy, Kind::kPythonWork), nullptr) << told(healthy);
}

TEST(PythonWork, NamesTheLinesOfItsFunctionThatTakeMost) {
    SimulatedProgram::Traits traits;
    traits.operator_us = 23;
    const Diagnosis diagnosis = diagnose(simulate(brief_work(100, 300), false, 1'500, traits).timeline);
    SCOPED_TRACE(told(diagnosis));
    const Finding* finding = finding_of(diagnosis, Kind::kPythonWork);
    ASSERT_TRUE(finding && finding->where);
    EXPECT_EQ(finding->where->line, 12);
    ASSERT_EQ(finding->lines.size(), 2u);
    EXPECT_EQ(finding->lines[0].frame.line, 12);
    EXPECT_NEAR(finding->lines[0].ms, 0.3, 0.08);
    EXPECT_EQ(finding->lines[1].frame.line, 11);
    EXPECT_NEAR(finding->lines[1].ms, 0.1, 0.05);
    EXPECT_FALSE(finding->lines[0].launches);
    EXPECT_NE(finding->evidence.find("at line 12"), std::string::npos) << finding->evidence;
}

TEST(LaunchBound, IsToldOfWithoutSamplesAsWell) {
    SimulatedProgram::Traits traits;
    traits.operator_us = 23;
    Timeline timeline = simulate(brief_work(0), false, 300, traits).timeline;
    const auto cost = [](const Timeline& of) {
        const Diagnosis diagnosis = diagnose(of);
        const Finding* finding = finding_of(diagnosis, Kind::kLaunchBound);
        return finding ? finding->lost_ms_per_step : 0.0;
    };
    const double sampled = cost(timeline);
    EXPECT_GT(sampled, 0.3);
    timeline.samples.clear();
    EXPECT_NEAR(cost(timeline), sampled, 0.1 * sampled);
}

/// A step in which garbage is collected, by a line of the user's or under a library's.
StepBody collecting(const std::vector<Frame>& library, double milliseconds = 20) {
    return [=](SimulatedProgram& p, int, bool cured) {
        Stack stack{{std::string(record::kInterpreterFile), 0, std::string(record::kCollectingFunction), true}};
        stack.insert(stack.end(), library.begin(), library.end());
        stack.push_back(user_line(14, "after_step"));
        stack.push_back(user_line(30));
        p.at(stack);
        if (!cured) p.work(milliseconds * 1000);
        p.at({user_line(15, "after_step"), user_line(30)});
        p.work(2'000);
        p.at(31);
        p.upload(1e6, true);
        train(p, {8, 400});
    };
}

TEST(PythonWork, TheGarbageCollectorIsNamed) {
    const Frame torch{"/usr/lib/python3/dist-packages/torch/optim/adam.py", 120, "step", false};
    const Frame loader = torch_line("utils/data/dataloader.py", "__next__");
    for (const std::vector<Frame>& library : {std::vector<Frame>{}, std::vector<Frame>{torch}, std::vector<Frame>{loader}}) {
        expect_case(collecting(library), Kind::kPythonWork, 14);
        const Diagnosis diagnosis = diagnose(simulate(collecting(library), false).timeline);
        const Finding* finding = finding_of(diagnosis, Kind::kPythonWork);
        ASSERT_NE(finding, nullptr) << told(diagnosis);
        EXPECT_NE(finding->what.find("garbage collector"), std::string::npos) << finding->what;
        EXPECT_NE(finding->fix.find("gc.freeze()"), std::string::npos) << finding->fix;
        EXPECT_NE(finding->evidence.find("ms per step in the collector"), std::string::npos) << finding->evidence;
        EXPECT_GT(diagnosis.breakdown_ms[static_cast<std::size_t>(Owner::kGarbageCollection)], 0.8 * finding->lost_ms_per_step);
        EXPECT_EQ(diagnosis.breakdown_ms[static_cast<std::size_t>(Owner::kLoaderWait)], 0);
    }
    const Diagnosis little = diagnose(simulate(collecting({}, 1), false).timeline);
    for (const Finding& finding : little.findings) EXPECT_EQ(finding.what.find("collector"), std::string::npos) << told(little);
}

TEST(PythonWork, ReadingAFileIsLoading) {
    const Diagnosis diagnosis = diagnose(simulate(asleep("pread64"), false).timeline);
    EXPECT_NE(finding_of(diagnosis, Kind::kLoaderWait), nullptr) << told(diagnosis);
    EXPECT_EQ(finding_of(diagnosis, Kind::kPythonWork), nullptr) << told(diagnosis);
}

/// A step that writes what it keeps, after some work in `prepares`; while the system copies, the thread runs.
StepBody keeping(const Stack& prepares, double prepares_us, double copies_us, double waits_us) {
    return [=](SimulatedProgram& p, int, bool cured) {
        p.at(prepares);
        if (prepares_us > 0) p.work(prepares_us);
        p.at({user_line(14, "note"), user_line(30)});
        if (!cured) p.work(copies_us);
        if (!cured) p.work(waits_us, 'D', "pwrite64");
        p.at(31);
        p.upload(1e6, true);
        train(p, {8, 400});
    };
}

TEST(FileOutput, ACallThatCopiesBeforeItWaitsForTheDiskIsWriting) {
    const StepBody body = keeping({user_line(14, "note"), user_line(30)}, 0, 11'000, 9'000);
    expect_case(body, Kind::kFileOutput, 14);
    const Diagnosis diagnosis = diagnose(simulate(body, false).timeline);
    EXPECT_EQ(finding_of(diagnosis, Kind::kPythonWork), nullptr) << told(diagnosis);
}

TEST(FileOutput, ALineThatWritesIsKnownByItsSource) {
    // Copies into the system's memory: the thread is never seen asleep in a call that writes.
    const test::TemporaryFolder folder;
    const std::string file = folder / "keep.py";
    ASSERT_TRUE(io::write_atomically(file, std::string_view("def keep(state):\n"
                                                            "    with open('state', 'wb') as out:\n"
                                                            "        out.write(bytes(state))\n"
                                                            "        rows = sorted(state)\n"))
                    .ok());
    const StepBody body = [&](SimulatedProgram& p, int, bool cured) {
        const auto spend = [&](int line, double us, const std::string& call = "") {
            p.at({Frame{file, line, "keep", false}, user_line(30)});
            if (!cured) p.work(us, call.empty() ? 'R' : 'D', call);
        };
        spend(2, 4'000, "openat");
        spend(3, 9'000);
        spend(4, 6'000);
        p.at(31);
        train(p, {8, 100});
    };
    const Diagnosis diagnosis = diagnose(simulate(body, false).timeline);
    SCOPED_TRACE(told(diagnosis));
    const Finding *writing = finding_of(diagnosis, Kind::kFileOutput), *work = finding_of(diagnosis, Kind::kPythonWork);
    ASSERT_TRUE(writing && work);
    EXPECT_EQ(writing->where->line, 3);
    ASSERT_EQ(writing->lines.size(), 2u);
    EXPECT_EQ(writing->lines[1].frame.line, 2);
    EXPECT_NEAR(writing->lines[0].ms + writing->lines[1].ms, 13, 2.5);
    EXPECT_EQ(work->where->line, 4);
}

TEST(FileOutput, AFunctionThatPreparesWhatIsWrittenComputes) {
    const Stack prepares{user_line(70, "shrink"), user_line(14, "note"), user_line(30)};
    const Diagnosis diagnosis = diagnose(simulate(keeping(prepares, 30'000, 7'000, 8'000), false).timeline);
    const Finding *work = finding_of(diagnosis, Kind::kPythonWork), *writing = finding_of(diagnosis, Kind::kFileOutput);
    ASSERT_TRUE(work && writing) << told(diagnosis);
    EXPECT_EQ(work->where->line, 70);
    EXPECT_NEAR(work->lost_ms_per_step, 30, 6);
    EXPECT_EQ(writing->where->line, 14);
    EXPECT_NEAR(writing->lost_ms_per_step, 15 - 10.6, 1);  // the GPU works beside the rest
}

TEST(FileOutput, ALineThatWritesLittleOfWhatItTakesComputes) {
    const Diagnosis diagnosis =
        diagnose(simulate(keeping({user_line(14, "note"), user_line(30)}, 0, 40'000, 6'000), false).timeline);
    ASSERT_FALSE(diagnosis.findings.empty());
    EXPECT_EQ(name_of(diagnosis.findings.front().kind), "python-work") << told(diagnosis);
    EXPECT_NEAR(diagnosis.breakdown_ms[static_cast<std::size_t>(Owner::kFileOutput)], 6, 1) << told(diagnosis);
}

TEST(FileOutput, ALineThatHasALibraryTrainIsNotAboutWhatItLogs) {
    const auto library = [](const std::string& file, const std::string& function) {
        return Frame{"/usr/lib/python3/dist-packages/" + file, 100, function, false};
    };
    const Stack fit{library("transformers/trainer.py", "train"), user_line(18)};
    const StepBody body = [&](SimulatedProgram& p, int, bool cured) {
        p.at({library("tqdm/std.py", "display"), fit.front(), fit.back()});
        p.work(700);
        p.at(fit);
        p.work(4'000);
        for (int i = 0; i < 10; ++i) p.launch("gemm_bf16", 400);
        p.at({torch_line("optim/adamw.py", "step"), fit.front(), fit.back()});
        p.launch("multi_tensor_apply_kernel", 200);
        p.at(fit);
        if (!cured) p.item();
    };
    expect_case(body, Kind::kHostSync, 18);
}

/// Who is asleep in JAX's array until the step is done, since `float(loss)` asks for it.
Stack jax(const std::string& file, const std::string& function, int line, const std::string& root = "/home/u/torch-env") {
    return {{root + "/lib/python3.12/site-packages/jax/_src/" + file, 100, function, false}, user_line(line, "train")};
}

TEST(HostSync, AValueThatJaxIsAskedForInEachStepIsARead) {
    const StepBody body = [](SimulatedProgram& p, int, bool cured) {
        p.at(jax("pjit.py", "cache_miss", 20));
        for (int i = 0; i < 10; ++i) p.launch(fmt::format("loop_fusion_{}", i), 400);
        p.at(jax("array.py", "_value", 31));
        if (!cured) p.work(3'950, 'S', "futex");
        p.at({user_line(33, "augment"), user_line(34, "train")});
        p.work(2'500);
    };
    expect_case(body, Kind::kHostSync, 31);
    const Diagnosis diagnosis = diagnose(simulate(body, false).timeline);
    EXPECT_NE(diagnosis.findings.front().fix.find("jax.device_get"), std::string::npos) << diagnosis.findings.front().fix;
    EXPECT_GT(diagnosis.breakdown_ms[static_cast<std::size_t>(Owner::kHostSync)], 1) << told(diagnosis);
    for (const Finding& finding : diagnosis.findings) EXPECT_EQ(finding.fix.find("torch"), std::string::npos) << finding.fix;
}

TEST(LaunchBound, TheLinesThatLaunchMostAreNamedInTheInnermostFunctionOfMostLaunches) {
    // Forward, backward and update are lines of one function, which a loop calls that warms up, and another one.
    const StepBody body = [](SimulatedProgram& p, int step, bool) {
        const Frame loop = user_line(step < 3 ? 43 : 46);
        p.at({torch_line("nn/modules/linear.py", "forward"), user_line(31, "step_once"), loop});
        for (int i = 0; i < 25; ++i) p.launch(fmt::format("gemm{}", i), 2);
        p.begin_backward({user_line(33, "step_once"), loop});
        for (int i = 0; i < 70; ++i) p.launch(fmt::format("dgemm{}", i), 2);
        p.end_backward();
        p.at({torch_line("optim/adamw.py", "step"), user_line(34, "step_once"), loop});
        for (int i = 0; i < 3; ++i) p.launch("multi_tensor_apply_kernel", 2);
        p.at({torch_line("_tensor.py", "detach"), user_line(36, "step_once"), loop});
        p.launch("copy", 2);
    };
    const Diagnosis diagnosis = diagnose(simulate(body, false).timeline);
    const Finding* found = finding_of(diagnosis, Kind::kLaunchBound);
    ASSERT_TRUE(found && found->where) << told(diagnosis);
    EXPECT_EQ(found->where->line, 33);
    ASSERT_EQ(found->lines.size(), 3u) << "the three heaviest";
    const std::pair<int, double> lines[] = {{33, 70}, {31, 25}, {34, 3}};
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(found->lines[i].frame.line, lines[i].first);
        EXPECT_NEAR(found->lines[i].launches.value(), lines[i].second, 0.6);
        EXPECT_NEAR(found->lines[i].ms, lines[i].second * 0.014, 0.15 * lines[i].second * 0.014 + 0.01);
    }
    EXPECT_NE(found->evidence.find("at line 33"), std::string::npos) << found->evidence;
    EXPECT_NE(found->evidence.find("of step_once."), std::string::npos) << found->evidence;
    ASSERT_GE(found->stack.size(), 2u);
    EXPECT_EQ(found->stack[0].line, 33);
}

TEST(LaunchBound, ALineOfTheLoopThatCallsWhatLaunchesIsThePlaceAndTheLinesAreInside) {
    const auto found = [](bool beside) {
        const StepBody body = [=](SimulatedProgram& p, int, bool) {
            p.at({user_line(11, "step_once"), user_line(29)});
            if (beside) p.launch("randint", 2);
            for (const auto& [line, launches] : {std::pair{24, 40}, {26, 60}}) {
                p.at({user_line(line, "train_step"), user_line(12, "step_once"), user_line(29)});
                for (int i = 0; i < launches; ++i) p.launch(fmt::format("kernel{}_{}", line, i), 2);
            }
        };
        const Diagnosis diagnosis = diagnose(simulate(body, false).timeline);
        const Finding* finding = finding_of(diagnosis, Kind::kLaunchBound);
        EXPECT_TRUE(finding && finding->where && finding->lines.size() == 2) << told(diagnosis);
        return finding ? *finding : Finding{};
    };
    // `step_once` launches itself, so it is in the loop.
    EXPECT_EQ(found(true).where->line, 12);
    EXPECT_EQ(found(true).lines.front().frame.line, 26);
    // Else it may be what the last line of the file calls once.
    EXPECT_EQ(found(false).where->line, 26);
}

TEST(LaunchBound, AStepThatWaitsIsNotCapturedSoWhatReturnsAloneComesFirst) {
    // Small uploads that block between launches, in a program whose pace the host sets.
    const StepBody body = [](SimulatedProgram& p, int, bool cured) {
        for (int i = 0; i < 64; ++i) {
            p.at(35);
            p.upload(4096, false);
            if (!cured) p.stream_sync();
            p.at(36);
            p.launch("embed" + std::to_string(i), 3);
        }
        train(p, {2, 3});
    };
    expect_case(body, Kind::kHostSync, 35);
}

TEST(LaunchBound, LaunchesOfEvaluationsAreNoneOfTheSteps) {
    const StepBody body = [](SimulatedProgram& p, int step, bool) {
        p.at({user_line(20, "train_step"), user_line(50)});
        for (int i = 0; i < 60; ++i) p.launch(fmt::format("gemm{}", i), 2);
        p.launch("multi_tensor_apply_kernel", 2);
        p.at({user_line(30, "evaluate"), user_line(52)});
        for (int i = 0; step % 5 == 4 && i < 2'001; ++i) p.launch("judge" + std::to_string(i % 3), 2);
    };
    const Diagnosis diagnosis = diagnose(simulate(body, false, 61).timeline);
    const Finding* found = finding_of(diagnosis, Kind::kLaunchBound);
    ASSERT_TRUE(found && found->where) << told(diagnosis);
    EXPECT_EQ(found->where->line, 20);
    EXPECT_TRUE(found->evidence.starts_with("61 launches per step")) << found->evidence;
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
