#include "probe/call_switch.h"

#include <string.h>
#include <time.h>

#include "probe/callbacks.h"
#include "probe/lanes.h"
#include "probe/log.h"

namespace millrace::probe {
namespace {

using record::CallKind;

bool only_waits(CallKind kind) {
    return kind == CallKind::kDeviceSync || kind == CallKind::kStreamSync || kind == CallKind::kEventSync ||
           kind == CallKind::kEventQuery || kind == CallKind::kStreamQuery;
}

/// Whether `call` may be under way inside of `open`. Calls of the driver that nobody was told of are found by the runtime's.
bool may_hold(std::uint32_t open, std::uint32_t call) {
    if (open == call) return true;
    const CallInfo &outer = call_at(open), &inner = call_at(call);
    if (outer.domain != kRuntimeDomain || inner.domain != kDriverDomain) return false;
    return !only_waits(outer.kind) || outer.kind == inner.kind;
}

bool somebody_inside(std::uint32_t call) {
    for (std::uint32_t lane = 0; lane < record::kLanes; ++lane)
        for (std::uint32_t depth = 0; depth < ThreadState::kMostPending; ++depth)
            if (const std::uint32_t open = open_call(lane, depth); open < call_count() && may_hold(open, call)) return true;
    return false;
}

CuptiResult enable(void* subscriber, std::uint32_t index, std::uint32_t on) {
    return callback_state().cupti.enable_callback(on, subscriber, call_at(index).domain, call_at(index).number);
}

/// Time enough for a thread to come to the end of a short call, or from the beginning of one to where the probe is told.
void pause() {
    const timespec time{0, 20'000};
    ::nanosleep(&time, nullptr);
}

}  // namespace

void CallSwitch::open(void* subscriber, std::uint32_t index) {
    const CuptiResult result = enable(subscriber, index, 1);
    // Older versions do not know the youngest calls; a program built for them cannot make them.
    if (result != kCuptiSuccess) log_line("callback of %s: %d", call_at(index).name, result);
    on_[index] = result == kCuptiSuccess;
}

bool CallSwitch::set(void* subscriber, bool (*wanted)(std::uint32_t index)) {
    add(subscriber, wanted);
    bool settled = true, can_close = false;
    for (std::uint32_t i = 0; i < call_count(); ++i) {
        if (!on_[i] || wanted(i)) continue;
        settled = false;
        can_close = can_close || !somebody_inside(i);
    }
    return settled || (can_close && close(subscriber, wanted));
}

/// While the gate is shut, threads stop where they are told of begins and ends. A thread that was about to begin a call of a kind
/// that has just gone off is found at its begin, and the kind goes on again before the thread goes on.
bool CallSwitch::close(void* subscriber, bool (*wanted)(std::uint32_t index)) {
    bool closed[kMostCalls] = {};
    shut_gate();
    pause();
    for (std::uint32_t i = 0; i < call_count(); ++i) {
        if (!on_[i] || wanted(i) || somebody_inside(i)) continue;
        closed[i] = enable(subscriber, i, 0) == kCuptiSuccess;
    }
    pause();
    bool settled = true;
    for (std::uint32_t i = 0; i < call_count(); ++i) {
        if (closed[i] && somebody_inside(i)) closed[i] = enable(subscriber, i, 1) != kCuptiSuccess;
        if (closed[i]) on_[i] = false;
        settled = settled && (!on_[i] || wanted(i));
    }
    open_gate();
    return settled;
}

void CallSwitch::add(void* subscriber, bool (*wanted)(std::uint32_t index)) {
    for (std::uint32_t i = 0; i < call_count(); ++i)
        if (!on_[i] && wanted(i)) open(subscriber, i);
}

void CallSwitch::forget() { ::memset(on_, 0, sizeof on_); }

}  // namespace millrace::probe
