#pragma once
// trace.bin of a run directory: what the probe recorded and what was seen from outside, in frames that only get appended.
// docs/run-format.md has the bytes. Times are CLOCK_MONOTONIC in nanoseconds unless they say otherwise.

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
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
    std::uint32_t stack = 0;  ///< TraceReader::stack; 0: none
    std::uint32_t wait = 0;   ///< TraceReader::name of the system call it is in; 0: none or unknown
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
    /// What whoever reads the trace should know: no CUPTI, another profiler.
    base::Status note(std::string_view text);
    /// The number of a stack (innermost frame first) for samples; equal stacks have equal numbers. 0 when there are too many.
    std::uint32_t stack(std::span<const TraceFrame> frames);
    /// The number of a name for samples. 0 for the empty name and when there are too many.
    std::uint32_t name(std::string_view text);

    /// Hands everything to the system. After an error the file ends with its last whole frame, and what was lost is counted.
    base::Status flush();
    [[nodiscard]] std::uint64_t bytes() const;  ///< of the file so far
    [[nodiscard]] std::uint64_t lost_frames() const;

    TraceWriter(TraceWriter&&) noexcept;
    TraceWriter& operator=(TraceWriter&&) noexcept;
    ~TraceWriter();  ///< flushes

private:
    struct State;
    explicit TraceWriter(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

/// What a reader passes over.
struct TraceDamage {
    std::uint64_t torn_bytes = 0;      ///< behind the last whole frame: being written, or cut by a crash
    std::uint64_t bad_frames = 0;      ///< with a wrong checksum, or of which the content makes no sense
    std::uint64_t unknown_frames = 0;  ///< of later versions
    std::uint64_t forgotten = 0;       ///< texts, sites, stacks beyond the limits
    bool operator==(const TraceDamage&) const = default;
};

/// How much of a trace's dictionaries is kept in memory.
struct TraceLimits {
    std::size_t text_bytes = std::size_t{128} << 20;
    std::size_t entries = std::size_t{1} << 21;
};

/// Gets a trace record by record, in the order of each lane. Everything behind a reference is gone after the call.
class TraceVisitor {
public:
    virtual ~TraceVisitor() = default;
    /// All kinds but kText and kSite, which the reader keeps. `arguments` are those of kArguments.
    virtual void record(const TraceOrigin&, const Record&, std::span<const Argument> /*arguments*/) {}
    virtual void sample(const TraceSample&) {}
    virtual void block(const TraceBlock&) {}
};

/// Reads a trace that may be torn, growing, foreign or hostile; memory is bounded by the limits and one frame (16 MiB).
class TraceReader {
public:
    /// Goes through the file once for what records refer to (lanes name texts that other lanes define later). Fails when the file
    /// cannot be opened or does not begin like a trace.
    static base::Result<TraceReader> open(const io::Path& path, const TraceLimits& limits = {});

    /// Goes through what the file held when it was opened.
    base::Status visit(TraceVisitor& visitor) const;

    /// The text of a number in a record of that origin (the lane does not matter); empty when unknown.
    [[nodiscard]] std::string_view text(const TraceOrigin& origin, std::uint32_t id) const;
    /// The call stack of Record::site, innermost first; empty when unknown.
    [[nodiscard]] std::vector<TraceFrame> site(const TraceOrigin& origin, std::uint32_t id) const;
    [[nodiscard]] const std::vector<TraceFrame>& stack(std::uint32_t id) const;  ///< of samples; empty when unknown
    [[nodiscard]] std::string_view name(std::uint32_t id) const;                 ///< of samples; empty when unknown

    [[nodiscard]] const std::vector<TraceProcess>& processes() const { return processes_; }  ///< by first appearance
    [[nodiscard]] const std::vector<TraceClock>& clocks() const { return clocks_; }
    [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
    [[nodiscard]] const TraceDamage& damage() const { return damage_; }
    /// Seconds since 1970 at a moment of the trace, by the nearest pair of clocks; 0 without any.
    [[nodiscard]] double wall(std::uint64_t monotonic) const;

private:
    using Key = std::tuple<std::uint32_t, std::uint16_t, std::uint32_t>;  ///< pid, incarnation, number
    struct KeyHash {
        std::size_t operator()(const Key& key) const {
            const std::uint64_t process = std::uint64_t{std::get<0>(key)} << 16 | std::get<1>(key);
            return std::hash<std::uint64_t>{}(process * 0x9e3779b97f4a7c15u ^
                                              std::uint64_t{std::get<2>(key)} * 0xc2b2ae3d27d4eb4fu);
        }
    };
    class Collector;

    TraceReader() = default;

    io::Path path_;
    std::uint64_t end_ = 0;  ///< of the last frame when it was opened
    std::unordered_map<Key, std::string, KeyHash> texts_;
    std::unordered_map<Key, std::vector<SiteFrame>, KeyHash> sites_;
    std::unordered_map<std::uint32_t, std::vector<TraceFrame>> stacks_;
    std::unordered_map<std::uint32_t, std::string> names_;
    std::vector<TraceProcess> processes_;
    std::vector<TraceClock> clocks_;
    std::vector<std::string> notes_;
    TraceDamage damage_;
};

}  // namespace millrace::record
