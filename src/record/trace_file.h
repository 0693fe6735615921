#pragma once
// trace.bin of a run directory: what the probe recorded and what was seen from outside, in frames that only get appended.
// docs/trace-format.md has the bytes. Times are CLOCK_MONOTONIC in nanoseconds unless they say otherwise.

#include <compare>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
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
    auto operator<=>(const TraceOrigin&) const = default;  // NOLINT(modernize-use-nullptr): its own comparison with 0
};

/// One frame of a stack. Of native code `file` is the library and `line` the offset in it.
struct TraceFrame {
    std::string file, function;
    std::uint32_t line = 0;  ///< 0: unknown
    bool native = false;
    auto operator<=>(const TraceFrame&) const = default;  // NOLINT(modernize-use-nullptr): its own comparison with 0
};

/// A sample taken while Python collects garbage has this native frame before all others.
constexpr std::string_view kInterpreterFile = "[interpreter]", kCollectingFunction = "garbage collection";

/// What a thread was doing at one moment, seen from outside.
struct TraceSample {
    std::uint64_t time = 0;
    std::uint32_t pid = 0, thread = 0;
    std::uint32_t stack = 0;  ///< diagnose::TraceReader::stack; 0: none
    std::uint32_t wait = 0;   ///< diagnose::TraceReader::name of the system call it is in; 0: none or unknown
    char state = '?';         ///< of /proc: R runs, S sleeps, D waits for a disk
    char reserved[7] = {};
};
static_assert(sizeof(TraceSample) == 32, "a row of the file");

/// Steps that were counted outside of windows.
struct TraceBlock {
    std::uint64_t begin = 0, end = 0;
    double steps = 0;
    std::uint32_t pid = 0;
    std::uint16_t calls_per_step = 0;  ///< 0 unknown
    CallKind call = CallKind::kOther;  ///< that was counted
    std::uint8_t reserved = 0;
};
static_assert(sizeof(TraceBlock) == 32, "a row of the file");

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

// The frames of the file: a head of 16 bytes, then `stored` bytes.

constexpr std::string_view kTraceMagic = "millrace trace 1";  ///< the file begins with it
constexpr std::uint32_t kTraceFrameCap = 16u << 20;           ///< of a frame's content

enum class FrameKind : std::uint8_t {
    kRecords = 1,
    kSamples = 2,
    kBlocks = 3,
    kProcess = 4,
    kClock = 5,
    kNote = 6,
    kStack = 7,
    kName = 8,
    kLoops = 9,
};

enum class FramePacking : std::uint8_t { kPlain = 0, kZstd = 1 };

/// A frame as it stands in the file. `content` is at most kTraceFrameCap bytes.
std::vector<std::byte> pack_frame(FrameKind kind, io::Bytes content);

struct FrameScan {
    std::uint64_t end = 0;         ///< behind the last whole frame
    std::uint64_t torn_bytes = 0;  ///< behind that
    std::uint64_t bad_frames = 0;  ///< checksum or packing is wrong
};

/// Calls `use` for each frame of the file up to `end` (0: all there is). Fails when the file cannot be read or is no trace.
base::Result<FrameScan> scan_frames(const io::Path& path, std::uint64_t end,
                                    const std::function<void(std::uint8_t, io::Bytes)>& use);

/// Rows of one size differ little from those before them: as differences, byte by byte of all rows, they compress twice as well.
/// `rows` is a multiple of `width`, which is a multiple of 4; appends as many bytes.
void spread_rows(io::Bytes rows, std::size_t width, std::string& to);
/// The inverse.
std::vector<std::byte> gather_rows(io::Bytes from, std::size_t width);

constexpr std::size_t kTraceTextCap = std::size_t{64} << 10;  ///< of one text
constexpr std::size_t kTraceStackCap = 256;                   ///< frames of one stack

struct ProcessHead {
    std::uint64_t appeared = 0, ended = 0;
    std::uint32_t pid = 0, parent = 0, main_thread = 0, has_gpu = 0;
};
static_assert(sizeof(ProcessHead) == 32);

/// Takes the content of a frame apart: fixed parts as structs, texts as length and bytes; absent as soon as something does not
/// fit, and then for good.
class ContentReader {
public:
    explicit ContentReader(io::Bytes bytes) : bytes_(bytes) {}
    template <class T>
    std::optional<T> get() {
        static_assert(std::is_trivially_copyable_v<T>);
        if (bytes_.size() < sizeof(T)) return fail<T>();
        T value{};
        std::memcpy(&value, bytes_.data(), sizeof value);
        bytes_ = bytes_.subspan(sizeof value);
        return value;
    }
    std::optional<std::string> get_text() {
        const auto size = get<std::uint32_t>();
        if (!size || *size > kTraceTextCap || *size > bytes_.size()) return fail<std::string>();
        std::string text(reinterpret_cast<const char*>(bytes_.data()), *size);
        bytes_ = bytes_.subspan(*size);
        return text;
    }
    [[nodiscard]] io::Bytes rest() const { return bytes_; }

private:
    template <class T>
    std::optional<T> fail() {
        bytes_ = {};
        return std::nullopt;
    }
    io::Bytes bytes_;
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
    [[nodiscard]] std::uint64_t bytes() const { return written_; }  ///< of the file so far

    TraceWriter(TraceWriter&&) noexcept = default;
    ~TraceWriter();  ///< flushes

private:
    TraceWriter(io::FileDescriptor file, io::Path path) : file_(std::move(file)), path_(std::move(path)) {}
    base::Status append(io::Bytes bytes);
    base::Status frame(FrameKind kind, const std::string& content);
    base::Status flush_lane(const TraceOrigin& lane, std::vector<Record>& slots);
    base::Status flush_lanes();
    base::Status flush_samples();

    io::FileDescriptor file_;
    io::Path path_;
    std::uint64_t written_ = 0;
    std::map<TraceOrigin, std::vector<Record>> lanes_;
    std::size_t waiting_ = 0;  ///< slots in all lanes
    std::vector<TraceSample> samples_;
    std::map<std::vector<TraceFrame>, std::uint32_t> stacks_;
    std::map<std::string, std::uint32_t, std::less<>> names_;
};

}  // namespace millrace::record
