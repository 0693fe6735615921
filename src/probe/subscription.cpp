#include "probe/subscription.h"

#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "probe/activity.h"
#include "probe/callbacks.h"
#include "probe/calls.h"
#include "probe/clock.h"
#include "probe/lanes.h"
#include "probe/log.h"

namespace millrace::probe {
namespace {

using record::CallKind;

bool only_waits(CallKind kind) {
    return kind == CallKind::kDeviceSync || kind == CallKind::kStreamSync || kind == CallKind::kEventSync ||
           kind == CallKind::kEventQuery || kind == CallKind::kStreamQuery;
}

/// Whether `call` may be under way inside of `open`. Calls of the driver that were not reported are found by the runtime's.
bool may_hold(std::uint32_t open, std::uint32_t call) {
    if (open == call) return true;
    const CallInfo &outer = call_at(open), &inner = call_at(call);
    if (outer.domain != kRuntimeDomain || inner.domain != kDriverDomain) return false;
    return !only_waits(outer.kind) || outer.kind == inner.kind;
}

/// The calls that threads are inside of.
class OpenCalls {
public:
    OpenCalls() {
        for (std::uint32_t lane = 0; lane < record::kLanes; ++lane)
            for (std::uint32_t depth = 0; depth < ThreadState::kMostPending; ++depth)
                if (const std::uint32_t call = open_call(lane, depth); call < call_count()) open_[call] = true;
        for (std::uint32_t call = 0; call < call_count(); ++call)
            if (callback_state().unmarked[call].load() > 0) open_[call] = true;
    }
    bool has(std::uint32_t call) const { return open_[call]; }
    bool has_work() const {
        for (std::uint32_t call = 0; call < call_count(); ++call)
            if (open_[call] && !only_waits(call_at(call).kind)) return true;
        return false;
    }
    bool may_hold(std::uint32_t call) const {
        for (std::uint32_t open = 0; open < call_count(); ++open)
            if (open_[open] && probe::may_hold(open, call)) return true;
        return false;
    }

private:
    bool open_[kMostCalls] = {};
};

CuptiResult enable(void* subscriber, std::uint32_t index, std::uint32_t on) {
    return callback_state().cupti.enable_callback(on, subscriber, call_at(index).domain, call_at(index).number);
}

/// Time enough for a thread to come to the end of a short call that was not reported. In pieces: when the whole process is
/// stopped and goes on, one of them is over at once, and no other thread has got any further.
void pause() {
    const timespec time{0, 100'000};
    for (int piece = 0; piece < 4; ++piece) ::nanosleep(&time, nullptr);
}

/// A thread that begins a call by now has left the one that was not reported. One that makes no call cannot be told from one
/// that is inside of a long one, so the wait has a limit.
void wait_for_begins(std::uint32_t last_window) {
    constexpr int kMost = 32;  // pauses, some 20 ms
    std::uint32_t before[record::kLanes];
    for (std::uint32_t lane = 0; lane < record::kLanes; ++lane) before[lane] = begun_calls(lane);
    const auto may_be_inside = [&] {
        for (std::uint32_t lane = 0; lane < record::kLanes; ++lane)
            if (gave_work(lane, last_window) && begun_calls(lane) == before[lane] && open_call(lane, 0) == kNoCall) return true;
        return false;
    };
    for (int round = 0; round < kMost && may_be_inside(); ++round) pause();
}

bool is_told(std::uint32_t index) { return callback_state().told[index].load(); }

/// CUPTI reports it; threads that wait for that go on.
void note_told(std::uint32_t index) {
    CallbackState& callbacks = callback_state();
    callbacks.told[index].store(true);
    callbacks.told_changes.fetch_add(1);
    ::syscall(SYS_futex, &callbacks.told_changes, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

bool starts_work(std::uint32_t index) { return gives_work(call_at(index).kind); }

}  // namespace

void CallSwitch::open(void* subscriber, std::uint32_t index) {
    const CuptiResult result = enable(subscriber, index, 1);
    // Older versions do not know the youngest calls; a program built for them cannot make them.
    if (result != kCuptiSuccess) return log_line("callback of %s: %d", call_at(index).name, result);
    note_told(index);
}

bool CallSwitch::set(void* subscriber, bool (*wanted)(std::uint32_t index)) {
    const OpenCalls inside;
    bool settled = true;
    for (std::uint32_t i = 0; i < call_count(); ++i) {
        if (!is_told(i) && (wanted(i) || inside.has(i))) open(subscriber, i);
        settled = settled && (!is_told(i) || wanted(i));
    }
    return settled || close(subscriber, wanted);
}

bool CallSwitch::close(void* subscriber, bool (*wanted)(std::uint32_t index)) {
    CallbackState& callbacks = callback_state();
    pause();
    bool closing[kMostCalls] = {}, settled = true;
    {
        const OpenCalls inside;
        for (std::uint32_t i = 0; i < call_count(); ++i) {
            closing[i] = is_told(i) && !wanted(i) && !inside.may_hold(i);
            if (closing[i]) callbacks.told[i].store(false);
        }
    }
    const OpenCalls inside;
    for (std::uint32_t i = 0; i < call_count(); ++i) {
        const bool held = closing[i] && inside.may_hold(i);
        const CuptiResult refused = closing[i] && !held ? enable(subscriber, i, 0) : kCuptiSuccess;
        if (held || refused != kCuptiSuccess) note_told(i);
        // To ask again would not help; the next change does.
        if (refused != kCuptiSuccess) log_line("callback of %s stays: %d", call_at(i).name, refused);
        settled = settled && (!is_told(i) || wanted(i) || refused != kCuptiSuccess);
    }
    return settled;
}

void CallSwitch::add(void* subscriber, bool (*wanted)(std::uint32_t index), std::uint32_t last_window) {
    bool untold = false;  // those of the driver are found by the runtime's
    for (std::uint32_t i = 0; i < call_count(); ++i) {
        if (is_told(i) || !wanted(i)) continue;
        untold = untold || call_at(i).domain == kRuntimeDomain;
        open(subscriber, i);
    }
    if (!untold) return;
    pause();
    wait_for_begins(last_window);
}

bool CallSwitch::hold() {
    constexpr int kTries = 50;
    constexpr std::uint64_t kMost = 1'000'000;  // ns that threads are kept waiting in one try
    for (int i = 0; i < kTries; ++i) {
        callback_state().gate.store(1);
        for (const std::uint64_t since = now(); now() - since < kMost;)
            if (!OpenCalls().has_work()) return true;
        release();
        pause();
    }
    return false;
}

void CallSwitch::release() {
    callback_state().gate.store(0);
    ::syscall(SYS_futex, &callback_state().gate, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void CallSwitch::forget() {
    for (auto& told : callback_state().told) told.store(false);
}

CuptiResult Subscription::open() {
    const Cupti& cupti = callback_state().cupti;
    CuptiResult result;
    if (cupti.subscribe_by_name != nullptr) {
        char incumbent[128] = "";
        CuptiSubscriberParameters parameters{sizeof parameters, "millrace", incumbent, sizeof incumbent};
        result = cupti.subscribe_by_name(&handle_, on_call, nullptr, &parameters);
        incumbent[sizeof incumbent - 1] = 0;
        if (result == kCuptiOtherSubscriber) ::memcpy(header()->state.incumbent, incumbent, sizeof incumbent);
    } else {
        result = cupti.subscribe(&handle_, on_call, nullptr);
    }
    log_line("subscribe: %d", result);
    if (result == kCuptiSuccess) register_activity(cupti);
    return result;
}

void Subscription::close() {
    callback_state().cupti.unsubscribe(handle_);
    handle_ = nullptr;
    calls_.forget();
    settled_ = true;
    activities_ = false;
    log_line("subscription gone");
}

bool Subscription::is_usable() const { return handle_ != nullptr && callback_state().finalizing.load() == Finalizing::kNot; }

void Subscription::set_calls(bool (*wanted)(std::uint32_t index)) { settled_ = calls_.set(handle_, wanted); }

void Subscription::enable_activities(const Trial& trial, bool enable) {
    if (enable == activities_) return;
    const Cupti& cupti = callback_state().cupti;
    const std::uint32_t kinds[] = {kActivityKernel, kActivityMemcpy, kActivityMemcpyPeer, kActivityMemset};
    for (const std::uint32_t kind : kinds) {
        if (kind == kActivityKernel ? !trial.kernels : !trial.copies) continue;
        const CuptiResult result = enable ? cupti.activity_enable(kind) : cupti.activity_disable(kind);
        if (result != kCuptiSuccess) log_line("activity %u %s: %d", kind, enable ? "on" : "off", result);
    }
    activities_ = enable;
}

/// Not while a thread launches: CUPTI has been seen to give one no kernels any more after that. All calls that give work are told
/// by then: their marks show who is inside, and CUPTI, which looks into them for these records, must not miss their ends.
void Subscription::switch_activities(const Trial& trial, bool enable, std::uint32_t last_window) {
    const std::uint64_t started = now();
    if (trial.callbacks) calls_.add(handle_, starts_work, last_window);
    const bool held = calls_.hold();
    const std::uint64_t quiet = now();
    enable_activities(trial, enable);
    const std::uint64_t switched = now();
    if (held) calls_.release();
    log_line("activities %s%s: waited %.3f ms, switched in %.3f ms", enable ? "on" : "off", held ? "" : " under running calls",
             static_cast<double>(quiet - started) * 1e-6, static_cast<double>(switched - quiet) * 1e-6);
}

}  // namespace millrace::probe
