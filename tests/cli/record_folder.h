#pragma once
// A folder for what `millrace record` makes of a program, and what it recorded.

#include <algorithm>
#include <fstream>
#include <optional>

#include "cli/folder.h"
#include "diagnose/reading/run_reader.h"
#include "diagnose/reading/trace_reader.h"
#include "places.h"

namespace millrace::cli {

using Words = std::vector<std::string>;

struct Seen : diagnose::TraceVisitor {
    struct One {
        record::TraceOrigin origin;
        record::Record record;
    };
    std::vector<One> records;
    std::vector<record::TraceSample> samples;
    std::vector<record::TraceBlock> blocks;
    void record(const record::TraceOrigin& origin, const record::Record& record, std::span<const record::Argument>) override {
        records.push_back({origin, record});
    }
    void sample(const record::TraceSample& sample) override { samples.push_back(sample); }
    void block(const record::TraceBlock& block) override { blocks.push_back(block); }
    [[nodiscard]] std::size_t of(record::RecordKind kind) const {
        return static_cast<std::size_t>(std::ranges::count(records, kind, [](const One& one) { return one.record.kind; }));
    }
};

class Record : public ::testing::Test {
protected:
    void SetUp() override {
        std::string pattern = (std::filesystem::temp_directory_path() / "millrace-record-XXXXXX").string();
        ASSERT_NE(mkdtemp(pattern.data()), nullptr);
        folder_ = pattern;
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    std::string path(const std::string& below) const { return (folder_ / below).string(); }
    Words words(const Words& command, const Words& options = {}) const {
        Words all{"record", "-o", path("run")};
        all.insert(all.end(), options.begin(), options.end());
        all.emplace_back("--");
        all.insert(all.end(), command.begin(), command.end());
        return all;
    }
    static ChildOptions plain(Words more = {}) {
        Words environment{"MILLRACE_NVML=", "CUDA_INJECTION64_PATH=",
                          "MILLRACE_CUPTI=" + (testing::program_folder() / "libmock_cupti.so").string()};
        environment.insert(environment.end(), more.begin(), more.end());
        return {0, environment, {}, false, {}};
    }
    Said record(const Words& command, const Words& options = {}, const ChildOptions& child = plain()) const {
        return run(folder_.string(), words(command, options), child);
    }
    Said shell(const std::string& script, const Words& options = {}) const { return record({"sh", "-c", script}, options); }

    /// A training script on the stand-in for CUDA: `steps` steps of 4 ms and of what `step` does, then `then`.
    Words script(int steps, const std::string& then, const std::string& step = "step(number)") const {
        const std::string drive = (testing::source_root() / "tests/probe/drive.py").string();
        std::ofstream(path("train.py")) << "import sys, os, time, signal\n"
                                        << "source = open('" << drive << "').read().split('if __name__')[0]\n"
                                        << "arguments, sys.argv = sys.argv[1:], ['drive', '"
                                        << (testing::program_folder() / "mock_cuda/libcuda.so.1").string() << "']\n"
                                        << "exec(compile(source, '" << drive << "', 'exec'))\n"
                                        << "cuda.cuInit(0)\n"
                                        << "cuda.cudaMalloc(ctypes.byref(weights), size_t(4096))\n"
                                        << "def train_loop():\n"
                                        << "    for number in range(" << steps << "):\n"
                                        << "        " << step << "\n"
                                        << "        time.sleep(0.004)\n"
                                        << "train_loop()\n"
                                        << "print('trained', flush=True)\n"
                                        << then << "\n";
        return {"python3", path("train.py")};
    }
    /// What was recorded; fails the test when it cannot be read.
    Seen contents() {
        auto opened = diagnose::TraceReader::open(folder_ / "run" / record::kTraceName);
        EXPECT_TRUE(opened.ok()) << opened.error().text();
        Seen seen;
        if (!opened.ok()) return seen;
        reader_.emplace(std::move(opened).value());
        EXPECT_EQ(reader_->damage(), diagnose::TraceDamage{});
        EXPECT_TRUE(reader_->visit(seen).ok());
        return seen;
    }
    diagnose::RunContents run_contents() const {
        auto read = diagnose::read_run(folder_ / "run");
        EXPECT_TRUE(read.ok()) << read.error().text();
        return std::move(read).value();
    }
    /// Events of the run.
    std::size_t count(const std::string& kind) const {
        const auto events = record::read_metrics(folder_ / "run" / "events.jsonl");
        EXPECT_TRUE(events.ok());
        return static_cast<std::size_t>(std::ranges::count_if(
            events->rows, [&](const record::MetricsRow& event) { return *event.find("kind") == record::MetricValue(kind); }));
    }
    std::filesystem::path folder_;
    std::optional<diagnose::TraceReader> reader_;
};

}  // namespace millrace::cli
