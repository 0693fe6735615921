#include "probe/departure.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "probe/callbacks.h"
#include "probe/clock.h"
#include "probe/handover.h"
#include "probe/imports.h"
#include "probe/lanes.h"
#include "probe/log.h"
#include "probe/tracked_calls.h"

namespace millrace::probe {
namespace {

/// A file of a thread in /proc, with a zero behind it; below zero: it cannot be read.
template <std::size_t size>
long read_file(std::uint32_t thread, const char* name, char (&text)[size]) {
    char path[64];
    ::snprintf(path, sizeof path, "/proc/self/task/%u/%s", thread, name);
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return -1;
    const long length = ::read(file, text, size - 1);
    ::close(file);
    text[length > 0 ? length : 0] = 0;
    return length;
}

/// Drivers are asked by ioctl, and waited for by poll.
bool may_be_in_driver(std::uint32_t thread) {
    char text[256];
    if (read_file(thread, "syscall", text) <= 0) return false;  // not every system tells
    if (text[0] == 'r') return true;                            // "running": it woke up just now
    if (text[0] < '0' || text[0] > '9') return false;
    const long call = ::strtol(text, nullptr, 10);
#ifdef SYS_poll
    if (call == SYS_poll) return true;
#endif
    return call == SYS_ioctl || call == SYS_ppoll;
}

/// Asked of the kernel: where /proc is not mounted, or shows another namespace's numbers, it has no thread of this process.
bool has_ended(std::uint32_t thread) { return ::syscall(SYS_tgkill, ::getpid(), thread, 0) != 0 && errno == ESRCH; }

std::atomic<bool> keeping{false};
std::atomic<std::uint32_t> kept{0};

void free_or_keep(void* memory) {
    if (memory == nullptr || !keeping.load(std::memory_order_acquire)) return ::free(memory);
    kept.fetch_add(1, std::memory_order_relaxed);
}

/// The time by which the system says when threads began; it is coarse.
std::uint64_t thread_clock() {
    timespec time{};
    ::clock_gettime(CLOCK_BOOTTIME, &time);
    const auto rate = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
    return static_cast<std::uint64_t>(time.tv_sec) * rate + static_cast<std::uint64_t>(time.tv_nsec) * rate / 1'000'000'000;
}

/// Whether a thread of this process sleeps, or has ended, and is not inside of a device's driver as far as the system tells: one
/// that runs may be anywhere. False where nothing can be known. True of threads that began before `since` (of thread_clock()).
bool is_asleep(std::uint32_t thread, std::uint64_t since = 0) {
    constexpr int kStart = 19;  // words behind the state
    const int error = errno;
    char text[512];
    const long length = read_file(thread, "stat", text);
    const bool ended = length < 0 && has_ended(thread);
    const char* const name_end = length > 0 ? ::strrchr(text, ')') : nullptr;
    const char kind = name_end != nullptr && name_end[1] == ' ' ? name_end[2] : '?';
    const char* word = kind != '?' ? name_end + 2 : nullptr;
    for (int i = 0; i < kStart && word != nullptr; ++i)
        if (word = ::strchr(word, ' '); word != nullptr) ++word;
    const bool older = word != nullptr && ::strtoull(word, nullptr, 10) < since;
    const bool sleeps = older || ended || kind == 'Z' || kind == 'X' || (kind == 'S' && !may_be_in_driver(thread));
    errno = error;
    return sleeps;
}

/// Whether something holds for all threads of the process; false, too, where they cannot be known or are very many.
bool do_all(bool (*holds)(std::uint32_t thread, void* data), void* data) {
    constexpr int kMost = 1024;  // threads; a program with more is not looked at for long
    const int error = errno;
    const int folder = ::open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool all = folder >= 0;
    int count = 0;
    alignas(8) char entries[4096];
    while (all) {
        const long length = ::syscall(SYS_getdents64, folder, entries, sizeof entries);
        all = length >= 0;
        if (length <= 0) break;
        for (long at = 0; at < length && all;) {
            std::uint16_t size;
            ::memcpy(&size, entries + at + 16, sizeof size);
            const unsigned long thread = ::strtoul(entries + at + 19, nullptr, 10);
            all = size > 0 && (thread == 0 || (++count <= kMost && holds(static_cast<std::uint32_t>(thread), data)));
            at += size;
        }
    }
    if (folder >= 0) ::close(folder);
    errno = error;
    return all && count > 0;
}

using record::CuptiPresence;

constexpr std::uint64_t kMillisecond = 1'000'000;
constexpr std::uint64_t kTrying = 500 * kMillisecond;      ///< of tries, then it stays ...
constexpr std::uint64_t kUntried = 10'000 * kMillisecond;  ///< ... or when no thread has tried for so long ...
constexpr std::uint64_t kUnready = 3'000 * kMillisecond;   ///< ... or a call of the last window has not ended for so long
constexpr std::uint64_t kFreeing = 1'000 * kMillisecond;   ///< in which it gives back what it had
constexpr std::uint64_t kGatePatience = kMillisecond, kBetweenTries = 20 * kMillisecond;

std::atomic<std::uint64_t> tried{0}, tried_last{0};  ///< in vain, first and last; set by tracked calls
std::atomic<std::uint32_t> probe_thread{0};
std::atomic<std::uint64_t> window_ended{0};  ///< the last one, of thread_clock()
std::atomic<std::uint64_t> began_to_go{0}, was_gone{0};
void* returned = nullptr;  ///< the subscription, to be given back before

CallbackState& state() { return callback_state(); }

void set_presence(CuptiPresence presence) {
    header()->state.presence.store(static_cast<std::uint32_t>(presence), std::memory_order_release);
}

/// Calls of which CUPTI would still have to tell the end.
bool is_another_inside(const ThreadState& thread) {
    for (const auto& inside : state().unmarked)
        if (inside.load(std::memory_order_relaxed) > 0) return true;
    for (std::uint32_t lane = 0; lane < record::kLanes; ++lane)
        if (&header()->lanes[lane] != thread.lane && open_call(lane, 0) != kNoCall) return true;
    return false;
}

/// Others may be inside of calls that are neither reported nor tracked, as libraries make that have a runtime of their own.
bool do_others_sleep(const ThreadState& thread) {
    const std::uint32_t own = probe_thread.load();
    for (const record::ProbeLane& lane : header()->lanes)
        if (const std::uint32_t other = lane.thread.load(); other != 0 && other != thread.thread && other != own)
            if (!is_asleep(other)) return false;
    return true;
}

/// Nor is anything known of threads that began after the last window, in which all calls were told. CUPTI may have some itself.
bool do_newcomers_sleep(const ThreadState& thread) {
    struct Known {
        std::uint32_t self, probe;
    } known{thread.thread, probe_thread.load()};
    const auto sleeps = [](std::uint32_t other, void* data) {
        const auto& those = *static_cast<const Known*>(data);
        return other == those.self || other == those.probe || is_asleep(other, window_ended.load());
    };
    return do_all(sleeps, &known);
}

void finalize() {
    const int error = errno;
    began_to_go.store(now());
    keep_memory();
    if (returned != nullptr) state().cupti.unsubscribe(returned);
    const bool done = state().cupti.finalize() == kCuptiSuccess || returned != nullptr;  // either way it tells no more
    errno = error;
    was_gone.store(now());
    set_presence(done ? CuptiPresence::kGone : CuptiPresence::kStays);
    if (!done) stop_keeping();
    state().finalizing.store(done ? Finalizing::kDone : Finalizing::kNot, std::memory_order_release);
    wake_controller();
}

}  // namespace

bool can_keep_memory(void* library) {
    static bool leads = false;
    if (leads) return true;
    const link_map* map = nullptr;
    if (library == nullptr || ::dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return false;
    static ImportWatch watch{"libc.so", "free"};
    watch.only = map->l_name;
    const Import imports[] = {{"free", reinterpret_cast<void*>(free_or_keep)}};
    leads = replace_imports(watch, imports, 1) > 0;
    return leads;
}

void keep_memory() { keeping.store(true, std::memory_order_release); }

void stop_keeping() {
    if (keeping.exchange(false)) log_line("kept %u pieces of CUPTI's memory", kept.load());
}

void depart_if_wanted() {
    if (state().finalizing.load(std::memory_order_relaxed) != Finalizing::kWanted) return;
    if (!state().alive.load(std::memory_order_relaxed)) return;
    const ThreadState* const thread = this_thread();
    if (thread == nullptr || thread->pending_count > 0 || graphs_forbid()) return;
    if (now() - tried_last.load(std::memory_order_relaxed) < kBetweenTries) return;
    Finalizing wanted = Finalizing::kWanted;
    if (!state().finalizing.compare_exchange_strong(wanted, Finalizing::kRunning)) return;
    int cancelled = PTHREAD_CANCEL_ENABLE;  // a thread that ends in here would leave the gate shut
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelled);
    if (shut_gate(kGatePatience) && !is_another_inside(*thread) && do_others_sleep(*thread) && do_newcomers_sleep(*thread)) {
        finalize();
        open_gate();
    } else {
        std::uint64_t never = 0;
        tried_last.store(now());
        tried.compare_exchange_strong(never, now());
        open_gate();  // not later: it may be another's by then
        state().finalizing.store(Finalizing::kWanted);
    }
    ::pthread_setcancelstate(cancelled, nullptr);
}

bool stop_departure() {
    Finalizing stage = Finalizing::kWanted;
    state().finalizing.compare_exchange_strong(stage, Finalizing::kNot);
    return stage == Finalizing::kRunning;
}

/// CUPTI may be finalised between calls of the program, once it tells of none. From then on this thread must not use it.
void Departure::request(void* subscriber) {
    if (!silent_) {
        state().alone.store(true);  // tracked calls tell of memory instead
        silent_ = true;
        return host_.apply_calls();
    }
    host_.flush();
    tried.store(0);
    returned = subscriber;
    probe_thread.store(thread_number());
    log_line("CUPTI may go");
    state().finalizing.store(Finalizing::kWanted);
}

void Departure::note_window_end() { window_ended.store(thread_clock()); }

void Departure::withdraw() {
    (void)stop_departure();
    wanted_since_ = 0;
    if (!silent_ || !host_.can_use_cupti()) return;
    silent_ = false;
    tried.store(0);
    host_.apply_calls();
    state().alone.store(false);
}

void Departure::refuse() {
    withdraw();
    if (host_.can_use_cupti()) set_presence(CuptiPresence::kStays);
}

/// Where it has lost count of begins and ends before, it goes on with what it had (docs/performance/doctor.md). Of threads
/// without a lane it is unknown what they do.
bool Departure::must_stay() const {
    const std::uint64_t first = tried.load();
    const bool in_vain = (first != 0 && now() - first >= kTrying) || now() - wanted_since_ >= (silent_ ? kUntried : kUnready);
    const bool miscounted = header()->state.unended.load() > 0 || header()->state.stale.load() > 0;
    return in_vain || miscounted || counts_with_cupti() || !had_all_lanes() || graphs_forbid() ||
           state().cupti.finalize == nullptr || !can_keep_memory(state().cupti.library);
}

void Departure::note_gone() {
    if (gone_since_ == 0) {
        gone_since_ = now();
        record::Record left;
        left.kind = record::RecordKind::kLeft;
        left.begin = began_to_go.load();
        left.end = was_gone.load();
        if (ThreadState* const thread = this_thread()) append(*thread, &left, 1);
        log_line("CUPTI is gone");
    }
    if (now() - gone_since_ >= kFreeing) stop_keeping();
}

void Departure::look(bool wanted, bool ready, void* subscriber) {
    if (state().finalizing.load() == Finalizing::kDone) return note_gone();
    const auto presence = static_cast<CuptiPresence>(header()->state.presence.load());
    if (!wanted || presence == CuptiPresence::kStays) return withdraw();
    if (wanted_since_ == 0) wanted_since_ = now();
    if (must_stay()) return refuse();
    if (ready && host_.can_use_cupti()) request(subscriber);
}

}  // namespace millrace::probe
