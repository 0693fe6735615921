#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <set>
#include <thread>

#include "cli/record_folder.h"
#include "places.h"

namespace millrace::cli {
namespace {

TEST_F(Record, OutputAndExitStatusAreTheCommandsOwn) {
    const Said said = shell("printf 'to out\\n\\001x'; echo to err >&2; exit 7", {"--quiet"});
    EXPECT_EQ(said.status, 7);
    EXPECT_EQ(said.out, "to out\n\001x");
    EXPECT_EQ(said.err, "to err\n");
    const auto run = run_contents();
    EXPECT_EQ(run.manifest.exit_status, 7);
    EXPECT_EQ(run.manifest.status, record::RunStatus::kFailed);
    EXPECT_EQ(run.manifest.command.front(), "sh");
}

TEST_F(Record, RepeatedRunsAreOneSideOfACompare) {
    const std::string count = "'" + path("count") + "'";
    const std::string fails_third = "echo x >> " + count + "; test $(wc -l < " + count + ") -lt 3 || exit 5";
    const Said said = shell(fails_third, {"--repeat", "4"});
    EXPECT_EQ(said.status, 5);
    EXPECT_NE(said.err.find("run/3"), std::string::npos) << said.err;
    for (const char* number : {"1", "2", "3"}) EXPECT_TRUE(std::filesystem::exists(folder_ / "run" / number / "manifest.json"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run/4")) << "the third one failed";
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run/manifest.json"));
    EXPECT_EQ(shell("true", {"--repeat", "2"}).status, 2) << "run/1 is taken";
    // A run that is no folder of runs holds none.
    EXPECT_EQ(run(folder_.string(), {"record", "-o", path("one"), "--", "true"}, plain()).status, 0);
    const Said taken = run(folder_.string(), {"record", "--repeat", "2", "-o", path("one"), "--", "true"}, plain());
    EXPECT_EQ(taken.status, 2);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "one/1"));
}

TEST_F(Record, HighExitStatusIsNoSignal) {
    EXPECT_EQ(shell("exit 200", {"--quiet"}).status, 200);
    EXPECT_EQ(run_contents().manifest.status, record::RunStatus::kFailed);
    EXPECT_EQ(run_contents().manifest.exit_status, 200);
    std::filesystem::remove_all(folder_ / "run");
    EXPECT_EQ(shell("kill -TERM $$", {"--quiet"}).status, 128 + SIGTERM);
    EXPECT_EQ(run_contents().manifest.status, record::RunStatus::kInterrupted);
}

TEST_F(Record, CommandDoesNotWaitForTheSensorsOfTheMachine) {
    const std::filesystem::path beside = testing::program_folder() / std::filesystem::path(MILLRACE_MOCK_NVML).filename();
    const std::string library = std::filesystem::exists(beside) ? beside.string() : MILLRACE_MOCK_NVML;
    const Said said =
        record({"cat", path("run/manifest.json")}, {"--quiet"}, plain({"MILLRACE_NVML=" + library, "MOCK_NVML_INIT_MS=1000"}));
    EXPECT_EQ(said.status, 0);
    EXPECT_NE(said.out.find("\"device\": \"\""), std::string::npos) << said.out;
    EXPECT_EQ(run_contents().manifest.device.rfind("cuda:0 ", 0), 0u) << run_contents().manifest.device;
    EXPECT_EQ(run_contents().manifest.versions.count("driver"), 1u);
}

TEST_F(Record, SummaryFollowsOnStandardErrorAlone) {
    const Said said = shell("echo words; echo more >&2");
    EXPECT_EQ(said.status, 0);
    EXPECT_EQ(said.out, "words\n");
    EXPECT_EQ(said.err.rfind("more\nmillrace: recorded ", 0), 0u) << said.err;
    EXPECT_NE(said.err.find("no process of the command used CUDA"), std::string::npos) << said.err;
    EXPECT_NE(said.err.find("millrace watch -- "), std::string::npos) << said.err;
    EXPECT_EQ(said.err.find("millrace diagnose"), std::string::npos) << said.err;
    EXPECT_EQ(run(folder_.string(), {"diagnose", path("run")}, plain()).status, 4);
    EXPECT_EQ(run_contents().manifest.status, record::RunStatus::kFinished);
}

TEST_F(Record, SignalsThatEndTheCommandAreHandedThrough) {
    for (const int number : {SIGKILL, SIGABRT, SIGSEGV, SIGTERM}) {
        std::filesystem::remove_all(folder_ / "run");
        const Said said = shell("ulimit -c 0; kill -" + std::to_string(number) + " $$", {"--quiet"});
        EXPECT_EQ(said.status, 128 + number);
        EXPECT_EQ(run_contents().manifest.status, record::RunStatus::kInterrupted);
    }
}

TEST_F(Record, SignalsSentToUsReachTheCommand) {
    Child child(folder_.string(),
                words({"sh", "-c", "trap 'exit 33' TERM; echo up > " + path("up") + "; while :; do sleep 0.01; done"}), plain());
    for (int wait = 0; wait < 3000 && !std::filesystem::exists(folder_ / "up"); ++wait)
        std::this_thread::sleep_for(std::chrono::milliseconds{5});
    child.send(SIGTERM);
    EXPECT_EQ(child.wait().status, 33);
}

TEST_F(Record, CommandThatCannotBeStartedLeavesNothing) {
    Said said = record({"no-such-command-anywhere"});
    EXPECT_EQ(said.status, 127);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
    said = record({folder_.string()});
    EXPECT_EQ(said.status, 126);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

TEST_F(Record, BadArgumentsAreRefusedBeforeAnythingRuns) {
    const Words touch{"touch", path("ran")};
    EXPECT_EQ(run(folder_.string(), {"record"}, plain()).status, 2);
    EXPECT_EQ(run(folder_.string(), {"record", "--"}, plain()).status, 2);
    EXPECT_EQ(record(touch, {"--steps-per-window", "3"}).status, 2);
    EXPECT_EQ(record(touch, {"--every", "0"}).status, 2);
    EXPECT_EQ(record(touch, {"--every", "500", "--finalize-cupti"}).status, 2);
    EXPECT_EQ(record(touch, {"--probe", path("missing.so")}).status, 2);
    const Said said = record(touch, {"--quiet", "--probe", "/etc/passwd"});
    EXPECT_EQ(said.status, 2);
    EXPECT_NE(said.err.find("/etc/passwd: is not a shared library"), std::string::npos) << said.err;
    std::filesystem::create_directory(folder_ / "run");
    std::ofstream(path("run/precious")) << "mine";
    EXPECT_EQ(record(touch).status, 2);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "ran"));
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ / "run"), {}), 1);
}

