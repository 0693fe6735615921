#include "record/python_frames.h"

#include <gtest/gtest.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "places.h"
#include "record/python_process.h"
#include "temporary_folder.h"

namespace millrace::record {
namespace {

struct ForeignReader {
    pid_t pid;
    bool read(std::uint64_t address, void* to, std::size_t size) const {
        const iovec local{to, size}, remote{reinterpret_cast<void*>(address), size};
        return ::process_vm_readv(pid, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size);
    }
};

/// Commands that start interpreters: MILLRACE_TEST_PYTHONS (one a line) for versions that are not the system's, else python3.
std::vector<std::string> interpreters() {
    const char* given = std::getenv("MILLRACE_TEST_PYTHONS");
    std::istringstream lines(given != nullptr ? given : "python3");
    std::vector<std::string> commands;
    for (std::string line; std::getline(lines, line);)
        if (!line.empty()) commands.push_back(line);
    return commands;
}

/// An interpreter that stands still in tests/record/python_stacks.py.
class StillInterpreter {
public:
    explicit StillInterpreter(const std::string& command, const std::string& words = "") {
        // Lines far apart need a file of several hundred lines; its name has characters of two and three bytes.
        std::ifstream from(testing::source_root() / "tests/record/python_stacks.py");
        std::ofstream to(script_ = folder_ / "stacks_ü_線.py");
        for (std::string line; std::getline(from, line);) to << (line == "PADDING" ? std::string(300, '\n') : line) << '\n';
        to.close();
        int in[2], out[2];
        if (::pipe(in) != 0 || ::pipe(out) != 0) return;
        child_ = ::fork();
        if (child_ == 0) {
            ::dup2(in[0], 0);
            ::dup2(out[1], 1);
            ::close(in[1]);
            ::close(out[0]);
            const std::string line = "exec " + command + " " + script_.string() + " " + words;
            ::execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
            ::_exit(127);
        }
        ::close(in[0]);
        ::close(out[1]);
        input_ = in[1];
        std::FILE* output = ::fdopen(out[0], "r");
        char text[4096];
        std::uint32_t number = 0;
        while (std::fgets(text, sizeof text, output) != nullptr && std::string(text) != "ready\n") {
            std::istringstream words_of(text);
            std::string kind;
            words_of >> kind;
            if (kind == "runtime") words_of >> runtime >> version >> pid;
            if (kind == "thread") words_of >> number;
            if (kind == "frame") truth[number].push_back(std::string(text).substr(6, std::string(text).size() - 7));
        }
        std::fclose(output);
    }
    ~StillInterpreter() {
        ::close(input_);
        if (child_ > 0) ::kill(child_, SIGKILL);
        if (child_ > 0) ::waitpid(child_, nullptr, 0);
    }

