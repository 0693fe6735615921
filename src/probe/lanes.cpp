#include "probe/lanes.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>

#include "probe/clock.h"

namespace millrace::probe {
namespace {

using record::kLanes;
using record::kLaneSlots;
using record::Record;

constexpr std::uint64_t kPieceSlots = 4096;  ///< memory of a lane comes into being in pieces of 256 KiB
constexpr int kPopulateWrite = 23;           ///< MADV_POPULATE_WRITE, younger than the C library's headers

record::ProbeHeader* mapped = nullptr;
ThreadState states[kLanes];
pthread_key_t key;
std::atomic<bool> some_without{false};

Record* slots_of(std::uint32_t lane) {
    auto* bytes = reinterpret_cast<std::byte*>(mapped) + record::kHeaderBytes;
    return reinterpret_cast<Record*>(bytes) + std::uint64_t{lane} * kLaneSlots;
}

/// A thread has ended. In a forked child the lane is still the parent's.
void release(void* state) {
    if (mapped->state.pid != static_cast<std::uint32_t>(::getpid())) return;
    auto& thread = *static_cast<ThreadState*>(state);
    mapped->state.unended.fetch_add(thread.pending_count, std::memory_order_relaxed);
    pop_calls(thread, 0);  // a call that it never ended must not stay on for its sake
    thread.lane->thread.store(0, std::memory_order_release);
}

/// Makes the pages of a lane up to `end` (in the first lap: later ones exist). A full file system answers here and not with
/// SIGBUS.
bool populate(ThreadState& thread, std::uint64_t end) {
    while (thread.usable < kLaneSlots && thread.usable < end) {
        if (::madvise(thread.slots + thread.usable, kPieceSlots * sizeof(Record), kPopulateWrite) != 0 && errno != EINVAL)
            return false;
        thread.usable += kPieceSlots;
    }
    return true;
}

}  // namespace

record::ProbeHeader* header() { return mapped; }

std::uint32_t thread_number() { return static_cast<std::uint32_t>(::syscall(SYS_gettid)); }

bool create_mapping(const char* folder) {
    char path[4096];
    int file = -1;
    for (int number = 0; number < 10 && file < 0; ++number) {
        char suffix[16] = "";
        if (number > 0) ::snprintf(suffix, sizeof suffix, "-%d", number);
        if (::snprintf(path, sizeof path, "%s/%d%s.probe", folder, ::getpid(), suffix) >= static_cast<int>(sizeof path))
            return false;
        file = ::open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (file < 0 && errno != EEXIST) return false;
    }
    if (file < 0) return false;
    // What is longer than the program's files may be would end it by a signal.
    struct rlimit longest;
    const bool may_be = ::getrlimit(RLIMIT_FSIZE, &longest) == 0 && longest.rlim_cur >= record::kMappingBytes;
    // Kernels before 5.14 cannot say that a page is not to be had, so there must be space for all of it.
    struct statvfs space;
    const bool fits =
        may_be && ::fstatvfs(file, &space) == 0 && std::uint64_t{space.f_bavail} * space.f_frsize > record::kMappingBytes;
    void* memory = MAP_FAILED;
    if (fits && ::ftruncate(file, static_cast<off_t>(record::kMappingBytes)) == 0)
        memory = ::mmap(nullptr, record::kMappingBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (memory == MAP_FAILED || ::pthread_key_create(&key, release) != 0) {
        if (memory != MAP_FAILED) ::munmap(memory, record::kMappingBytes);
        ::unlink(path);
        return false;
    }
    mapped = static_cast<record::ProbeHeader*>(memory);
    record::ProbeState& state = mapped->state;
    state.pid = static_cast<std::uint32_t>(::getpid());
    state.parent = static_cast<std::uint32_t>(::getppid());
    state.started = now();
    return true;
}

ThreadState* this_thread() {
    if (void* known = ::pthread_getspecific(key)) return static_cast<ThreadState*>(known);
    const std::uint32_t number = thread_number();
    for (std::uint32_t i = 0; i < kLanes; ++i) {
        record::ProbeLane& lane = mapped->lanes[i];
        std::uint32_t free = 0;
        if (lane.thread.load(std::memory_order_relaxed) != 0) continue;
        if (!lane.thread.compare_exchange_strong(free, number, std::memory_order_acq_rel)) continue;
        ThreadState& state = states[i];
        // What others read of it (open) its last owner has left empty.
        state.lost = 0;
        state.nameless_site = state.last_correlation = state.tracked = state.pending_count = state.range_depth = 0;
        std::atomic_ref(state.gave_work).store(0u);
        state.lane = &lane;
        state.slots = slots_of(i);
        state.written = lane.written.load(std::memory_order_relaxed);
        state.read_seen = lane.read.load(std::memory_order_acquire);
        state.thread = number;
        if (::pthread_setspecific(key, &state) != 0) {
            lane.thread.store(0, std::memory_order_release);
            break;
        }
        return &state;
    }
    mapped->lanes[0].lost.fetch_add(1, std::memory_order_relaxed);
    some_without.store(true, std::memory_order_relaxed);
    return nullptr;
}

bool had_all_lanes() { return !some_without.load(std::memory_order_relaxed); }

PendingCall* push_call(ThreadState& thread, std::uint32_t call) {
    if (thread.pending_count == ThreadState::kMostPending) return nullptr;
    std::atomic_ref(thread.open[thread.pending_count]).store(static_cast<std::uint8_t>(call + 1));
    PendingCall& pending = thread.pending[thread.pending_count++];
    pending.call = call;
    std::atomic_ref(thread.begun).store(thread.begun + 1);
    return &pending;
}

void pop_calls(ThreadState& thread, std::uint32_t depth) {
    while (thread.pending_count > depth)
        std::atomic_ref(thread.open[--thread.pending_count]).store(std::uint8_t{0}, std::memory_order_release);
}

std::uint32_t open_call(std::uint32_t lane, std::uint32_t depth) {
    return std::uint32_t{std::atomic_ref(states[lane].open[depth]).load()} - 1;
}

std::uint32_t begun_calls(std::uint32_t lane) { return std::atomic_ref(states[lane].begun).load(); }

void note_work(ThreadState& thread, std::uint32_t generation) {
    if (thread.gave_work != generation) std::atomic_ref(thread.gave_work).store(generation);
}

bool gave_work(std::uint32_t lane, std::uint32_t generation) {
    return mapped->lanes[lane].thread.load() != 0 && std::atomic_ref(states[lane].gave_work).load() == generation;
}

bool has_room(ThreadState& thread, std::uint32_t count) {
    if (thread.written + count - thread.read_seen <= kLaneSlots) return true;
    const std::uint64_t read = thread.lane->read.load(std::memory_order_acquire);
    if (read <= thread.written) thread.read_seen = read;  // a reader that claims more than there is does not count
    return thread.written + count - thread.read_seen <= kLaneSlots;
}

bool append(ThreadState& thread, const Record* slots, std::uint32_t count) {
    const std::uint32_t report = thread.lost > 0 ? 1 : 0;
    if (!has_room(thread, count + report) || !populate(thread, thread.written + count + report)) {
        ++thread.lost;
        thread.lane->lost.fetch_add(1, std::memory_order_relaxed);
        return false;
    }
    if (report != 0) {
        Record lost;
        lost.kind = record::RecordKind::kLost;
        lost.thread = thread.thread;
        lost.begin = lost.end = now();
        lost.bytes = thread.lost;
        thread.slots[thread.written++ % kLaneSlots] = lost;
        thread.lost = 0;
    }
    for (std::uint32_t i = 0; i < count; ++i) thread.slots[thread.written++ % kLaneSlots] = slots[i];
    thread.lane->written.store(thread.written, std::memory_order_release);
    return true;
}

}  // namespace millrace::probe
