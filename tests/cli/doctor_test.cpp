#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "cli/child.h"
#include "diagnose/recorded_run.h"
#include "places.h"

namespace millrace::cli {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

class Doctor : public ::testing::Test {
protected:
    std::string path(const std::string& below) const { return (folder_ / below).string(); }
    Said call(const Words& words, const ChildOptions& options = {}) const { return run(folder_.path().string(), words, options); }
    std::string content(const std::string& below) const {
        std::ifstream in(folder_ / below, std::ios::binary);
        return {std::istreambuf_iterator<char>(in), {}};
    }
    static std::string trace(const char* name) { return (testing::source_root() / "tests/goldens/kineto" / name).string(); }
    void expect_refusal(const Words& words, const std::string& part) const {
        const Said said = call(words);
        EXPECT_EQ(said.status, 2) << said.err;
        EXPECT_EQ(said.err.rfind("millrace: ", 0), 0u) << said.err;
        EXPECT_NE(said.err.find(part), std::string::npos) << said.err;
        EXPECT_EQ(said.out, "");
    }
    /// A recording with so many blocks of half a second beside its three steps.
    void record(const std::string& name, std::size_t blocks, double steps) const {
        record::RunDirectory run = diagnose::new_run(folder_ / name);
        auto trace = record::TraceWriter::create(folder_ / name / record::kTraceName);
        ASSERT_TRUE(trace.ok()) << trace.error().text();
        ASSERT_TRUE(trace->process({4000, 1, 0, true, diagnose::kBoot, 0, "python train.py"}).ok());
        ASSERT_TRUE(trace->clock({diagnose::kBoot, diagnose::kWall}).ok());
        diagnose::write_steps(*trace, 4000);
        for (std::size_t at = 0; at < blocks; ++at) {
            const std::uint64_t begin = diagnose::kBoot + 20'000'000 + at * 500'000'000;
            ASSERT_TRUE(trace->block({begin, begin + 500'000'000, steps + 0.01 * static_cast<double>(at * 7 % 5), 4000}).ok());
        }
        ASSERT_TRUE(trace->flush().ok());
    }

