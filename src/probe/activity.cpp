#include "probe/activity.h"

#include <string.h>
#include <sys/mman.h>

#include <atomic>

#include "probe/callbacks.h"
#include "probe/calls.h"
#include "probe/clock.h"
#include "probe/lanes.h"
#include "probe/log.h"
#include "probe/texts.h"
#include "record/probe_records.h"

namespace millrace::probe {
namespace {

using record::Record;
using record::RecordKind;
using record::WorkKind;

constexpr std::size_t kBufferBytes = std::size_t{1} << 20, kBuffers = 64;

std::uint8_t* pool = nullptr;
std::atomic<std::uint64_t> free_buffers{~std::uint64_t{0}};
std::atomic<std::int64_t> clock_offset{0};
std::atomic<bool> has_own_clock{false};
std::atomic<std::uint64_t> delivered{0}, kernels{0};

template <class Value>
Value at(const std::uint8_t* activity, std::size_t offset) {
    Value value;
    ::memcpy(&value, activity + offset, sizeof value);
    return value;
}

std::uint64_t time_at(const std::uint8_t* activity, std::size_t offset) {
    const auto time = at<std::uint64_t>(activity, offset);
    return time == 0 ? 0 : time + static_cast<std::uint64_t>(clock_offset.load(std::memory_order_relaxed));
}

std::uint8_t memory_kind(std::uint32_t kind) {
    constexpr std::uint8_t kDeviceStatic = 6, kManagedStatic = 7;
    if (kind == kDeviceStatic) return static_cast<std::uint8_t>(record::MemoryKind::kDevice);
    if (kind == kManagedStatic) return static_cast<std::uint8_t>(record::MemoryKind::kManaged);
    return kind < kDeviceStatic ? static_cast<std::uint8_t>(kind) : 0;
}

struct Places {
    std::size_t start, end, device, stream, correlation, node;
};

Record work_of(const std::uint8_t* activity, WorkKind what, const Places& places) {
    Record work;
    work.kind = RecordKind::kWork;
    work.what = static_cast<std::uint8_t>(what);
    work.begin = time_at(activity, places.start);
    work.end = time_at(activity, places.end);
    work.device = static_cast<std::uint8_t>(at<std::uint32_t>(activity, places.device));
    work.stream = at<std::uint32_t>(activity, places.stream);
    work.correlation = at<std::uint32_t>(activity, places.correlation);
    work.extra = at<std::uint64_t>(activity, places.node);
    if (work.extra != 0) work.flags = record::kInGraph;
    return work;
}

void write_kernel(ThreadState& thread, const std::uint8_t* activity) {
    using namespace kernel_at;
    Record work = work_of(activity, WorkKind::kKernel, {kStart, kEnd, kDevice, kStream, kCorrelation, kNode});
    work.grid = grid_hash(activity + kGrid);
    record::LaunchSize size{1, 1, at<std::uint16_t>(activity, kRegisters),
                            at<std::uint32_t>(activity, kStaticShared) + at<std::uint32_t>(activity, kDynamicShared)};
    for (std::size_t axis = 0; axis < 3; ++axis) {
        size.blocks *= at<std::uint32_t>(activity, kGrid + 4 * axis);
        size.threads *= at<std::uint32_t>(activity, kBlock + 4 * axis);
    }
    work.bytes = record::packed(size);
    const auto* name = at<const char*>(activity, kName);
    if (name != nullptr) work.id = text_number(thread, name);
    append(thread, &work, 1);
}

void write_copy(ThreadState& thread, const std::uint8_t* activity, bool peer) {
    using namespace copy_at;
    const Places places{
        kStart, kEnd, kDevice, kStream, peer ? peer_copy_at::kCorrelation : kCorrelation, peer ? peer_copy_at::kNode : kNode};
    Record work = work_of(activity, WorkKind::kCopy, places);
    work.from = memory_kind(activity[kFrom]);
    work.to = memory_kind(activity[kTo]);
    work.bytes = at<std::uint64_t>(activity, kBytes);
    append(thread, &work, 1);
}

void write_set(ThreadState& thread, const std::uint8_t* activity) {
    using namespace set_at;
    Record work = work_of(activity, WorkKind::kSet, {kStart, kEnd, kDevice, kStream, kCorrelation, kNode});
    work.to = memory_kind(at<std::uint16_t>(activity, kMemory));
    work.bytes = at<std::uint64_t>(activity, kBytes);
    append(thread, &work, 1);
}

void write_activity(ThreadState& thread, const std::uint8_t* activity) {
    switch (at<std::uint32_t>(activity, 0)) {
        case kActivityKernel:
            write_kernel(thread, activity);
            kernels.fetch_add(1, std::memory_order_relaxed);
            break;
        case kActivityMemcpy: write_copy(thread, activity, false); break;
        case kActivityMemcpyPeer: write_copy(thread, activity, true); break;
        case kActivityMemset: write_set(thread, activity); break;
        default: break;
    }
}

void on_buffer_request(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
    *buffer = nullptr;
    *size = 0;
    *most_records = 0;
    std::uint64_t free = free_buffers.load(std::memory_order_relaxed);
    while (free != 0) {
        const int place = __builtin_ctzll(free);
        if (!free_buffers.compare_exchange_weak(free, free & ~(std::uint64_t{1} << place), std::memory_order_acquire)) continue;
        *buffer = pool + static_cast<std::size_t>(place) * kBufferBytes;
        *size = kBufferBytes;
        return;
    }
}

void count_dropped(ThreadState& thread, const Cupti& cupti, void* context, std::uint32_t stream) {
    std::size_t dropped = 0;
    if (cupti.dropped_records(context, stream, &dropped) != kCuptiSuccess || dropped == 0) return;
    Record lost;
    lost.kind = RecordKind::kLost;
    lost.flags = record::kLostByCupti;
    lost.thread = thread.thread;
    lost.begin = lost.end = now();
    lost.bytes = dropped;
    append(thread, &lost, 1);
}

void on_buffer_complete(void* context, std::uint32_t stream, std::uint8_t* buffer, std::size_t, std::size_t valid) {
    if (buffer < pool || buffer >= pool + kBuffers * kBufferBytes) return;  // another client's
    CallbackState& callbacks = callback_state();
    ThreadState* thread = callbacks.alive.load(std::memory_order_relaxed) ? this_thread() : nullptr;
    if (thread != nullptr && valid > 0) {
        std::uint8_t* activity = nullptr;
        while (callbacks.cupti.next_record(buffer, valid, &activity) == kCuptiSuccess) {
            write_activity(*thread, activity);
            delivered.fetch_add(1, std::memory_order_relaxed);
        }
        count_dropped(*thread, callbacks.cupti, context, stream);
    }
    const std::size_t place = static_cast<std::size_t>(buffer - pool) / kBufferBytes;
    free_buffers.fetch_or(std::uint64_t{1} << place, std::memory_order_release);
}

std::uint64_t own_clock() { return now(); }

}  // namespace

std::uint64_t delivered_records() { return delivered.load(std::memory_order_relaxed); }
std::uint64_t delivered_kernels() { return kernels.load(std::memory_order_relaxed); }

bool prepare_activity() {
    void* memory =
        ::mmap(nullptr, kBuffers * kBufferBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    pool = static_cast<std::uint8_t*>(memory);
    return true;
}

void register_activity(const Cupti& cupti) {
    // Once: each further time makes CUPTI give the first records of a session times of another clock.
    if (!has_own_clock.load())
        has_own_clock.store(cupti.register_clock != nullptr && cupti.register_clock(own_clock) == kCuptiSuccess);
    log_line("clock %s", has_own_clock.load() ? "registered" : "converted");
    if (const CuptiResult result = cupti.register_buffers(on_buffer_request, on_buffer_complete))
        log_line("no buffers: %d", result);
}

void align_clocks(const Cupti& cupti) {
    if (has_own_clock.load(std::memory_order_relaxed)) return;
    // The reading that was made fastest is the one that says most.
    std::uint64_t narrowest = ~std::uint64_t{0};
    for (int tries = 0; tries < 16; ++tries) {
        std::uint64_t theirs = 0;
        const std::uint64_t before = now();
        if (cupti.timestamp(&theirs) != kCuptiSuccess) return;
        const std::uint64_t after = now();
        if (after - before >= narrowest) continue;
        narrowest = after - before;
        clock_offset.store(static_cast<std::int64_t>(before + narrowest / 2 - theirs), std::memory_order_relaxed);
    }
}

}  // namespace millrace::probe
