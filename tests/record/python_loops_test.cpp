#include "record/python_loops.h"

#include <gtest/gtest.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "places.h"
#include "temporary_folder.h"

namespace millrace::record {
namespace {

struct OtherMemory {
    pid_t pid;
    bool read(std::uint64_t address, void* to, std::size_t size) const {
        const iovec local{to, size}, remote{reinterpret_cast<void*>(address), size};
        return ::process_vm_readv(pid, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size);
    }
};

struct ToldFunction {
    std::uint64_t code = 0;
    std::vector<LineRange> loops;
};

/// What an interpreter says of itself while it stands still; `use` is called meanwhile.
template <class Use>
bool with_interpreter(const std::string& command, const Use& use) {
    test::TemporaryFolder folder;
    const std::filesystem::path script = folder / "loops.py";
    std::ifstream from(testing::source_root() / "tests/record/python_loops.py");
    std::ofstream to(script);
    // A jump over as much code needs extended instructions.
    for (std::string line; std::getline(from, line);) {
        const int times = line == "PADDING" ? 300 : 1;
        for (int i = 0; i < times; ++i) to << (times > 1 ? "        results.append(abs(item) + len(results))" : line) << '\n';
    }
    to.close();
    int in[2], out[2];
    if (::pipe(in) != 0 || ::pipe(out) != 0) return false;
    const pid_t child = ::fork();
    if (child == 0) {
        ::dup2(in[0], 0);
        ::dup2(out[1], 1);
        ::close(in[1]);
        ::close(out[0]);
        const std::string line = "exec " + command + " " + script.string();
        ::execl("/bin/sh", "sh", "-c", line.c_str(), static_cast<char*>(nullptr));
        ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    PythonLayout layout;
    OtherMemory memory{child};
    std::map<std::string, ToldFunction> told;
    std::string name, text;
    bool whole = false;
    for (char letter = 0; !whole && ::read(out[0], &letter, 1) == 1;) {
        if (letter != '\n') {
            text += letter;
            continue;
        }
        std::istringstream words(std::exchange(text, {}));
        std::string first;
        words >> first;
        if (first == "runtime") {
            std::uint64_t runtime = 0;
            std::uint32_t version = 0;
            words >> runtime >> version >> memory.pid;
            layout = python_layout(memory, runtime, version);
        } else if (first == "code") {
            std::uint64_t code = 0;
            words >> code >> name;
            told[name].code = code;
        } else if (first == "loop") {
            LineRange range;
            words >> range.first >> range.last;
            told[name].loops.push_back(range);
        }
        whole = first == "end";
    }
    if (whole) use(memory, layout, told);
    ::close(in[1]);
    ::close(out[0]);
    ::waitpid(child, nullptr, 0);
    return whole;
}

TEST(PythonLoops, AreThoseOfTheSource) {
    const char* given = std::getenv("MILLRACE_TEST_PYTHONS");
    std::istringstream lines(given != nullptr ? given : "python3");
    for (std::string command; std::getline(lines, command);) {
        SCOPED_TRACE(command);
        std::uint32_t minor = 0;
        ASSERT_TRUE(with_interpreter(command, [&](OtherMemory& memory, const PythonLayout& layout, const auto& told) {
            minor = layout.minor;
            for (const auto& [name, function] : told) {
                const std::vector<LineRange> found = python_loops(memory, layout, function.code);
                if (!knows_loops(minor)) {
                    EXPECT_TRUE(found.empty());
                    continue;
                }
                ASSERT_EQ(found.size(), function.loops.size()) << name;
                for (std::size_t i = 0; i < found.size(); ++i) {
                    // `while True` has no instruction of its own, and a loop's last lines may be handlers that lie elsewhere.
                    EXPECT_GE(found[i].first, function.loops[i].first) << name;
                    EXPECT_LE(found[i].first, function.loops[i].first + 2) << name;
                    EXPECT_LE(found[i].last, function.loops[i].last) << name;
                    EXPECT_GE(found[i].last + 3, function.loops[i].last) << name;
                }
            }
        }));
        EXPECT_NE(minor, 0u) << "the interpreter is understood";
    }
}

TEST(PythonLoops, CodeThatMakesNoSenseHasNone) {
    struct Nothing {
        bool read(std::uint64_t, void*, std::size_t) const { return false; }
    } nothing;
    EXPECT_TRUE(python_loops(nothing, python_table(0x030b07f0), 4096).empty());
    std::uint64_t seed = 1;
    for (const std::uint32_t minor : {9u, 10u, 11u, 12u, 13u})
        for (int round = 0; round < 2000; ++round) {
            std::vector<std::uint8_t> bytes(2 * static_cast<std::size_t>(round % 50));
            for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>((seed = seed * 6364136223846793005u + 1) >> 56);
            for (const auto& [begin, end] : loops_in(bytes, minor)) EXPECT_LT(begin, end);
        }
    // A tracer has put its own instruction into it: 3.12's for a line.
    EXPECT_TRUE(loops_in({93, 2, 0, 0, 254, 0, 140, 4}, 12).empty());
    EXPECT_FALSE(loops_in({93, 2, 0, 0, 9, 0, 140, 4}, 12).empty());
}

}  // namespace
}  // namespace millrace::record
