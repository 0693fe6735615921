#pragma once
// What a program and its GPU did, from any source: a recording of ours, a trace of PyTorch's profiler, a run of `train`.
// Readers fill it, everything else in diagnose/ only reads it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "record/probe_records.h"
#include "record/step_loops.h"

namespace millrace::diagnose {

using Time = std::int64_t;  ///< nanoseconds; one origin per timeline
using record::CallKind;
using record::MemoryKind;
using record::WorkKind;

constexpr double ms_of(Time time) { return static_cast<double>(time) * 1e-6; }

constexpr std::uint32_t kNoStack = 0, kNoName = 0;

struct Frame {
    std::string file;  ///< as the interpreter has it; of native code the library
    int line = 0;      ///< 0: unknown
    std::string function;
    bool native = false;
    bool operator==(const Frame&) const = default;
};

/// Innermost first. Stack 0 is empty.
using Stack = std::vector<Frame>;

struct Call {
    Time begin = 0, end = 0;
    std::uint32_t process = 0, thread = 0;
    CallKind kind = CallKind::kOther;
    bool failed = false;
    std::uint32_t name = kNoName, stack = kNoStack;
    std::uint32_t correlation = 0;  ///< 0: started no work
    std::uint64_t bytes = 0;
    MemoryKind from = MemoryKind::kUnknown, to = MemoryKind::kUnknown;  ///< of copies
    std::uint64_t content = 0;                                          ///< hash of what was uploaded; 0 not taken
    std::uint32_t stream = 0;  ///< that it waits for or acts on, numbered as in Work; 0 unknown
    std::uint32_t notes = 0;   ///< operators and functions that another profiler noted on its thread since the call before
    std::uint64_t event = 0;   ///< that it records or waits for; 0 unknown
};

struct Work {
    Time begin = 0, end = 0;
    std::uint32_t process = 0;
    std::uint16_t device = 0;
    WorkKind kind = WorkKind::kKernel;
    bool communication = false;  ///< NCCL and its like
    std::uint32_t stream = 0, name = kNoName, correlation = 0;
    std::uint32_t shape = 0;       ///< hash of grid and block
    std::uint64_t graph_node = 0;  ///< 0: not part of a graph
    std::uint64_t bytes = 0;
    MemoryKind from = MemoryKind::kUnknown, to = MemoryKind::kUnknown;
    std::uint64_t launch = 0;  ///< of kernels record::LaunchSize, packed; 0 unknown
};

/// What a launch was given (diagnose/reading/kernel_parameters.h): pointers into device memory, and a hash of what else counts.
struct Arguments {
    std::uint32_t process = 0, correlation = 0;
    std::vector<std::uint64_t> pointers;
    std::uint64_t rest = 0;
};

/// A range that the program or its framework marked: NVTX, ProfilerStep#n, DataLoader.
struct Range {
    Time begin = 0, end = 0;
    std::uint32_t process = 0, thread = 0, name = kNoName;
};

/// What a thread was doing at one moment, seen from outside.
struct Sample {
    Time time = 0;
    std::uint32_t process = 0, thread = 0;
    char state = '?';  ///< of /proc: R runs, S sleeps, D waits for a disk
    std::uint32_t stack = kNoStack;
    std::uint32_t wait = kNoName;  ///< the system call it is in, such as "futex", "poll", "write"
};

/// A stretch in which everything was recorded.
struct Window {
    Time begin = 0, end = 0;
    std::uint32_t process = 0;
};

/// Steps counted while nothing else was recorded: what speed is without recording.
struct Block {
    Time begin = 0, end = 0;
    double steps = 0;
    std::optional<double> loader_wait_ms = std::nullopt;  ///< per step, where the program itself measures it
    CallKind call = CallKind::kOther;                     ///< by which steps were counted, and how many of it made one; 0 unknown
    double calls_per_step = 0;
    std::uint32_t process = 0;  ///< 0: unknown, or the only one
};

struct Process {
    std::uint32_t pid = 0, parent = 0;
    std::string command;
    bool has_gpu = false;
    std::uint32_t main_thread = 0;  ///< the one that launches most; 0 unknown
};

/// Samples of the machine (samples.jsonl) and the GPU with most work. Shares are 0 to 1; absent is not measured.
struct MachineSample {
    Time time = 0;
    std::optional<double> gpu_utilization, sm_active, tensor_active, memory_used_bytes, memory_total_bytes, power_watts,
        power_limit_watts, cpu_utilization;
    std::optional<bool> throttled;
    std::string throttle_reason;
};

/// Of a GPU: how many, and what one of them holds at a time.
struct Multiprocessors {
    std::uint32_t count = 0;  ///< 0: not known
    std::uint32_t threads = 0, blocks = 0, shared_bytes = 0;
    std::uint32_t reserved = 0;  ///< of shared memory, for each block
    bool operator==(const Multiprocessors&) const = default;
};

enum class Source { kRecording, kKineto, kTraining };

struct Timeline {
    Source source = Source::kRecording;
    std::string title;  ///< the command line, or the trace's name
    std::string device_name;
    std::optional<double> link_bytes_per_second;  ///< host to device, as the link's generation and width allow
    bool link_is_assumed = false;                 ///< from what such GPUs have: this one was not read
    Multiprocessors multiprocessors;
    std::uint32_t processors = 0;    ///< of the machine; 0 unknown
    Window run;                      ///< from the command's first process to its last moment; empty: not known
    std::vector<std::string> names;  ///< [0] is empty
    std::vector<Stack> stacks;       ///< [0] is empty
    record::LoopTable loops;         ///< of the functions in stacks; clean_text may have changed those
    std::vector<Process> processes;
    std::vector<Call> calls;           ///< by begin
    std::vector<Work> work;            ///< by begin
    std::vector<Arguments> arguments;  ///< by (process, correlation)
    std::vector<Range> ranges;         ///< by begin
    std::vector<Sample> samples;       ///< by time
    std::vector<Range> collections;    ///< garbage collections, where a trace marks them; of recordings samples show them
    std::vector<Range> profiler_work;  ///< what another profiler did in the program's time, such as emptying its buffers
    std::vector<Window> windows;       ///< by begin; of a trace, one
    std::vector<Window> left_out;      ///< windows of which nothing else is kept; they took time, too
    std::vector<Block> blocks;         ///< by begin
    double counting_share = 0;         ///< of the time in blocks that counting their steps cost, as far as known
    double presence_share = 1;         ///< of the time in blocks in which CUPTI was in the process, silent or not
    std::vector<MachineSample> machine;
    std::uint64_t dropped = 0;  ///< records that did not fit
    bool has_call_stacks = false;
    std::vector<std::string> remarks;  ///< what a reader should know: no CUPTI, torn frames, another profiler
};

}  // namespace millrace::diagnose
