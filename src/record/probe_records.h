#pragma once
// What the probe says about a program: records of one size, in the order in which each lane (usually a thread) made them.
// The probe writes them into a shared mapping (record/probe_mapping.h), `millrace record` moves them into the run directory
// (record/trace_file.h), diagnose reads them back. Little endian; times are CLOCK_MONOTONIC in nanoseconds.
// The probe links libc alone, so nothing here needs more than headers.

#include <cstdint>
#include <optional>

namespace millrace::record {

enum class RecordKind : std::uint8_t {
    kNone = 0,
    kCall = 1,   ///< a call of the CUDA runtime or driver
    kWork = 2,   ///< a kernel, copy or set that ran on a device
    kRange = 4,  ///< a range the program marked itself (NVTX)
    kPulse =
        5,  ///< a call that was counted outside of windows: `begin` alone is filled, `bytes` has the number of it since the start
    kWindow = 6,      ///< full records begin (`flag` kWindowBegins) or end here; `bytes`: epoch of the control words
    kText = 7,        ///< `id` gets a text: `bytes` bytes follow in the next ceil(bytes / 64) slots of the lane
    kSite = 8,        ///< `id` gets a call stack: `count` frames follow in the next slots as SiteFrame, innermost first
    kMemory = 9,      ///< device memory was taken or given back (`what`: CallKind), also outside of windows: `extra`, `bytes`
    kArguments = 10,  ///< of the launch with this correlation: `count` values follow in the next slots as Argument
    kLost = 11,       ///< `bytes` records of this lane, or of CUPTI (flag kLostByCupti), did not fit before this one
    kLeft = 13,       ///< CUPTI has left the process for good, from `begin` to `end`
};

/// What a call does, whatever its name and version.
enum class CallKind : std::uint8_t {
    kOther = 0,
    kLaunch,
    kGraphLaunch,
    kCopy,
    kCopyAsync,
    kSet,
    kSetAsync,
    kDeviceSync,
    kStreamSync,
    kEventSync,
    kEventRecord,
    kEventQuery,
    kStreamWait,
    kStreamQuery,
    kAlloc,
    kFree,
    kAllocAsync,
    kFreeAsync,
    kHostAlloc,
    kHostFree,
    kHostRegister,
    kCapture,
    kModuleLoad,
    kHostFunction,
    kAttribute,
};

enum class WorkKind : std::uint8_t { kKernel = 0, kCopy, kSet };
enum class MemoryKind : std::uint8_t { kUnknown = 0, kPageable, kPinned, kDevice, kArray, kManaged };

enum RecordFlag : std::uint8_t {
    kWindowBegins = 1,
    kLostByCupti = 2,
    kFailedCall = 4,  ///< the call returned an error
    kInGraph = 8,     ///< work that a graph launched; `extra` has the node
    kLedCall = 32,    ///< the program's import of the call leads through the probe: it can be counted without CUPTI
};

struct Record {
    RecordKind kind = RecordKind::kNone;
    std::uint8_t flags = 0;         ///< RecordFlag
    std::uint8_t what = 0;          ///< CallKind, WorkKind
    std::uint8_t from = 0, to = 0;  ///< MemoryKind of copies
    std::uint8_t device = 0;
    std::uint16_t count = 0;        ///< of parts that follow; of pulses: CallKind
    std::uint32_t thread = 0;       ///< kernel's number of the thread (gettid); 0 when a device did it
    std::uint32_t correlation = 0;  ///< joins a call and the work it started; 0 none
    std::uint64_t begin = 0, end = 0;
    std::uint32_t id = 0;    ///< text: of a kernel, a call, a range; for kText and kSite the number that is given
    std::uint32_t site = 0;  ///< where the call was made; 0 not looked
    std::uint32_t stream = 0;
    std::uint32_t grid = 0;   ///< of kernels and their launches: hash of grid and block; of graphs: the graph's number
    std::uint64_t bytes = 0;  ///< of copies, sets and memory; of kernels their LaunchSize (0 unknown); see kinds
    std::uint64_t extra = 0;  ///< of uploads from the host: hash of the bytes (0 not taken); of work in graphs: node; of memory:
                              ///< address; of calls that record, ask or wait for an event: the event; of other calls 0
};
static_assert(sizeof(Record) == 64, "a slot of a lane");

/// A thread that runs no code of the interpreter has one frame: file "[thread]", its name as the function, native.
struct SiteFrame {
    std::uint32_t file = 0, function = 0;  ///< texts
    std::uint32_t line = 0;                ///< 0: unknown
    std::uint32_t native = 0;              ///< 1: an address in a library; `file` is the library, `line` the offset
};
static_assert(sizeof(SiteFrame) == 16, "four to a slot");

/// A word of a kernel's parameters, in the order of their bytes. Of kernels with many bytes of them only pointers are recorded.
/// The last one has the value 0 and is a hash of all bytes that are no pointers.
struct Argument {
    std::uint64_t value = 0;
    std::uint64_t index = 0;  ///< argument_index(), or the hash
};
static_assert(sizeof(Argument) == 16, "four to a slot");

constexpr std::uint64_t kNoPointer = std::uint64_t{1} << 63;  ///< in Argument::index: the value is no address of device memory
/// Byte `at` of the parameter block, the parameter's number and how many bytes of the word belong to it (1 to 8).
constexpr std::uint64_t argument_index(std::uint32_t at, std::uint32_t parameter, std::uint32_t bytes) {
    return at | std::uint64_t{parameter & 0xffff} << 32 | std::uint64_t{bytes} << 48;
}
constexpr std::uint32_t argument_at(std::uint64_t index) { return static_cast<std::uint32_t>(index); }
constexpr std::uint32_t argument_parameter(std::uint64_t index) { return static_cast<std::uint32_t>(index >> 32 & 0xffff); }
constexpr std::uint32_t argument_bytes(std::uint64_t index) { return static_cast<std::uint32_t>(index >> 48 & 0xf); }

constexpr std::uint16_t kMaxSiteFrames = 64, kMaxArguments = 384;
constexpr std::uint32_t kMaxTextBytes = 4096;

constexpr std::uint32_t kPartsPerSlot = 4;  ///< SiteFrame and Argument

/// Slots that follow `record` as its parts. For readers of records that another process wrote: absent when it is none of ours, an
/// unknown kind, or with more parts than are ever written.
constexpr std::optional<std::uint32_t> parts_behind(const Record& record) {
    const auto slots = [](std::uint32_t count, std::uint32_t per_slot) { return (count + per_slot - 1) / per_slot; };
    switch (record.kind) {
        case RecordKind::kCall:
        case RecordKind::kWork:
        case RecordKind::kRange:
        case RecordKind::kPulse:
        case RecordKind::kWindow:
        case RecordKind::kMemory:
        case RecordKind::kLost:
        case RecordKind::kLeft: return 0;
        case RecordKind::kText:
            if (record.bytes > kMaxTextBytes) return std::nullopt;
            return slots(static_cast<std::uint32_t>(record.bytes), sizeof(Record));
        case RecordKind::kSite:
            if (record.count > kMaxSiteFrames) return std::nullopt;
            return slots(record.count, kPartsPerSlot);
        case RecordKind::kArguments:
            if (record.count > kMaxArguments) return std::nullopt;
            return slots(record.count, kPartsPerSlot);
        case RecordKind::kNone: break;
    }
    return std::nullopt;
}

/// More than any record with its parts takes.
constexpr std::uint32_t kMostSlots = 1 + kMaxArguments / kPartsPerSlot;
static_assert(kMaxTextBytes / sizeof(Record) < kMostSlots && kMaxSiteFrames / kPartsPerSlot < kMostSlots);

/// How large a launched kernel is, in one word: what Record::bytes holds of kernels. 0: not known.
struct LaunchSize {
    std::uint64_t blocks = 0;        ///< of the grid
    std::uint32_t threads = 0;       ///< of a block
    std::uint32_t registers = 0;     ///< of a thread
    std::uint32_t shared_bytes = 0;  ///< of a block, static and dynamic; kept in steps of 128, as the device gives it
};

/// What does not fit is the largest number that does.
constexpr std::uint64_t packed(const LaunchSize& size) {
    const auto kept = [](std::uint64_t value, int bits, int at) {
        const std::uint64_t most = (std::uint64_t{1} << bits) - 1;
        return (value < most ? value : most) << at;
    };
    const std::uint64_t shared = (std::uint64_t{size.shared_bytes} + 127) / 128;
    return kept(size.blocks, 32, 0) | kept(size.threads, 12, 32) | kept(size.registers, 8, 44) | kept(shared, 12, 52);
}

constexpr LaunchSize unpacked(std::uint64_t word) {
    return {word & 0xffffffff, static_cast<std::uint32_t>(word >> 32 & 0xfff), static_cast<std::uint32_t>(word >> 44 & 0xff),
            static_cast<std::uint32_t>(word >> 52) * 128};
}

}  // namespace millrace::record
