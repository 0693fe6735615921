#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <sstream>
#include <thread>

#include "base/json.h"
#include "cli/folder.h"
#include "places.h"

namespace millrace::cli {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

class Watch : public ::testing::Test {
protected:
    void SetUp() override {
        std::string pattern = (std::filesystem::temp_directory_path() / "millrace-watch-XXXXXX").string();
        ASSERT_NE(mkdtemp(pattern.data()), nullptr);
        folder_ = pattern;
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    std::string path(const std::string& below) const { return (folder_ / below).string(); }
    std::string content(const std::string& below) const {
        std::ifstream in(folder_ / below, std::ios::binary);
        return {std::istreambuf_iterator<char>(in), {}};
    }
    Words words(Words more) const {
        more.insert(more.begin(), "watch");
        return more;
    }
    Said watch(const Words& more, const ChildOptions& options = no_gpu()) const {
        return run(folder_.string(), words(more), options);
    }
    /// Whatever this machine has, a watch without GPUs; and no setting of whoever runs the tests.
    static ChildOptions no_gpu() { return {0, {"MILLRACE_NVML="}, {}, false}; }

    /// The stand-in for the driver's library, set by the variables of mock_nvml.cpp.
    static ChildOptions mock(Words environment) {
        const std::filesystem::path beside = testing::program_folder() / std::filesystem::path(MILLRACE_MOCK_NVML).filename();
        environment.insert(environment.begin(), "CUDA_VISIBLE_DEVICES");  // of whoever runs the tests
        environment.push_back("MILLRACE_NVML=" + (std::filesystem::exists(beside) ? beside.string() : MILLRACE_MOCK_NVML));
        return {0, environment, {}, false};
    }

    template <class Condition>
    static bool eventually(const Condition& condition) {
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{30};
        while (!condition()) {
            if (std::chrono::steady_clock::now() > until) return false;
            std::this_thread::sleep_for(std::chrono::milliseconds{2});
        }
        return true;
    }
    /// Columns by name, of a CSV without quoted fields.
    std::map<std::string, Words> columns(const std::string& name) const {
        std::istringstream lines(content(name));
        std::string line, field;
        Words header;
        std::map<std::string, Words> out;
        while (std::getline(lines, line)) {
            Words fields;
            std::istringstream parts(line + ",");
            while (std::getline(parts, field, ',')) fields.push_back(field);
            if (header.empty())
                header = fields;
            else
                for (std::size_t at = 0; at < header.size(); ++at) out[header[at]].push_back(fields.at(at));
        }
        return out;
    }
    static std::vector<Json> json_lines(const std::string& text) {
        std::vector<Json> out;
        std::istringstream lines(text);
        for (std::string line; std::getline(lines, line);) out.push_back(base::json_or_throw(line));
        return out;
    }

    std::filesystem::path folder_;
};

TEST_F(Watch, HandsTheExitStatusThrough) {
    EXPECT_EQ(watch({"--", "true"}).status, 0);
    EXPECT_EQ(watch({"--", "sh", "-c", "exit 7"}).status, 7);
    EXPECT_EQ(watch({"--", "sh", "-c", "kill -SEGV $$"}).status, 128 + SIGSEGV);
    const Said missing = watch({"--", "no-such-command-anywhere"});
    EXPECT_EQ(missing.status, 127);
    EXPECT_NE(missing.err.find("no-such-command-anywhere: command not found"), std::string::npos) << missing.err;
    const Said folder = watch({"--", path("")});
    EXPECT_EQ(folder.status, 126);
}

TEST_F(Watch, TheCommandKeepsItsOutputAndItsWords) {
    const Said said = watch({"--", "printf", "%s|", "--json", "--", "train", "-x", "a b"});
    EXPECT_EQ(said.status, 0);
    EXPECT_EQ(said.out, "--json|--|train|-x|a b|") << "stdout is the command's alone";
    EXPECT_NE(said.err.find("verdict"), std::string::npos) << said.err;
    EXPECT_NE(said.err.find("no GPU"), std::string::npos) << said.err;
}

TEST_F(Watch, CsvHasProcessorColumnsFilledAndGpuColumnsEmpty) {
    const Said said = watch({"--interval", "20ms", "--csv", path("f.csv"), "--monitor-csv", path("m.csv"), "--", "sleep", "0.3"});
    ASSERT_EQ(said.status, 0) << said.err;
    const auto wide = columns("f.csv");
    ASSERT_TRUE(wide.contains("cpu/utilization_percent") && wide.contains("gpu0/utilization_percent"));
    const Words& cpu = wide.at("cpu/utilization_percent");
    ASSERT_GE(cpu.size(), 3u);
    EXPECT_GT(std::count_if(cpu.begin(), cpu.end(), [](const std::string& field) { return !field.empty(); }), 0);
    for (const std::string& field : wide.at("ram/used_bytes")) EXPECT_GT(std::stod(field), 0);
    for (const auto& [name, fields] : wide) {
        if (!name.starts_with("gpu0/")) continue;
        for (const std::string& field : fields) EXPECT_EQ(field, "") << name;
    }
    const auto eleven = columns("m.csv");
    EXPECT_EQ(eleven.size(), 11u);
    EXPECT_EQ(eleven.at("timestamp").size(), cpu.size());
    for (const std::string& field : eleven.at("temperature_c")) EXPECT_EQ(field, "");
}

TEST_F(Watch, JsonIsSamplesAndOneSummary) {
    const Said said =
        watch({"--interval", "20ms", "--json", "--plot", path("p.svg"), "--", "sh", "-c", "echo said; sleep 0.3; exit 3"});
    EXPECT_EQ(said.status, 3);
    EXPECT_NE(said.err.find("said"), std::string::npos) << "what the command writes must not mix with ours";
    const auto lines = json_lines(said.out);
    ASSERT_GE(lines.size(), 4u);
    for (std::size_t at = 0; at + 1 < lines.size(); ++at) EXPECT_EQ(lines[at].at("kind"), "sample");
    const Json& summary = lines.back();
    EXPECT_EQ(summary.at("kind"), "summary");
    EXPECT_EQ(summary.at("exit_status"), 3);
    EXPECT_EQ(summary.at("schedule").at("samples"), lines.size() - 1);
    EXPECT_EQ(summary.at("machine").at("gpus").size(), 0u);
    EXPECT_FALSE(summary.at("machine").at("no_gpu").is_null());
    EXPECT_TRUE(summary.at("metrics").contains("process/resident_bytes"));
    EXPECT_TRUE(content("p.svg").starts_with("<svg"));
}

TEST_F(Watch, WithoutACommandItPrintsLinesAndNothingOfItself) {
    const Said said = watch({"--interval", "20ms", "--duration", "100ms", "--csv", path("f.csv")});
    EXPECT_EQ(said.status, 0) << said.err;
    EXPECT_EQ(said.err, "");
    EXPECT_EQ(said.out.find('\x1b'), std::string::npos);
    const std::string first = said.out.substr(0, said.out.find('\n'));
    EXPECT_NE(first.find("RAM:"), std::string::npos) << first;
    EXPECT_EQ(first.find("GPU"), std::string::npos);
    EXPECT_NE(said.out.find("verdict"), std::string::npos);
    const auto wide = columns("f.csv");
    for (const std::string& field : wide.at("process/resident_bytes")) EXPECT_EQ(field, "");
    const Said quiet = watch({"--quiet", "--interval", "20ms", "--duration", "50ms"});
    EXPECT_EQ(quiet.out.rfind("watched ", 0), 0u) << quiet.out;
}

TEST_F(Watch, AnEndedDurationWaitsForTheCommand) {
    const Said said = watch({"--interval", "10ms", "--duration", "30ms", "--json", "--", "sh", "-c", "sleep 1; exit 4"});
    EXPECT_EQ(said.status, 4);
    const Json summary = json_lines(said.out).back();
    EXPECT_EQ(summary.at("exit_status"), 4);
    EXPECT_LT(summary.at("seconds").get<double>(), 0.9);
}

TEST_F(Watch, TwoGpusAreWatchedSideBySide) {
    const Said said = watch({"--interval", "10ms", "--json", "--csv", path("f.csv"), "--monitor-csv", path("m.csv"), "--plot",
                             path("p.svg"), "--", "sleep", "0.4"},
                            mock({"MOCK_NVML_GPUS=2"}));
    ASSERT_EQ(said.status, 0) << said.err;
    const auto lines = json_lines(said.out);
    const Json& summary = lines.back();
    ASSERT_EQ(summary.at("machine").at("gpus").size(), 2u);
    for (const std::string gpu : {"gpu0", "gpu1"}) {
        EXPECT_GT(summary.at("metrics").at(gpu + "/temperature_celsius").at("min").get<double>(), 40);
        EXPECT_GT(summary.at("metrics").at(gpu + "/sm_active_percent").at("count").get<int>(), 0);
    }
    EXPECT_GT(summary.at("energy").at(1).at("joules").get<double>(), 0);
    const auto wide = columns("f.csv");
    for (const std::string& field : wide.at("gpu1/temperature_celsius")) EXPECT_GT(std::stod(field), 40);
    EXPECT_EQ(columns("m.csv").at("gpu_index").size(), 2 * wide.at("time").size());
    EXPECT_NE(content("p.svg").find("GPU 1"), std::string::npos);
    EXPECT_NE(said.err.find("gpu1 sm active"), std::string::npos) << said.err;
    ChildOptions one = mock({"MOCK_NVML_GPUS=2", "CUDA_VISIBLE_DEVICES=1"});
    const Json chosen = json_lines(watch({"--interval", "10ms", "--duration", "30ms", "--json"}, one).out).back();
    ASSERT_EQ(chosen.at("machine").at("gpus").size(), 1u);
    EXPECT_EQ(chosen.at("machine").at("gpus").at(0).at("driver_index"), 1);
}

TEST_F(Watch, AGpuLostMidwayIsNamedAndTheRestGoesOn) {
    const Said said =
        watch({"--interval", "10ms", "--json", "--", "sleep", "0.4"}, mock({"MOCK_NVML_GPUS=2", "MOCK_NVML_LOST=1:3:15"}));
    ASSERT_EQ(said.status, 0) << said.err;
    const auto lines = json_lines(said.out);
    ASSERT_GT(lines.size(), 8u);
    const Json& last = lines[lines.size() - 2];
    EXPECT_TRUE(last.contains("gpu0/utilization_percent"));
    EXPECT_FALSE(last.contains("gpu1/utilization_percent")) << "absent, not 0";
    bool named = false;
    for (const Json& finding : lines.back().at("findings"))
        named = named || (finding.at("kind") == "gpu_lost" && finding.at("gpu") == 1);
    EXPECT_TRUE(named) << said.out;
}

TEST_F(Watch, ImplausiblePowerIsLeftOutAndNamed) {
    const Said said = watch({"--interval", "10ms", "--json", "--", "sleep", "0.2"}, mock({"MOCK_NVML_POWER=5900000"}));
    ASSERT_EQ(said.status, 0) << said.err;
    const Json summary = json_lines(said.out).back();
    EXPECT_LT(summary.at("metrics").at("gpu0/power_watts").at("max").get<double>(), 1000);
    EXPECT_NE(said.err.find("power the GPU cannot draw"), std::string::npos) << said.err;
}

TEST_F(Watch, InterruptEndsAWatchWithItsSummary) {
    for (const auto& [signal, status] : {std::pair{SIGINT, 0}, std::pair{SIGTERM, 143}, std::pair{SIGHUP, 129}}) {
        const std::string csv = "s" + std::to_string(signal) + ".csv";
        Child child(folder_.string(), words({"--interval", "10ms", "--quiet", "--csv", path(csv)}), no_gpu());
        ASSERT_TRUE(eventually([&] { return content(csv).find('\n') != std::string::npos; }));
        child.send(signal);
        const Said said = child.wait();
        EXPECT_EQ(said.status, status) << said.err;
        EXPECT_NE(said.out.find("verdict"), std::string::npos) << said.out;
    }
}

TEST_F(Watch, ASignalForUsAloneReachesTheCommand) {
    const std::string script =
        "trap 'echo got it; exit 9' TERM; echo ready > " + path("ready") + "; while :; do sleep 0.01; done";
    Child child(folder_.string(), words({"--interval", "50ms", "--", "sh", "-c", script}), no_gpu());
    ASSERT_TRUE(eventually([&] { return !content("ready").empty(); }));
    child.send(SIGTERM);
    const Said said = child.wait();
    EXPECT_EQ(said.status, 9) << said.err;
    EXPECT_EQ(said.out, "got it\n");
    EXPECT_NE(said.err.find("exit status 9"), std::string::npos);
}

TEST_F(Watch, BadArgumentsAreRefused) {
    const auto refused = [&](const Words& more, const std::string& part) {
        const Said said = watch(more);
        EXPECT_EQ(said.status, 2) << part;
        EXPECT_EQ(said.err.rfind("millrace: ", 0), 0u) << said.err;
        EXPECT_NE(said.err.find(part), std::string::npos) << said.err;
    };
    refused({"--interval", "1ms"}, "10ms");
    refused({"--interval", "5"}, "--interval");
    refused({"--interval", "400d"}, "365d");
    refused({"--duration", "soon"}, "--duration");
    refused({"--duration", "0s"}, "--duration");
    refused({"--prometheus-port", "70000"}, "--prometheus-port");
    refused({"sleep", "1"}, "sleep");
    refused({"--"}, "no command");
    refused({"--no-such-flag"}, "--no-such-flag");
}

TEST_F(Watch, WhatCannotBeWrittenIsRefusedBeforeTheCommandBegins) {
    for (const char* option : {"--csv", "--monitor-csv", "--plot", "--prometheus-file"}) {
        const Said said = watch({option, "/no/such/folder/file", "--", "touch", path("ran")});
        EXPECT_EQ(said.status, 2) << option;
        EXPECT_NE(said.err.find("/no/such/folder"), std::string::npos) << said.err;
    }
    EXPECT_EQ(watch({"--plot", path(""), "--", "touch", path("ran")}).status, 2);
    std::filesystem::create_symlink("/dev/null", path("sink"));
    for (const char* option : {"--plot", "--prometheus-file"}) {
        EXPECT_EQ(watch({option, path("sink"), "--", "touch", path("ran")}).status, 2) << option;
        EXPECT_TRUE(std::filesystem::is_symlink(path("sink"))) << option << " replaced it";
    }
    EXPECT_FALSE(std::filesystem::exists(folder_ / "ran"));
}

TEST_F(Watch, TwoOutputsInOneFileAreRefused) {
    const Said said = watch({"--csv", path("f"), "--monitor-csv", path("./f"), "--", "touch", path("ran")});
    EXPECT_EQ(said.status, 2);
    EXPECT_NE(said.err.find("--csv and --monitor-csv name the same file"), std::string::npos) << said.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "ran"));
    EXPECT_EQ(watch({"--csv", "/dev/null", "--monitor-csv", "/dev/null", "--", "true"}).status, 0);
}

