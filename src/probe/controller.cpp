#include "probe/controller.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "probe/activity.h"
#include "probe/callbacks.h"
#include "probe/calls.h"
#include "probe/clock.h"
#include "probe/departure.h"
#include "probe/handover.h"
#include "probe/lanes.h"
#include "probe/log.h"
#include "probe/sites.h"
#include "probe/subscription.h"
#include "probe/tracked_calls.h"
#include "probe/trial.h"

namespace millrace::probe {
namespace {

using record::CallKind;
using record::ProbeFault;
using record::ProbeMode;

constexpr std::uint64_t kMillisecond = 1'000'000;
constexpr std::uint64_t kLook = 10 * kMillisecond, kSoon = kMillisecond;
constexpr std::uint64_t kFlush = 200 * kMillisecond;
constexpr std::uint64_t kSoonFlush = 50 * kMillisecond;    ///< while CUPTI waits to go
constexpr std::uint64_t kPatience = 1'000 * kMillisecond;  ///< a keeper counts as gone when it stays late for so long
constexpr std::uint64_t kLeaving = 2'000 * kMillisecond;   ///< how long the end waits for calls that are under way
constexpr std::size_t kStackBytes = std::size_t{1} << 20;

bool can_use_cupti();
void enable_calls();
void flush(bool forced);

struct Controller {
    Subscription subscription;
    Departure departure{{can_use_cupti, enable_calls, [] { flush(true); }}};
    pthread_t thread = {};
    std::uint64_t last_flush = 0, late_since = 0, leaving_since = 0;
    std::uint64_t last_counted = 0;                                               ///< of the flushes that are left
    std::uint64_t launches_before = 0, delivered_before = 0, kernels_before = 0;  ///< when the last window began
    ProbeMode mode = ProbeMode::kOff;
    std::uint32_t last_window = 0;  ///< its generation
    int flushes_left = 0;           ///< after a window: work that was still queued reports later
    Trial trial;
    bool learned = false;         ///< the sampled steps of a window have shown which calls of the driver the program makes itself
    bool trimmed = false;         ///< those of this window are over
    bool watched_window = false;  ///< the last window's records have not been seen to arrive yet
    bool detach = false;          ///< CUPTI is not needed any more
    bool leaving = false;         ///< for good: no call is wanted any more, then the subscription is given back
    bool gone = false;            ///< that has happened
    bool has_thread = false;
    void (*at_end)() = nullptr;
    std::uint64_t activities_since = 0, register_at = 0;  ///< when they first went on; when at_end is registered again
    std::atomic<bool> stop{false};
};
Controller controller;

bool can_use_cupti() { return controller.subscription.is_usable(); }

void set_fault(ProbeFault fault, CuptiResult code) {
    header()->state.fault_code.store(static_cast<std::uint32_t>(code), std::memory_order_relaxed);
    header()->state.fault.store(static_cast<std::uint32_t>(fault), std::memory_order_release);
    log_line("fault %u, code %d", static_cast<unsigned>(fault), code);
}

/// Most calls of the driver are made by the runtime, whose callback is enough: to hear of both doubles the cost. So calls of the
/// driver are heard in the sampled steps of windows, for their arguments and to learn which of them the program makes itself.
bool is_redundant(std::uint32_t index) {
    const bool sampled = controller.mode == ProbeMode::kFull && !controller.trimmed;
    if (call_at(index).domain != kDriverDomain || !is_frequent(call_at(index).kind)) return false;
    return controller.learned && !sampled && callback_state().direct[index].load() < kDirectEnough;
}

bool wants_call(std::uint32_t index) {
    const CallInfo& call = call_at(index);
    if (controller.leaving || controller.departure.is_silent()) return false;
    if (is_memory_call(call) && controller.trial.memory) return true;
    if (is_redundant(index)) return false;
    const auto pulse = static_cast<CallKind>(callback_state().pulse_call.load());
    if (controller.mode == ProbeMode::kPulse)
        return pulse != CallKind::kOther && call.kind == pulse && !callback_state().pulse_led.load();
    return controller.mode == ProbeMode::kFull && controller.trial.callbacks && call.kind != CallKind::kOther;
}

void enable_calls() { controller.subscription.set_calls(wants_call); }

void switch_activities(bool enable) {
    controller.subscription.switch_activities(controller.trial, enable, controller.last_window);
    if (controller.activities_since == 0) {
        controller.activities_since = now();
        controller.register_at = 0;
    }
}

/// What was registered last runs first, and CUPTI's destructors must find no thread that still uses it. It registers some only
/// when it first needs what they destroy; so at once, and then in intervals that double: few in any run, and soon enough for one
/// that does not end right after.
void register_end() {
    const std::uint64_t since = controller.activities_since != 0 ? controller.activities_since : header()->state.started;
    const std::uint64_t time = now(), age = time > since ? time - since : 0;
    if (time < controller.register_at) return;
    ::atexit(controller.at_end);
    controller.register_at = time + (age > kLook ? age : kLook);
}

void write_window(bool begins) {
    ThreadState* thread = this_thread();
    if (thread == nullptr) return;
    record::Record window;
    window.kind = record::RecordKind::kWindow;
    window.flags = begins ? record::kWindowBegins : 0;
    window.begin = window.end = now();
    window.bytes = header()->control.epoch.load();
    append(*thread, &window, 1);
}

void flush(bool forced) {
    callback_state().cupti.activity_flush(forced ? kFlushForced : 0);
    controller.last_flush = now();
}

void enter_window() {
    CallbackState& callbacks = callback_state();
    const record::ProbeControl& control = header()->control;
    find_interpreter();
    align_clocks(callbacks.cupti);
    callbacks.full_calls.store(control.full_calls.load());
    callbacks.sites_calls.store(control.sites_calls.load());
    callbacks.window_pulses.store(0);
    callbacks.window_over.store(false);
    watch_for_clients();
    if (control.leads.load() != 0) track_calls();
    controller.watched_window = controller.trial.activity && controller.trial.callbacks;
    controller.launches_before = callbacks.launches.load();
    controller.delivered_before = delivered_records();
    controller.kernels_before = delivered_kernels();
    if (controller.trial.activity && !controller.subscription.has_activities()) switch_activities(true);
    controller.flushes_left = 0;
    controller.trimmed = callbacks.sites_calls.load() == 0;
    for (auto& count : callbacks.direct)
        if (count.load() < kDirectEnough) count.store(0);
    write_window(true);
}

/// The sampled steps are over.
void trim_window() {
    controller.trimmed = controller.learned = true;
    enable_calls();
    log_line("window trimmed");
}

void switch_mode(ProbeMode mode) {
    CallbackState& callbacks = callback_state();
    const ProbeMode before = controller.mode;
    const std::uint64_t started = now();
    if (before == ProbeMode::kFull) {
        callbacks.mode.store(static_cast<std::uint32_t>(mode));
        controller.last_window = callbacks.generation.load();
        controller.learned = true;
        write_window(false);
        Departure::note_window_end();
        if (controller.subscription.has_activities()) switch_activities(false);
        controller.flushes_left = 3;
        controller.last_flush = controller.last_counted = now() - kFlush + 100 * kMillisecond;
    }
    callbacks.generation.fetch_add(1);
    controller.mode = mode;
    if (mode == ProbeMode::kFull) enter_window();
    callbacks.mode.store(static_cast<std::uint32_t>(mode));
    enable_calls();
    header()->state.mode.store(static_cast<std::uint32_t>(mode), std::memory_order_release);
    log_line("mode %u -> %u in %.3f ms, %llu nested so far", static_cast<unsigned>(before), static_cast<unsigned>(mode),
             static_cast<double>(now() - started) * 1e-6, static_cast<unsigned long long>(callbacks.nested.load()));
}

void begin_leaving() {
    controller.leaving = true;
    controller.leaving_since = now();
    (void)stop_departure();  // it is given back in order instead
    if (!can_use_cupti()) {
        controller.mode = ProbeMode::kOff;
        callback_state().mode.store(static_cast<std::uint32_t>(ProbeMode::kOff));
        header()->state.mode.store(static_cast<std::uint32_t>(ProbeMode::kOff), std::memory_order_release);
        return;
    }
    switch_mode(ProbeMode::kOff);
    if (controller.flushes_left > 0) flush(true);
    controller.flushes_left = 0;
}

bool is_all_delivered() {
    return delivered_kernels() - controller.kernels_before >= callback_state().launches.load() - controller.launches_before;
}

/// Three, however long each takes; fewer where CUPTI waits to go and has nothing left.
void count_flush() {
    if (controller.detach && is_all_delivered()) controller.flushes_left = 0;
    if (controller.flushes_left == 0 || now() - controller.last_counted < kFlush) return;
    --controller.flushes_left;
    controller.last_counted = now();
}

/// A client that looks CUPTI's functions up by itself cannot be seen coming; but where a window has launched a lot and no record
/// of it came back though buffers were flushed, another client gets them.
bool lost_buffers() {
    constexpr std::uint64_t kMany = 64;
    if (controller.mode == ProbeMode::kFull || !controller.watched_window || controller.flushes_left > 0) return false;
    controller.watched_window = false;
    const std::uint64_t launches = callback_state().launches.load() - controller.launches_before;
    return launches >= kMany && delivered_records() == controller.delivered_before;
}

/// The next user of CUPTI finds it as it was, without a call that is half reported.
void finish_leaving() {
    const bool finalizes = stop_departure();  // a try may have failed meanwhile
    if ((finalizes || (!controller.subscription.is_settled() && can_use_cupti())) && now() - controller.leaving_since < kLeaving)
        return;
    callback_state().alive.store(false, std::memory_order_release);
    if (can_use_cupti()) {
        controller.subscription.close();
        controller.flushes_left = 0;
    }
    stop_keeping();
    controller.gone = true;
    end_handover();
}

void obey() {
    record::ProbeControl& control = header()->control;
    CallbackState& callbacks = callback_state();
    const std::uint32_t epoch = control.epoch.load(std::memory_order_acquire);
    if (epoch == header()->state.epoch.load(std::memory_order_relaxed)) {
        if (controller.mode != ProbeMode::kFull) return;
        if (callbacks.window_over.load()) return switch_mode(ProbeMode::kPulse);
        if (!controller.trimmed && callbacks.window_pulses.load() >= callbacks.sites_calls.load()) trim_window();
        return;
    }
    std::uint32_t wanted = control.mode.load();
    if (wanted > static_cast<std::uint32_t>(ProbeMode::kFull)) wanted = 0;
    const bool wants_window = wanted == static_cast<std::uint32_t>(ProbeMode::kFull);
    callbacks.pulse_call.store(control.pulse_call.load());
    const std::uint32_t stride = control.pulse_stride.load();
    callbacks.pulse_stride.store(stride > 0 ? stride : 1);
    callbacks.pulse_led.store(control.pulse_led.load() != 0);
    callbacks.pulse_site.store(control.pulse_site.load());
    controller.detach = control.detach.load() != 0;
    if (wants_window) controller.departure.withdraw();
    const Finalizing stage = callbacks.finalizing.load();
    if (stage == Finalizing::kRunning || (wants_window && stage == Finalizing::kWanted)) return;
    // Otherwise CUPTI is not to be touched, or gone.
    if (stage == Finalizing::kNot) switch_mode(static_cast<ProbeMode>(wanted));
    header()->state.epoch.store(epoch, std::memory_order_release);
}

/// A keeper that was stopped together with the program is late at first and comes back; one that stays late is gone.
void watch_keeper(std::uint64_t time) {
    const std::uint64_t seen = header()->control.keeper_time.load(std::memory_order_relaxed);
    const std::uint64_t since = seen != 0 ? seen : header()->state.started;
    if (time < since || time - since < record::kKeeperTimeout) {
        controller.late_since = 0;
        return;
    }
    if (controller.late_since == 0) controller.late_since = time;
    if (time - controller.late_since < kPatience) return;
    set_fault(ProbeFault::kUnheard, 0);
    begin_leaving();
}

void look_after_departure() {
    const bool ready =
        controller.mode != ProbeMode::kFull && controller.flushes_left == 0 && controller.subscription.is_settled();
    controller.departure.look(controller.detach, ready, controller.trial.returned ? controller.subscription.handle() : nullptr);
}

void look() {
    if (!controller.leaving && (handover_is_wanted() || lost_buffers())) {
        set_fault(ProbeFault::kHandedOver, 0);
        begin_leaving();
    }
    if (!controller.leaving) watch_keeper(now());
    if (!controller.leaving) obey();
    if (can_use_cupti()) {
        if (callback_state().surprised.exchange(false) || !controller.subscription.is_settled()) enable_calls();
        const bool due = now() - controller.last_flush >= (controller.detach ? kSoonFlush : kFlush);
        if (due && (controller.subscription.has_activities() || controller.flushes_left > 0)) {
            if (!controller.subscription.has_activities()) count_flush();
            flush(false);
            if (controller.mode == ProbeMode::kFull && header()->control.leads.load() != 0)
                track_calls();  // of what was loaded meanwhile
        }
    }
    if (!controller.leaving) look_after_departure();
    if (controller.leaving) finish_leaving();
    if (ThreadState* thread = this_thread()) name_native_sites(*thread);
    if (can_use_cupti()) register_end();
}

/// The process ends: no thread begins to finalise CUPTI any more, and one that does so has ended.
void withdraw_request() {
    const timespec moment{0, 1'000'000};
    for (int tries = 0; tries < 1'500 && stop_departure(); ++tries) ::nanosleep(&moment, nullptr);
}

void* run(void*) {
    ::pthread_setname_np(::pthread_self(), "millrace-probe");
    CallbackState& callbacks = callback_state();
    while (!controller.stop.load(std::memory_order_acquire) && !controller.gone) {
        const std::uint32_t seen = callbacks.wake.load(std::memory_order_acquire);
        look();
        if (controller.stop.load(std::memory_order_acquire)) break;
        const timespec wait{0, static_cast<long>(controller.subscription.is_settled() ? kLook : kSoon)};
        ::syscall(SYS_futex, &callbacks.wake, FUTEX_WAIT_PRIVATE, seen, &wait, nullptr, 0);
    }
    withdraw_request();
    if (can_use_cupti()) {
        const bool had_window = controller.subscription.has_activities() || controller.flushes_left > 0;
        if (controller.mode == ProbeMode::kFull) switch_mode(ProbeMode::kOff);
        if (had_window) flush(true);
    }
    if (ThreadState* thread = this_thread()) name_native_sites(*thread);
    return nullptr;
}

bool start_thread() {
    sigset_t all, before;
    ::sigfillset(&all);
    pthread_attr_t attributes;
    if (::pthread_attr_init(&attributes) != 0) return false;
    ::pthread_attr_setstacksize(&attributes, kStackBytes);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    controller.has_thread = ::pthread_create(&controller.thread, &attributes, run, nullptr) == 0;
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    ::pthread_attr_destroy(&attributes);
    return controller.has_thread;
}

}  // namespace

void start_controller(void (*at_end)()) {
    CallbackState& callbacks = callback_state();
    controller.at_end = at_end;
    controller.trial = read_trial();
    callbacks.with_sites = controller.trial.sites;
    callbacks.with_arguments = controller.trial.arguments;
    callbacks.graphs_too = controller.trial.graphs_too;
    if (!controller.trial.subscribe) return;
    if (!load_cupti(callbacks.cupti)) return set_fault(ProbeFault::kNoCupti, 0);
    header()->state.cupti_version = callbacks.cupti.version;
    header()->state.driver_version = callbacks.cupti.driver;
    if (const CuptiResult result = controller.subscription.open(); result != kCuptiSuccess)
        return set_fault(result == kCuptiOtherSubscriber ? ProbeFault::kOtherClient : ProbeFault::kCuptiFailed, result);
    register_end();
    callbacks.alive.store(true, std::memory_order_release);
    watch_for_clients();
    enable_calls();
    if (!start_thread()) {
        callbacks.alive.store(false);
        set_fault(ProbeFault::kNoMemory, errno);
    }
}

void stop_controller() {
    CallbackState& callbacks = callback_state();
    if (!controller.has_thread) return;
    controller.stop.store(true, std::memory_order_release);
    callbacks.wake.fetch_add(1);
    ::syscall(SYS_futex, &callbacks.wake, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    timespec until;
    ::clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 2;  // the program's end is not held up by a driver that hangs
    ::pthread_timedjoin_np(controller.thread, nullptr, &until);
    controller.has_thread = false;
    callbacks.alive.store(false, std::memory_order_release);
}

}  // namespace millrace::probe