TEST_F(Record, WithoutItsProbeTheCommandIsNotBegun) {
    std::filesystem::create_directory(folder_ / "alone");
    std::filesystem::copy_file(testing::program_folder() / "millrace", folder_ / "alone/millrace");
    ChildOptions alone = plain();
    alone.program = path("alone/millrace");
    const Said said = record({"touch", path("begun")}, {"--quiet"}, alone);
    EXPECT_EQ(said.status, 3);
    EXPECT_NE(said.err.find("libmillrace-probe.so"), std::string::npos) << said.err;
    EXPECT_NE(said.err.find("--probe FILE"), std::string::npos) << said.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "begun"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

TEST_F(Record, AnotherInjectionIsLeftAlone) {
    const Said said = record({"sh", "-c", "echo $CUDA_INJECTION64_PATH-$MILLRACE_PROBE_DIR"}, {},
                             plain({"CUDA_INJECTION64_PATH=/opt/other.so", "MILLRACE_PROBE_DIR="}));
    EXPECT_EQ(said.status, 0);
    EXPECT_EQ(said.out, "/opt/other.so-\n");
    EXPECT_NE(said.err.find("/opt/other.so"), std::string::npos) << said.err;
    contents();
    ASSERT_EQ(reader_->notes().size(), 1u);
}

TEST_F(Record, RangesOfTheProgramComeUnlessAnotherLibraryTakesThem) {
    const std::vector<std::string> show{"sh", "-c", "echo $NVTX_INJECTION64_PATH"};
    const Said said = record(show, {}, plain({"NVTX_INJECTION64_PATH=/opt/ranges.so"}));
    EXPECT_EQ(said.out, "/opt/ranges.so\n");
}

TEST_F(Record, TrainingScriptIsRecordedInWindows) {
    const Said said = record(script(800, "open('" + path("where") + "', 'w').write(os.environ['MILLRACE_PROBE_DIR'])"));
    ASSERT_EQ(said.status, 0) << said.err;
    EXPECT_EQ(said.out, "trained\n");
    const Seen seen = contents();
    EXPECT_GE(count("window_begun"), 3u);
    EXPECT_EQ(count("window_begun"), count("window_ended"));
    EXPECT_EQ(count("process_probed"), 1u);
    EXPECT_GE(seen.of(record::RecordKind::kWork), 100u * 2);
    EXPECT_EQ(seen.of(record::RecordKind::kPulse), 0u);
    ASSERT_FALSE(seen.blocks.empty());
    double steps = 0, time = 0;
    for (const record::TraceBlock& block : seen.blocks) {
        steps += block.steps;
        time += static_cast<double>(block.end - block.begin);
    }
    EXPECT_GT(time / steps, 4e6);
    const auto python = std::ranges::find_if(seen.records, [&](const Seen::One& one) {
        const auto frames = reader_->site(one.origin, one.record.site);
        return std::ranges::any_of(frames, [](const record::TraceFrame& frame) { return frame.function == "read_loss"; });
    });
    EXPECT_NE(python, seen.records.end()) << "calls that block have their place in the script";
    const auto sample = std::ranges::find_if(seen.samples, [&](const record::TraceSample& each) {
        const auto& stack = reader_->stack(each.stack);
        return std::ranges::any_of(stack, [](const record::TraceFrame& frame) { return frame.function == "train_loop"; });
    });
    EXPECT_NE(sample, seen.samples.end());
    const auto process = std::ranges::find_if(reader_->processes(), &record::TraceProcess::has_gpu);
    ASSERT_NE(process, reader_->processes().end());
    EXPECT_NE(process->command.find("train.py"), std::string::npos);
    EXPECT_GT(process->ended, process->appeared);
    EXPECT_GE(reader_->clocks().size(), 2u);
    EXPECT_NE(said.err.find("steps, "), std::string::npos) << said.err;
    EXPECT_NE(said.err.find("recording cost"), std::string::npos) << said.err;
    EXPECT_NE(said.err.find("millrace diagnose " + path("run")), std::string::npos) << said.err;
    std::string shared;
    ASSERT_TRUE(std::getline(std::ifstream(path("where")), shared));
    EXPECT_FALSE(std::filesystem::exists(shared)) << "nothing is left in memory";
    EXPECT_LE(run(folder_.string(), {"diagnose", path("run"), "--json"}, plain()).status, 1);
}

TEST_F(Record, CuptiStaysUnlessItsEndIsAskedFor) {
    const Words command = script(500, "print(cupti().mock_cupti_finalised())", "framework_step(400)");
    const Said said =
        record(command, {}, plain({"MOCK_FRAMEWORK=" + (testing::program_folder() / "libmock_framework.so").string()}));
    ASSERT_EQ(said.status, 0) << said.err;
    EXPECT_EQ(said.out, "trained\n0\n");
    EXPECT_EQ(count("cupti_left"), 0u);
    EXPECT_NE(said.err.find("(--finalize-cupti ends that)"), std::string::npos) << said.err;
}

TEST_F(Record, CuptiIsFinalisedWhereThatIsAskedFor) {
    // It goes after the third window, and windows come at random times.
    const std::string more =
        "for number in range(20_000):\n"
        "    if cupti().mock_cupti_finalised(): break\n"
        "    framework_step(400)\n"
        "    time.sleep(0.004)\n"
        "heard = cupti().mock_cupti_callbacks()\n"
        "for number in range(60): framework_step(400)\n"
        "print(cupti().mock_cupti_finalised(), (cupti().mock_cupti_callbacks() - heard) // 1000)";
    const Said said = record(script(500, more, "framework_step(400)"), {"--finalize-cupti"},
                             plain({"MOCK_FRAMEWORK=" + (testing::program_folder() / "libmock_framework.so").string()}));
    ASSERT_EQ(said.status, 0) << said.err;
    EXPECT_EQ(said.out, "trained\n1 0\n") << "it went once, and the last 24,060 launches were not told";
    const Seen seen = contents();
    EXPECT_EQ(count("window_begun"), 3u);
    EXPECT_EQ(count("window_ended"), 3u);
    EXPECT_EQ(count("cupti_left"), 1u);
    ASSERT_GE(seen.blocks.size(), 2u);
    double steps = 0, time = 0;
    for (const record::TraceBlock& block : seen.blocks) {
        steps += block.steps;
        time += static_cast<double>(block.end - block.begin);
        EXPECT_EQ(block.call, record::CallKind::kSetAsync);
        EXPECT_EQ(block.calls_per_step, 0u) << "of one import alone: nothing else is among them";
    }
    EXPECT_GT(time / steps, 3e6) << "pulses are steps, of 4 ms and more but for the last 60";
    EXPECT_GT(steps, 200);
    EXPECT_LE(run(folder_.string(), {"diagnose", path("run"), "--json"}, plain()).status, 1);
}

TEST_F(Record, SamplesTellWhenGarbageIsCollected) {
    const Words command = script(150, "", "step(number), [__import__('gc').collect() for _ in range(5)]");
    ASSERT_EQ(record(command).status, 0);
    const Seen seen = contents();
    const auto collecting = std::ranges::find_if(seen.samples, [&](const record::TraceSample& each) {
        const auto& stack = reader_->stack(each.stack);
        return stack.size() > 1 && stack.front().function == record::kCollectingFunction;
    });
    EXPECT_NE(collecting, seen.samples.end());
}

TEST_F(Record, WhereFilesMayNotBeLongTheCommandIsNotBegun) {
    ChildOptions bounded = plain();
    bounded.file_size = 1 << 20;
    const Said said = record({"touch", path("begun")}, {}, bounded);
    EXPECT_EQ(said.status, 3);
    EXPECT_NE(said.err.find("ulimit -f"), std::string::npos) << said.err;
    EXPECT_FALSE(std::filesystem::exists(path("begun")));
    EXPECT_FALSE(std::filesystem::exists(path("run")));
}

TEST_F(Record, KilledProgramLosesNothingItHadWritten) {
    const Said said = record(script(60, "os.kill(os.getpid(), signal.SIGKILL)"));
    EXPECT_EQ(said.status, 128 + SIGKILL);
    const Seen seen = contents();
    EXPECT_GE(seen.of(record::RecordKind::kCall), 60u);
}

TEST_F(Record, ProgramThatLeavesAbruptlyOrForksKeepsItsStatus) {
    EXPECT_EQ(record(script(20, "os._exit(9)"), {"--quiet"}).status, 9);
    std::filesystem::remove_all(folder_ / "run");
    const Said said = record(script(20, "print(fork_and_launch(), flush=True); sys.exit(3)"), {"--quiet"});
    EXPECT_EQ(said.status, 3);
    EXPECT_EQ(said.out, "trained\n7\n");
}

TEST_F(Record, ProgramInANamespaceOfItsOwnIsRecordedToItsEnd) {
    const Words apart{"unshare", "-Upf", "--mount-proc"};
    Words probe = apart, command = apart;
    probe.push_back("true");
    if (record(probe, {"--quiet"}).status != 0) GTEST_SKIP() << "no namespaces of processes here";
    std::filesystem::remove_all(folder_ / "run");
    for (const std::string& word : script(400, "print(os.getpid(), flush=True)")) command.push_back(word);
    const Said said = record(command);
    ASSERT_EQ(said.status, 0) << said.err;
    EXPECT_EQ(said.out, "trained\n1\n") << "there it is the first process";
    const Seen seen = contents();
    EXPECT_GE(seen.of(record::RecordKind::kMemory), 2u * 400) << "allocations are followed to the end";
    const auto process = std::ranges::find_if(reader_->processes(), [](const auto& each) { return each.has_gpu; });
    ASSERT_NE(process, reader_->processes().end());
    EXPECT_GT(process->pid, 1u) << "its number here";
    EXPECT_NE(process->command.find("train.py"), std::string::npos);
    EXPECT_EQ(process->main_thread, 1u) << "threads have the numbers they know themselves by";
    EXPECT_TRUE(std::ranges::any_of(
        seen.samples, [&](const auto& sample) { return sample.pid == process->pid && sample.thread == 1 && sample.stack != 0; }));
}

TEST_F(Record, ProgramExecutedInItsPlaceIsAnIncarnationOfItsOwn) {
    const Said said =
        record(script(30, "if not arguments: os.execv(sys.executable, [sys.executable, '" + path("train.py") + "', 'again'])"));
    ASSERT_EQ(said.status, 0) << said.err;
    EXPECT_EQ(said.out, "trained\ntrained\n");
    const Seen seen = contents();
    std::set<std::uint16_t> incarnations;
    for (const Seen::One& one : seen.records) {
        incarnations.insert(one.origin.incarnation);
        const bool is_call = one.record.kind == record::RecordKind::kCall;
        EXPECT_TRUE(!is_call || !reader_->text(one.origin, one.record.id).empty());
    }
    EXPECT_EQ(incarnations.size(), 2u);
    EXPECT_EQ(count("process_probed"), 2u);
}

TEST_F(Record, AnotherProfilerIsNamedAndTheRestRecorded) {
    const Said said = record(script(100, "sys.exit(4)"), {}, plain({"MOCK_CUPTI_INCUMBENT=elder-profiler"}));
    EXPECT_EQ(said.status, 4);
    EXPECT_NE(said.err.find("elder-profiler"), std::string::npos) << said.err;
    const Seen seen = contents();
    EXPECT_EQ(seen.of(record::RecordKind::kCall), 0u);
    EXPECT_FALSE(seen.samples.empty());
    ASSERT_FALSE(reader_->notes().empty());
    EXPECT_EQ(count("probe_fault"), 1u);
}

TEST_F(Record, WithoutSamplesThreadsAreLeftAlone) {
    const Said said = record(script(30, ""), {"--no-samples"});
    EXPECT_EQ(said.status, 0) << said.err;
    const Seen seen = contents();
    EXPECT_TRUE(seen.samples.empty());
    EXPECT_GT(seen.of(record::RecordKind::kCall), 0u);
}

}  // namespace
}  // namespace millrace::cli
