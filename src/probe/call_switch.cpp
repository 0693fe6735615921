#include "probe/call_switch.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "probe/callbacks.h"
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

}  // namespace millrace::probe