TEST_F(Watch, AReaderThatDoesNotReadDoesNotKeepSignalsAway) {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "ThreadSanitizer keeps signals back while a write is under way";
#endif
    const std::string pipe = path("pipe");
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    const int held = open(pipe.c_str(), O_RDWR | O_NONBLOCK);  // full, and nobody reads
    ASSERT_GE(held, 0);
    const std::string page(4096, 'x');
    while (write(held, page.data(), page.size()) > 0) {
    }
    for (const Words& more : {Words{"--json"}, Words{}}) {
        const std::string csv = more.empty() ? "lines.csv" : "json.csv";
        Words arguments = words({"--interval", "20ms", "--csv", path(csv)});
        arguments.insert(arguments.end(), more.begin(), more.end());
        ChildOptions options = no_gpu();
        options.out = pipe;
        Child child(folder_.string(), arguments, options);
        ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder_ / csv); }));  // signals are caught by then
        const auto first_request = std::chrono::steady_clock::now();
        ASSERT_TRUE(eventually([&] {
            child.send(SIGTERM);
            return !child.running();
        }));
        EXPECT_GE(std::chrono::steady_clock::now() - first_request, std::chrono::milliseconds{500})
            << "the first request lets it finish what it writes";
        EXPECT_EQ(child.wait().status, 128 + SIGTERM);
    }
    close(held);
}

