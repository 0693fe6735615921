#pragma once
// The Python threads of another process and their stacks, read with process_vm_readv while it runs. It is neither stopped nor
// asked; what changed between two reads is noticed as far as it can be (record/python_frames.h) and else left out.

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "record/python_frames.h"
#include "record/trace_file.h"

namespace millrace::record {

using SharedStack = std::shared_ptr<const std::vector<TraceFrame>>;

class PythonProcess {
public:
    /// Finds the interpreter by the symbols of the program and of a libpython it has mapped. Absent when there is none, it is of
    /// a version that is not understood, or the process may not be read. `proc` is "/proc" but in tests.
    static std::optional<PythonProcess> attach(pid_t pid, const std::string& proc = "/proc");

    /// The threads that it has now, at most 256; their numbers are gettid as the process itself has it (process_numbers.h).
    std::vector<PythonThread> threads();
    /// The stack of the thread with this state, innermost frame first; null when there is nothing to be read. While its
    /// interpreter collects garbage, which all of its threads wait for, a frame that says so comes first (kCollectingFunction).
    /// Equal stacks are the same object as long as they are remembered. Adds to `loops` those of functions that are new.
    SharedStack stack(std::uint64_t state, std::vector<FunctionLoops>& loops);

private:
    PythonProcess(pid_t pid, std::uint32_t own_number, std::uint64_t runtime, std::uint64_t code_type, const PythonLayout& layout)
        : pid_(pid), own_number_(own_number), runtime_(runtime), code_type_(code_type), layout_(layout) {}

    [[nodiscard]] bool is_collecting(std::uint64_t state);

    pid_t pid_;
    std::uint64_t interpreter_ = 0, collecting_ = 0;  ///< where the second of these says whether it collects; 0 unknown
    std::uint32_t own_number_;
    std::uint64_t runtime_, code_type_;
    PythonLayout layout_;
    struct Known {
        std::vector<PythonFrame> frames;
        bool collecting = false;
        SharedStack stack;
    };
    std::unordered_map<std::uint64_t, Known> known_;  ///< by hash; forgotten now and then, since code objects come and go
    std::unordered_set<std::uint64_t> looked_into_;   ///< code objects; forgotten with the stacks
    std::uint64_t asked_ = 0;
};

}  // namespace millrace::record
