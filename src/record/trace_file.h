#pragma once
// trace.bin of a run directory: what the probe recorded and what was seen from outside, in frames that only get appended.
// docs/run-format.md has the bytes. Times are CLOCK_MONOTONIC in nanoseconds unless they say otherwise.

#include <compare>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"
#include "record/probe_records.h"

namespace millrace::record {

constexpr const char* kTraceName = "trace.bin";

/// Who made a record. Texts and sites have numbers of their own in each incarnation: a process that executes another program
/// keeps its number and begins a new one.
struct TraceOrigin {
    std::uint32_t pid = 0;
    std::uint16_t incarnation = 0;
    std::uint16_t lane = 0;
};

/// One frame of a stack. Of native code `file` is the library and `line` the offset in it.
struct TraceFrame {
    std::string file, function;
    std::uint32_t line = 0;  ///< 0: unknown
    bool native = false;
    auto operator<=>(const TraceFrame&) const = default;  // NOLINT(modernize-use-nullptr): its own comparison with 0
};

/// What a thread was doing at one moment, seen from outside.
/// A sample taken while Python collects garbage has this native frame before all others.
constexpr std::string_view kInterpreterFile = "[interpreter]", kCollectingFunction = "garbage collection";

struct TraceSample {
    std::uint64_t time = 0;
    std::uint32_t pid = 0, thread = 0;
    std::uint32_t stack = 0;  ///< diagnose::TraceReader::stack; 0: none
    std::uint32_t wait = 0;   ///< diagnose::TraceReader::name of the system call it is in; 0: none or unknown
    char state = '?';         ///< of /proc: R runs, S sleeps, D waits for a disk
};

/// Steps that were counted outside of windows.
struct TraceBlock {
    std::uint64_t begin = 0, end = 0;
    double steps = 0;
    std::uint32_t pid = 0;
    CallKind call = CallKind::kOther;  ///< that was counted
    std::uint16_t calls_per_step = 0;  ///< of it; 0 unknown
};

/// A process of the tree. It may come again with more that is known; what comes last holds.
struct TraceProcess {
    std::uint32_t pid = 0, parent = 0;
    std::uint32_t main_thread = 0;          ///< the one that launches most; 0 unknown
    bool has_gpu = false;                   ///< it was probed
    std::uint64_t appeared = 0, ended = 0;  ///< 0: not yet
    std::string command;
};

/// The same moment on two clocks: samples.jsonl and events.jsonl have calendar time.
struct TraceClock {
    std::uint64_t monotonic = 0;
    double wall = 0;  ///< seconds since 1970
};

/// Of the source; both lines are in it.
struct LineRange {
    std::uint32_t first = 0, last = 0;
    auto operator<=>(const LineRange&) const = default;  // NOLINT(modernize-use-nullptr): its own comparison with 0
    [[nodiscard]] bool holds(std::uint32_t line) const { return first <= line && line <= last; }
};

/// The loops of a Python function as its bytecode has them (record/python_loops.h); none is also an answer.
struct FunctionLoops {
    std::string file, function;
    std::vector<LineRange> loops;  ///< ascending, outer ones before those in them
};

/// Not synchronised: one thread writes. Memory: what was not flushed (below 2 MiB) and the interned stacks and names (capped).
class TraceWriter {
public:
    /// Begins a new file; an existing one is an error.
    static base::Result<TraceWriter> create(const io::Path& path);

    /// `slots` are whole records, each with its parts behind it, in the order of the lane.
    base::Status records(const TraceOrigin& origin, std::span<const Record> slots);
    base::Status sample(const TraceSample& sample);
    base::Status block(const TraceBlock& block);
    base::Status process(const TraceProcess& process);
    base::Status clock(const TraceClock& clock);
    base::Status loops(const FunctionLoops& loops);
    /// For readers of the trace: why something was not recorded (no CUPTI, another profiler).
    base::Status note(std::string_view text);
    /// The number of a stack (innermost frame first) for samples; equal stacks have equal numbers. 0 when there are too many.
    std::uint32_t stack(std::span<const TraceFrame> frames);
    /// The number of a name for samples. 0 for the empty name and when there are too many.
    std::uint32_t name(std::string_view text);

    /// Hands everything to the system. After an error the file ends with its last whole frame.
    base::Status flush();
    [[nodiscard]] std::uint64_t bytes() const;  ///< of the file so far

    TraceWriter(TraceWriter&&) noexcept;
    TraceWriter& operator=(TraceWriter&&) noexcept;
    ~TraceWriter();  ///< flushes

private:
    struct State;
    explicit TraceWriter(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace millrace::record
