#pragma once
// The calls the probe knows and what their parameters say.

#include <cstdint>

#include "probe/cupti_abi.h"
#include "record/probe_records.h"

namespace millrace::probe {

/// How the parameters of a call lie in memory.
enum class Shape : std::uint8_t {
    kNothing,
    kRuntimeLaunch,
    kDriverLaunch,
    kCooperative,
    kLaunchEx,
    kFirstStream,
    kSecondStream,
    kEvent,
    kEventStream,
    kStreamEvent,
    kCopyWithKind,
    kCopyWithKindAsync,
    kCopyRows,
    kCopyRowsAsync,
    kSymbolCopy,
    kUpload,
    kUploadAsync,
    kDownload,
    kDownloadAsync,
    kDeviceCopy,
    kDeviceCopyAsync,
    kSet,
    kSetAsync,
    kSetWords,
    kSetWordsAsync,
    kTake,
    kGive,
    kMapped,
    kHostTake,
};

struct CallInfo {
    std::uint32_t domain, number;
    const char* name;
    record::CallKind kind;
    Shape shape;
};

constexpr std::uint32_t kMostCalls = 192;
std::uint32_t call_count();
const CallInfo& call_at(std::uint32_t index);
/// Index of a call; call_count() for one that is not known. prepare_calls() comes first.
std::uint32_t call_index(std::uint32_t domain, std::uint32_t number);
void prepare_calls();

struct CallFacts {
    std::uint64_t bytes = 0;
    std::uint64_t address = 0;  ///< device memory that the call is about, or the event
    std::uint64_t source = 0;   ///< of uploads: where the bytes lie in host memory
    std::uint64_t stream = 0;   ///< the handle
    bool has_stream = false;
    record::MemoryKind from = record::MemoryKind::kUnknown, to = record::MemoryKind::kUnknown;
    std::uint32_t grid = 0;           ///< hash, as in records of kernels
    std::uint64_t function = 0;       ///< of launches: a handle of the driver, 0 when it is the runtime's
    const void* arguments = nullptr;  ///< of launches: array of pointers to arguments
    const void* block = nullptr;      ///< of launches of the driver: pairs of a key and a pointer that stand for arguments
};
CallFacts facts_of(const CallInfo& call, const void* parameters);

/// Hash of grid and block, six 32-bit numbers in a row.
std::uint32_t grid_hash(const void* sizes);

/// Whether the place of such a call is of interest in every step of a window: it blocks, takes or gives memory, or uploads.
bool wants_site(record::CallKind kind);
/// Whether programs make such calls many times a step.
bool is_frequent(record::CallKind kind);
/// Launches, copies and sets.
inline bool gives_work(record::CallKind kind) { return kind != record::CallKind::kOther && kind <= record::CallKind::kSetAsync; }
/// Whether such calls are about an event.
bool concerns_event(record::CallKind kind);
/// Whether the call takes or gives device memory.
bool is_memory_call(const CallInfo& call);

}  // namespace millrace::probe
