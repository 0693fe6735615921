#include "probe/subscription.h"

#include <string.h>

#include "probe/activity.h"
#include "probe/callbacks.h"
#include "probe/calls.h"
#include "probe/clock.h"
#include "probe/lanes.h"
#include "probe/log.h"

namespace millrace::probe {
namespace {

bool starts_work(std::uint32_t index) { return gives_work(call_at(index).kind); }

}  // namespace

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
