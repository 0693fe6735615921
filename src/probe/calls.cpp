#include "probe/calls.h"

#include <string.h>

#include "probe/hash.h"

namespace millrace::probe {
namespace {

using record::CallKind;
using record::MemoryKind;

constexpr CallInfo kCalls[] = {
#define CALL(domain, name, number, kind, shape) {k##domain##Domain, number, #name, CallKind::kind, Shape::shape},
#include "probe/call_list.h"
#undef CALL
};
constexpr std::uint32_t kCount = sizeof kCalls / sizeof kCalls[0];
static_assert(kCount < kMostCalls && kMostCalls <= 255);

constexpr std::uint32_t kNumbers = 1024;
std::uint8_t index_of[2][kNumbers];

template <class Value>
Value at(const void* parameters, std::size_t offset) {
    Value value;
    ::memcpy(&value, static_cast<const char*>(parameters) + offset, sizeof value);
    return value;
}

std::uint64_t word(const void* parameters, std::size_t index) { return at<std::uint64_t>(parameters, index * 8); }

/// cudaMemcpyKind; what "default" means is told by who knows the ranges.
void set_direction(CallFacts& facts, std::uint32_t kind, std::uint64_t source) {
    constexpr std::uint32_t kToDevice = 1, kToHost = 2, kOnDevice = 3;
    if (kind == kToDevice) facts.to = MemoryKind::kDevice;
    if (kind == kToDevice) facts.source = source;
    if (kind == kToHost) facts.from = MemoryKind::kDevice;
    if (kind == kOnDevice) facts.from = facts.to = MemoryKind::kDevice;
}

void set_stream(CallFacts& facts, const void* parameters, std::size_t index) {
    facts.stream = word(parameters, index);
    facts.has_stream = true;
}

void read_launch(CallFacts& facts, const CallInfo& call, const void* parameters) {
    std::uint64_t function = 0;
    if (call.shape == Shape::kLaunchEx) {
        const auto* config = at<const void*>(parameters, launch_at::kConfig);
        function = at<std::uint64_t>(parameters, launch_at::kExFunction);
        facts.arguments = at<const void*>(parameters, launch_at::kExArguments);
        if (call.domain == kDriverDomain) facts.block = at<const void*>(parameters, launch_at::kExBlock);
        if (config != nullptr) {
            facts.grid = grid_hash(config);
            facts.stream = at<std::uint64_t>(config, launch_at::kConfigStream);
            facts.has_stream = true;
        }
    } else {
        const bool runtime = call.shape == Shape::kRuntimeLaunch;
        function = at<std::uint64_t>(parameters, launch_at::kFunction);
        facts.grid = grid_hash(static_cast<const char*>(parameters) + launch_at::kGrid);
        facts.stream = at<std::uint64_t>(parameters, runtime ? launch_at::kStream : launch_at::kDriverStream);
        facts.has_stream = true;
        facts.arguments = at<const void*>(parameters, runtime ? launch_at::kArguments : launch_at::kDriverArguments);
        // Cooperative launches end with their arguments.
        if (!runtime && call.shape != Shape::kCooperative) facts.block = at<const void*>(parameters, launch_at::kDriverBlock);
    }
    if (call.domain == kDriverDomain) facts.function = function;
}

void read_copy(CallFacts& facts, Shape shape, const void* parameters) {
    switch (shape) {
        case Shape::kCopyWithKindAsync: set_stream(facts, parameters, 4); [[fallthrough]];
        case Shape::kCopyWithKind:
            facts.address = word(parameters, 0);
            facts.bytes = word(parameters, 2);
            set_direction(facts, at<std::uint32_t>(parameters, 24), word(parameters, 1));
            break;
        case Shape::kCopyRowsAsync: set_stream(facts, parameters, 7); [[fallthrough]];
        case Shape::kCopyRows:
            facts.address = word(parameters, 0);
            facts.bytes = word(parameters, 4) * word(parameters, 5);
            set_direction(facts, at<std::uint32_t>(parameters, 48), 0);
            break;
        case Shape::kSymbolCopy: facts.bytes = word(parameters, 2); break;
        case Shape::kUploadAsync: set_stream(facts, parameters, 3); [[fallthrough]];
        case Shape::kUpload:
            facts.address = word(parameters, 0);
            facts.source = word(parameters, 1);
            facts.bytes = word(parameters, 2);
            facts.to = MemoryKind::kDevice;
            break;
        case Shape::kDownloadAsync: set_stream(facts, parameters, 3); [[fallthrough]];
        case Shape::kDownload:
            facts.address = word(parameters, 1);
            facts.bytes = word(parameters, 2);
            facts.from = MemoryKind::kDevice;
            break;
        case Shape::kDeviceCopyAsync: set_stream(facts, parameters, 3); [[fallthrough]];
        case Shape::kDeviceCopy:
            facts.address = word(parameters, 0);
            facts.bytes = word(parameters, 2);
            break;
        case Shape::kSetAsync:
        case Shape::kSetWordsAsync: set_stream(facts, parameters, 3); [[fallthrough]];
        default:
            facts.address = word(parameters, 0);
            facts.bytes = word(parameters, 2) * (shape == Shape::kSetWords || shape == Shape::kSetWordsAsync ? 4 : 1);
            facts.to = MemoryKind::kDevice;
    }
}

}  // namespace

std::uint32_t call_count() { return kCount; }
const CallInfo& call_at(std::uint32_t index) { return kCalls[index]; }

void prepare_calls() {
    ::memset(index_of, kCount, sizeof index_of);
    for (std::uint32_t i = 0; i < kCount; ++i) index_of[kCalls[i].domain - 1][kCalls[i].number] = static_cast<std::uint8_t>(i);
}

std::uint32_t call_index(std::uint32_t domain, std::uint32_t number) {
    return (domain == kDriverDomain || domain == kRuntimeDomain) && number < kNumbers ? index_of[domain - 1][number] : kCount;
}

std::uint32_t grid_hash(const void* sizes) {
    std::uint64_t words[3];
    ::memcpy(words, sizes, sizeof words);
    const std::uint64_t hash = hash_more(hash_more(hash_more(0, words[0]), words[1]), words[2]);
    return static_cast<std::uint32_t>(hash ^ hash >> 32);
}

CallFacts facts_of(const CallInfo& call, const void* parameters) {
    CallFacts facts;
    if (parameters == nullptr) return facts;
    switch (call.shape) {
        case Shape::kNothing: break;
        case Shape::kRuntimeLaunch:
        case Shape::kDriverLaunch:
        case Shape::kCooperative:
        case Shape::kLaunchEx: read_launch(facts, call, parameters); break;
        case Shape::kFirstStream: set_stream(facts, parameters, 0); break;
        case Shape::kSecondStream: set_stream(facts, parameters, 1); break;
        case Shape::kEvent: facts.address = word(parameters, 0); break;
        case Shape::kEventStream:
            facts.address = word(parameters, 0);
            set_stream(facts, parameters, 1);
            break;
        case Shape::kStreamEvent:
            set_stream(facts, parameters, 0);
            facts.address = word(parameters, 1);
            break;
        case Shape::kTake:
        case Shape::kHostTake: facts.bytes = word(parameters, 1); break;
        case Shape::kGive: facts.address = word(parameters, 0); break;
        case Shape::kMapped:
            facts.address = word(parameters, 0);
            facts.bytes = word(parameters, 1);
            break;
        default: read_copy(facts, call.shape, parameters);
    }
    return facts;
}

bool wants_site(CallKind kind) {
    switch (kind) {
        case CallKind::kCopy:
        case CallKind::kCopyAsync:
        case CallKind::kSet:
        case CallKind::kSetAsync:
        case CallKind::kGraphLaunch:
        case CallKind::kEventRecord:
        case CallKind::kDeviceSync:
        case CallKind::kStreamSync:
        case CallKind::kEventSync:
        case CallKind::kAlloc:
        case CallKind::kFree:
        case CallKind::kAllocAsync:
        case CallKind::kFreeAsync:
        case CallKind::kHostAlloc:
        case CallKind::kHostFree:
        case CallKind::kHostRegister:
        case CallKind::kCapture:
        case CallKind::kModuleLoad: return true;
        default: return false;
    }
}

bool is_frequent(CallKind kind) {
    switch (kind) {
        case CallKind::kLaunch:
        case CallKind::kGraphLaunch:
        case CallKind::kCopyAsync:
        case CallKind::kSetAsync:
        case CallKind::kStreamSync:
        case CallKind::kEventRecord:
        case CallKind::kEventQuery:
        case CallKind::kStreamWait:
        case CallKind::kStreamQuery: return true;
        default: return false;
    }
}

bool concerns_event(CallKind kind) {
    return kind == CallKind::kEventRecord || kind == CallKind::kEventQuery || kind == CallKind::kEventSync ||
           kind == CallKind::kStreamWait;
}

bool is_memory_call(const CallInfo& call) {
    return call.shape == Shape::kTake || call.shape == Shape::kGive ||
           (call.shape == Shape::kMapped && (call.kind == CallKind::kAlloc || call.kind == CallKind::kFree));
}

}  // namespace millrace::probe