TEST_F(Watch, EnvironmentStandsInForOptions) {
    ChildOptions options = no_gpu();
    options.environment.insert(options.environment.end(),
                               {"MILLRACE_WATCH_INTERVAL=20ms", "MILLRACE_WATCH_DURATION=60ms", "MILLRACE_WATCH_JSON=1"});
    const Json summary = json_lines(watch({}, options).out).back();
    EXPECT_EQ(summary.at("schedule").at("interval_seconds"), 0.02);
    const Json other = json_lines(watch({"--interval", "30ms"}, options).out).back();
    EXPECT_EQ(other.at("schedule").at("interval_seconds"), 0.03) << "options beat the environment";
}

TEST_F(Watch, ALostOutputIsNamedAndTheStatusStillHandedThrough) {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "ThreadSanitizer itself does not survive a limit on file sizes";
#endif
    const Said alone = watch({"--interval", "10ms", "--duration", "100ms", "--quiet", "--csv", "/dev/full"});
    EXPECT_EQ(alone.status, 1) << alone.out << alone.err;
    ChildOptions small = no_gpu();
    small.file_size = 4096;
    const Said said = watch({"--interval", "10ms", "--csv", path("f.csv"), "--", "sh", "-c", "sleep 0.4; exit 6"}, small);
    EXPECT_EQ(said.status, 6) << said.err;
    EXPECT_NE(said.err.find("lost "), std::string::npos) << said.err;
}

}  // namespace
}  // namespace millrace::cli