    std::uint64_t runtime = 0;
    std::uint32_t version = 0, pid = 0;
    std::map<std::uint32_t, std::vector<std::string>> truth;  ///< by thread: "line function file", innermost first

private:
    test::TemporaryFolder folder_;
    std::filesystem::path script_;
    pid_t child_ = -1;
    int input_ = -1;
};

std::vector<std::string> stack_of(ForeignReader& reader, const PythonLayout& layout, std::uint64_t state, std::uint32_t most) {
    std::vector<PythonFrame> frames(most);
    frames.resize(python_stack(reader, layout, state, frames.data(), most));
    std::vector<std::string> stack;
    for (const PythonFrame& frame : frames) {
        PythonPlace place;
        EXPECT_TRUE(python_place(reader, layout, frame, place));
        stack.push_back(std::to_string(place.line) + " " + place.function + " " + place.file);
    }
    return stack;
}

TEST(PythonFrames, StacksOfAllThreadsAreThoseTheInterpreterSays) {
    for (const std::string& command : interpreters()) {
        const StillInterpreter still(command);
        if (still.runtime == 0) GTEST_SKIP() << "no interpreter: " << command;
        ForeignReader reader{static_cast<pid_t>(still.pid)};
        const PythonLayout layout = python_layout(reader, still.runtime, still.version);
        ASSERT_NE(layout.minor, 0u) << command;
        std::vector<PythonThread> threads(64);
        threads.resize(python_threads(reader, layout, still.runtime, still.pid, threads.data(), 64));
        ASSERT_EQ(threads.size(), still.truth.size() + 1) << "the main thread and those it started; " << command;
        EXPECT_GE(still.truth.size(), 5u);
        std::size_t seen = 0;
        for (const PythonThread& thread : threads) {
            const auto truth = still.truth.find(thread.number);
            if (truth == still.truth.end()) {
                EXPECT_EQ(thread.number, still.pid) << command;
                continue;
            }
            ++seen;
            EXPECT_EQ(stack_of(reader, layout, thread.state, 512), truth->second) << command;
        }
        EXPECT_EQ(seen, still.truth.size()) << command;
    }
}

TEST(PythonFrames, DeepStackStopsAtTheBound) {
    const StillInterpreter still(interpreters().front());
    if (still.runtime == 0) GTEST_SKIP() << "no interpreter";
    ForeignReader reader{static_cast<pid_t>(still.pid)};
    const PythonLayout layout = python_layout(reader, still.runtime, still.version);
    PythonThread threads[64];
    const std::uint32_t count = python_threads(reader, layout, still.runtime, still.pid, threads, 64);
    std::uint32_t deepest = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
        PythonFrame frames[48];
        deepest = std::max(deepest, python_stack(reader, layout, threads[i].state, frames, 48));
    }
    EXPECT_EQ(deepest, 48u);
    EXPECT_EQ(python_threads(reader, layout, still.runtime, still.pid, threads, 2), 2u);
}

TEST(PythonFrames, CollectionShowsWhileItRuns) {
    for (const std::string& command : interpreters()) {
        for (const bool collects : {false, true}) {
            const StillInterpreter still(command, collects ? "collect" : "");
            if (still.runtime == 0) GTEST_SKIP() << "no interpreter: " << command;
            ForeignReader reader{static_cast<pid_t>(still.pid)};
            const PythonLayout layout = python_layout(reader, still.runtime, still.version);
            PythonThread thread;
            ASSERT_EQ(python_threads(reader, layout, still.runtime, still.pid, &thread, 1), 1u);
            const std::uint64_t place = find_collecting(reader, layout, thread.interpreter);
            ASSERT_NE(place, 0u) << command;
            std::int32_t collecting = -1;
            ASSERT_TRUE(reader.read(place, &collecting, sizeof collecting));
            EXPECT_EQ(collecting, collects ? 1 : 0) << command;
        }
    }
}

TEST(PythonFrames, SamplesSayThatGarbageIsCollected) {
    for (const std::string& command : interpreters()) {
        for (const bool collects : {false, true}) {
            const StillInterpreter still(command, collects ? "collect" : "");
            if (still.runtime == 0) GTEST_SKIP() << "no interpreter: " << command;
            auto process = PythonProcess::attach(static_cast<pid_t>(still.pid));
            ASSERT_TRUE(process) << command;
            std::size_t looked_at = 0;
            std::vector<FunctionLoops> loops;
            for (const PythonThread& thread : process->threads()) {
                const SharedStack stack = process->stack(thread.state, loops);
                if (!stack) continue;
                ++looked_at;
                const TraceFrame& first = stack->front();
                EXPECT_EQ(first.native && first.function == kCollectingFunction && first.file == kInterpreterFile, collects);
                ASSERT_GT(stack->size(), collects ? 1u : 0u);
                EXPECT_FALSE(stack->back().native);
                bool remembered = false;  // unless something changed in between, which happens on a busy machine
                for (int tries = 0; tries < 10 && !remembered; ++tries)
                    remembered = process->stack(thread.state, loops) == process->stack(thread.state, loops);
                EXPECT_TRUE(remembered);
            }
            EXPECT_GE(looked_at, 5u);
        }
    }
}

/// Memory that is made of one pattern, as far as it goes.
struct PatternReader {
    std::uint64_t word;
    std::uint32_t reads_left;
    bool read(std::uint64_t, void* to, std::size_t size) {
        if (reads_left == 0) return false;
        --reads_left;
        for (std::size_t i = 0; i < size; ++i) static_cast<std::uint8_t*>(to)[i] = static_cast<std::uint8_t>(word >> 8 * (i % 8));
        return true;
    }
};

TEST(PythonFrames, HostileMemoryEndsTheWalk) {
    for (const std::uint32_t version : {0x03090000u, 0x030a0000u, 0x030b0000u, 0x030c0000u}) {
        const PythonLayout layout = python_table(version);
        ASSERT_NE(layout.minor, 0u);
        for (const std::uint64_t word :
             {0ull, ~0ull, 0x1000ull, 0x7f0000001000ull, 0x2020202020202020ull, 0x8080808080808080ull}) {
            PatternReader reader{word, 200'000};
            PythonFrame frames[512];
            EXPECT_LE(python_stack(reader, layout, 4096, frames, 512), 512u);
            PythonPlace place;
            python_place(reader, layout, {4096, 5000}, place);
            EXPECT_LT(std::string(place.file).size(), sizeof place.file);
            PythonThread threads[64];
            EXPECT_LE(python_threads(reader, layout, 4096, 1, threads, 64), 64u);
            EXPECT_GT(reader.reads_left, 0u) << "the walk must end by itself";
        }
    }
}

TEST(PythonFrames, UnknownInterpretersAreRefused) {
    PatternReader reader{0, 100};
    EXPECT_EQ(python_layout(reader, 4096, 0x03080000).minor, 0u);
    EXPECT_EQ(python_layout(reader, 4096, 0x030d0000).minor, 0u) << "3.13 without its list";
    EXPECT_EQ(python_layout(reader, 4096, 0x02070000).minor, 0u);
}

struct LocalReader {
    bool read(std::uint64_t address, void* to, std::size_t size) const {
        std::memcpy(to, reinterpret_cast<const void*>(address), size);
        return true;
    }
};

TEST(PythonLines, RangesOf310SkipBytesWithoutLine) {
    // 4 bytes on line 10, 2 on none, 2 on line 9 (the value of what has none does not count), 6 on line 12.
    const std::uint8_t table[] = {4, 0, 2, 0x80, 2, 0xff, 6, 3};
    LocalReader reader;
    const auto line = [&](std::int64_t offset) {
        return python_line(reader, 10, reinterpret_cast<std::uint64_t>(table), sizeof table, 10, offset);
    };
    EXPECT_EQ(line(0), 10u);
    EXPECT_EQ(line(3), 10u);
    EXPECT_EQ(line(4), 0u);
    EXPECT_EQ(line(6), 9u);
    EXPECT_EQ(line(13), 12u);
    EXPECT_EQ(line(14), 0u) << "past the end";
}

TEST(PythonLines, DeltasOf39GoBackwards) {
    const std::uint8_t table[] = {0, 1, 6, 5, 255, 0, 1, 0xfe};
    LocalReader reader;
    const auto line = [&](std::int64_t offset) {
        return python_line(reader, 9, reinterpret_cast<std::uint64_t>(table), sizeof table, 100, offset);
    };
    EXPECT_EQ(line(0), 101u);
    EXPECT_EQ(line(5), 101u);
    EXPECT_EQ(line(6), 106u);
    EXPECT_EQ(line(261), 106u);
    EXPECT_EQ(line(262), 104u);
    EXPECT_EQ(line(100000), 104u) << "the last line holds to the end";
}

}  // namespace
}  // namespace millrace::record