    test::TemporaryFolder folder_;
};

TEST_F(Doctor, DiagnosesARecordingInEveryForm) {
    diagnose::write_recording(folder_ / "run");
    const Said text = call({"diagnose", path("run"), "--md", path("d.md"), "--html", path("d.html"), "--trace", path("d.json")});
    EXPECT_TRUE(text.status == 0 || text.status == 1) << text.err;
    EXPECT_NE(text.out.find("The GPU worked "), std::string::npos) << text.out;
    EXPECT_NE(text.out.find("5 records were lost"), std::string::npos) << text.out;
    EXPECT_EQ(text.out.find('\033'), std::string::npos);
    EXPECT_EQ(text.err, "");
    EXPECT_EQ(content("d.md").rfind("# What the GPU did", 0), 0u);
    EXPECT_EQ(content("d.html").rfind("<!DOCTYPE html>", 0), 0u);
    EXPECT_NE(content("d.json").find("ProfilerStep#"), std::string::npos);
    const Said again = call({"diagnose", path("d.json"), "--json"});
    EXPECT_EQ(again.status, text.status) << again.err;
    const Said json = call({"diagnose", path("run"), "--json"});
    EXPECT_EQ(base::json_or_throw(again.out)["step_ms"], base::json_or_throw(json.out)["step_ms"]);
    EXPECT_EQ(json.status, text.status);
    const Json parsed = base::json_or_throw(json.out);
    EXPECT_EQ(parsed["schema"], 1);
    EXPECT_GT(parsed["steps"], 0);
    EXPECT_EQ(parsed["dropped_records"], 5);
    EXPECT_EQ(parsed["findings"].empty(), json.status == 0);
}

TEST_F(Doctor, WritesSamplesForViewersOfProfiles) {
    diagnose::write_recording(folder_ / "run");
    const Said said = call({"diagnose", path("run"), "--speedscope", path("s.json"), "--collapsed", path("c.txt")});
    EXPECT_TRUE(said.status == 0 || said.status == 1) << said.err;
    EXPECT_EQ(base::json_or_throw(content("s.json"))["profiles"].size(), 1u);
    EXPECT_EQ(content("c.txt"), "python worker (4100);thread 4101;fetch (loader.py:12);[read] 10000\n");
    expect_refusal({"diagnose", path("run"), "--speedscope", path("d"), "--collapsed", path("d")}, "name the same file");
    expect_refusal({"diagnose", path("run"), "--collapsed", path("run/trace.bin")}, "file of the run");
    const Said none = call({"diagnose", trace("with_stack.json"), "--speedscope", path("none.json")});
    EXPECT_EQ(none.status, 4) << none.err;
    EXPECT_NE(none.err.find("no samples of threads"), std::string::npos) << none.err;
    EXPECT_FALSE(std::filesystem::exists(path("none.json")));
}

TEST_F(Doctor, DiagnosesATraceOfTheProfiler) {
    const Said said = call({"diagnose", trace("with_stack.json"), "--json"});
    EXPECT_TRUE(said.status == 0 || said.status == 1) << said.err;
    EXPECT_GT(base::json_or_throw(said.out)["steps"], 0);
}

TEST_F(Doctor, ARunThatIsStillWrittenIsReadAsFarAsItIs) {
    diagnose::write_recording(folder_ / "run");
    std::filesystem::resize_file(folder_ / "run" / record::kTraceName,
                                 std::filesystem::file_size(folder_ / "run" / record::kTraceName) - 7);
    const Said said = call({"diagnose", path("run")});
    EXPECT_TRUE(said.status == 0 || said.status == 1) << said.err;
    EXPECT_NE(said.out.find("The GPU worked "), std::string::npos);
}

TEST_F(Doctor, BadInputIsRefusedAndNothingIsWritten) {
    diagnose::write_recording(folder_ / "run");
    expect_refusal({"diagnose", path("absent")}, "does not exist");
    expect_refusal({"diagnose"}, "run is required");
    std::ofstream(path("text.json")) << "no json at all";
    expect_refusal({"diagnose", path("text.json"), "--html", path("never.html")}, "text.json");
    EXPECT_FALSE(std::filesystem::exists(path("never.html")));
    std::filesystem::create_directory(folder_ / "folder");
    expect_refusal({"diagnose", path("run"), "--html", path("folder")}, "folder");
    expect_refusal({"diagnose", path("run"), "--md", path("absent/d.md")}, "absent");
    expect_refusal({"compare", path("run")}, "after is required");
    expect_refusal({"compare", path("run"), path("run"), "--min-effect", "2"}, "--min-effect");
    expect_refusal({"compare", path("run"), path("run"), "--min-spread", "-1"}, "--min-spread");
    expect_refusal({"compare", path("run"), path("run"), "--min-spread", "much"}, "--min-spread");
    expect_refusal({"compare", path("run"), path("run"), "--run-spread", "8"}, "--run-spread");
    expect_refusal({"compare", path("run"), path("run"), "--before", path("absent")}, "does not exist");
    expect_refusal({"compare", path("run"), path("run"), "--fail-if-slower", "-5%"}, "--fail-if-slower");
    expect_refusal({"compare", path("run"), path("run"), "--fail-if-slower", ""}, "--fail-if-slower");
    expect_refusal({"compare", path("run"), path("absent")}, "does not exist");
}

TEST_F(Doctor, OneFileTakesOneOutput) {
    diagnose::write_recording(folder_ / "run");
    const std::string both = "name the same file";
    expect_refusal({"diagnose", path("run"), "--html", path("d"), "--md", path("d")}, "--md and --html " + both);
    expect_refusal({"diagnose", path("run"), "--html", path("d"), "--trace", path("run/../d")}, both);
    expect_refusal({"diagnose", path("run"), "--html", "new", "--md", "./new"}, both);
    EXPECT_FALSE(std::filesystem::exists(path("d")));
    std::filesystem::create_directory_symlink(folder_ / "run", folder_ / "link");
    expect_refusal({"diagnose", path("run"), "--html", path("run/d"), "--md", path("link/d")}, both);
    std::filesystem::copy_file(trace("with_stack.json"), path("t.json"));
    expect_refusal({"diagnose", path("t.json"), "--trace", path("t.json")}, "RUN and --trace " + both);
}

TEST_F(Doctor, FilesOfTheRunAreNotWrittenOver) {
    diagnose::write_recording(folder_ / "run");
    std::filesystem::create_directory_symlink(folder_ / "run", folder_ / "link");
    const std::string before = content("run/trace.bin");
    expect_refusal({"diagnose", path("run"), "--md", path("run/trace.bin")}, "file of the run");
    expect_refusal({"diagnose", path("link"), "--html", path("run/manifest.json")}, "file of the run");
    expect_refusal({"diagnose", path("run/trace.bin"), "--trace", path("link/samples.jsonl")}, "file of the run");
    EXPECT_EQ(content("run/trace.bin"), before);
    const Said beside = call({"diagnose", path("run"), "--md", path("run/report.md"), "--html", path("trace.bin")});
    EXPECT_TRUE(beside.status == 0 || beside.status == 1) << beside.err;
    EXPECT_TRUE(std::filesystem::exists(path("run/report.md")));
}

TEST_F(Doctor, LostOutputIsAnErrorWhateverWasFound) {
    if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
    diagnose::write_recording(folder_ / "run");
    record("slow", 20, 18);
    record("fast", 20, 21.5);
    for (const Words& words : {Words{"diagnose", path("run")},
                               {"diagnose", path("run"), "--json"},
                               {"diagnose", trace("with_stack.json")},
                               {"compare", path("slow"), path("fast")},
                               {"compare", path("fast"), path("slow"), "--fail-if-slower", "5%"}}) {
        const Said said = call(words, {0, {}, "/dev/full", false});
        EXPECT_EQ(said.status, 1) << words.front();
        EXPECT_EQ(said.err, "millrace: standard output is closed or full: not all of it was written\n");
    }
    // What a recorded command writes is its own affair, and so is its status.
    for (const char* status : {"0", "1"}) {
        const std::string out = path(std::string("recorded") + status);
        const Said said = call({"record", "--quiet", "--no-samples", "-o", out, "--", "sh", "-c", std::string("exit ") + status},
                               {0, {}, "/dev/full", false});
        EXPECT_EQ(said.status, std::stoi(status)) << said.err;
    }
}

TEST_F(Doctor, AFolderOfNumberedRunsIsOneSideOfACompare) {
    for (const char* name : {"main/1", "main/2", "main/3", "branch/1", "branch/2", "branch/4"}) record(name, 20, 18);
    const Said said = call({"compare", path("main"), path("branch"), "--after", path("main/3"), "--json"});
    ASSERT_EQ(said.status, 0) << said.err;
    const auto json = base::json_or_throw(said.out);
    EXPECT_EQ(json["before"]["recordings"], 3);
    EXPECT_EQ(json["after"]["recordings"], 3) << "two of the folder, and one that was named";
    EXPECT_EQ(json["run_spread_measured"], true);
    expect_refusal({"compare", path("main"), path("empty")}, "does not exist");
}

TEST_F(Doctor, ARunWithoutStepsIsNoData) {
    record::RunDirectory run = diagnose::new_run(folder_ / "run", "cpu");
    diagnose::write_lines(folder_ / "run" / "metrics.jsonl", "");
    EXPECT_EQ(call({"diagnose", path("run")}).status, 4);
}

TEST_F(Doctor, ComparesAndGates) {
    record("slow", 20, 18);
    record("fast", 20, 21.5);
    const Said better = call({"compare", path("slow"), path("fast")});
    EXPECT_EQ(better.status, 0) << better.err;
    EXPECT_EQ(better.out.rfind("better: 19.4 % more steps per second\n", 0), 0u) << better.out;
    EXPECT_NE(better.out.find("ms of a step"), std::string::npos);
    const Said same = call({"compare", path("slow"), path("slow"), "--json"});
    EXPECT_EQ(same.status, 0);
    EXPECT_EQ(base::json_or_throw(same.out)["verdict"], "no difference");
    const Said gate = call({"compare", path("fast"), path("slow"), "--fail-if-slower", "5%"});
    EXPECT_EQ(gate.status, 1);
    EXPECT_NE(gate.out.find("gate: failed"), std::string::npos);
    EXPECT_EQ(call({"compare", path("fast"), path("slow"), "--fail-if-slower", "30%"}).status, 0);
    EXPECT_EQ(call({"compare", path("slow"), path("fast"), "--fail-if-slower", "5%"}).status, 0);
    record("slow again", 20, 18.1);
    const Said more = call({"compare", path("slow"), path("fast"), "--before", path("slow again"), "--json"});
    EXPECT_EQ(more.status, 0) << more.err;
    const Json several = base::json_or_throw(more.out);
    EXPECT_EQ(several["verdict"], "better");
    EXPECT_EQ(several["before"]["recordings"], 2);
    EXPECT_EQ(several["after"]["recordings"], 1);
    EXPECT_EQ(several["run_spread_measured"], true);
    EXPECT_GT(several["run_spread"], 0);
    EXPECT_NE(call({"compare", path("slow"), path("fast"), "--before", path("slow again")}).out.find("in 2\nand 1 recordings"),
              std::string::npos);
}

TEST_F(Doctor, TracesOfAFewStepsAreTooShort) {
    // A few steps of a third of a millisecond are no half second: nothing to compare, and how long it would have to be.
    const Said said = call({"compare", trace("with_stack.json"), trace("plain.json")});
    EXPECT_EQ(said.status, 4) << said.out;
    EXPECT_NE(said.out.find("Record each run at least"), std::string::npos);
}

TEST_F(Doctor, TooFewBlocksPassNoGate) {
    record("short", 3, 18);
    const Said said = call({"compare", path("short"), path("short")});
    EXPECT_EQ(said.status, 0);
    EXPECT_NE(said.out.find("too few blocks"), std::string::npos);
    EXPECT_NE(said.out.find("at least 2.0 s longer"), std::string::npos) << said.out;
    EXPECT_EQ(call({"compare", path("short"), path("short"), "--fail-if-slower", "5%"}).status, 4);
}

TEST_F(Doctor, LossThatIsNotCertainPassesNoGate) {
    // Far less than runs of a program whose pace the host sets differ by.
    record("before", 20, 20);
    record("after", 20, 18.6);
    const Said said = call({"compare", path("before"), path("after"), "--run-spread", "20%", "--fail-if-slower", "5%"});
    EXPECT_EQ(said.status, 4) << said.out;
    EXPECT_EQ(said.out.rfind("no difference: -7.0 % is within the noise", 0), 0u) << said.out;
    EXPECT_NE(said.out.find("gate: cannot tell"), std::string::npos) << said.out;
    EXPECT_EQ(call({"compare", path("before"), path("after"), "--run-spread", "20%"}).status, 0);
    EXPECT_EQ(call({"compare", path("before"), path("after"), "--run-spread", "20%", "--fail-if-slower", "10%"}).status, 0);
}

TEST_F(Doctor, ComparesRunsOfTrain) {
    for (const auto& [name, speed] : {std::pair("slow", 100.0), std::pair("fast", 130.0)}) {
        record::RunDirectory run = diagnose::new_run(folder_ / name, "cpu");
        std::string rows;
        for (int second = 1; second <= 12; ++second) {
            const double steps = speed + second % 3;
            rows +=
                base::json_text(Json{
                    {"kind", "interval"}, {"time", diagnose::kWall + second}, {"steps", steps}, {"steps_per_second", steps}}) +
                "\n";
        }
        diagnose::write_lines(folder_ / name / "metrics.jsonl", rows);
    }
    const Said said = call({"compare", path("slow"), path("fast"), "--json"});
    EXPECT_EQ(said.status, 0) << said.err;
    const Json json = base::json_or_throw(said.out);
    EXPECT_EQ(json["verdict"], "better");
    EXPECT_NEAR(json["change"].get<double>(), 0.297, 0.005);
    EXPECT_TRUE(json["before"]["busy_share"].is_null());
}

TEST_F(Doctor, ColourIsForTerminalsWithoutNoColor) {
    diagnose::write_recording(folder_ / "run");
    const std::string program = (testing::program_folder() / "millrace").string();
    const auto on_terminal = [&](const char* no_color) {
        winsize size{24, 80, 0, 0};
        int terminal = -1;
        const pid_t pid = forkpty(&terminal, nullptr, nullptr, &size);
        if (pid == 0) {
            setenv("TERM", "xterm", 1);
            no_color != nullptr ? setenv("NO_COLOR", no_color, 1) : unsetenv("NO_COLOR");
            execl(program.c_str(), program.c_str(), "diagnose", path("run").c_str(), nullptr);
            _exit(127);
        }
        std::string said;
        char bytes[4096];
        for (ssize_t count = 0; (count = read(terminal, bytes, sizeof bytes)) > 0;)
            said.append(bytes, static_cast<std::size_t>(count));
        waitpid(pid, nullptr, 0);
        close(terminal);
        return said;
    };
    EXPECT_NE(on_terminal(nullptr).find("\033["), std::string::npos);
    const std::string plain = on_terminal("1");
    EXPECT_NE(plain.find("The GPU worked"), std::string::npos);
    EXPECT_EQ(plain.find('\033'), std::string::npos);
}

TEST_F(Doctor, HelpHasExamplesAndExitStatuses) {
    for (const char* command : {"diagnose", "compare"}) {
        const Said said = call({command, "--help"});
        EXPECT_EQ(said.status, 0);
        EXPECT_NE(said.out.find("Examples:"), std::string::npos);
        EXPECT_NE(said.out.find("Exit status: 0"), std::string::npos);
    }
}

}  // namespace
}  // namespace millrace::cli
