#pragma once
// The probe's subscription to CUPTI: of which calls it reports, and whether it records what devices do. The controller decides,
// the subscription carries it out. Used by the probe's thread alone, once that runs.

#include <cstdint>

#include "probe/call_switch.h"
#include "probe/cupti_library.h"
#include "probe/trial.h"

namespace millrace::probe {

class Subscription {
public:
    /// Subscribes and registers the buffers. The name of another subscriber that is in the way goes to the mapping's state.
    [[nodiscard]] CuptiResult open();
    /// Gives the subscription back, and with it all that was on.
    void close();
    /// False before open(), after close(), and once CUPTI is about to leave the process.
    [[nodiscard]] bool is_usable() const;
    /// CUPTI's handle, null without a subscription.
    [[nodiscard]] void* handle() const { return handle_; }

    /// Switches each call on or off as `wanted` says, except off where a thread is inside of it.
    void set_calls(bool (*wanted)(std::uint32_t index));
    /// False: a thread is inside of calls that should be off, so they are on, and set_calls() must be repeated.
    [[nodiscard]] bool is_settled() const { return settled_; }

    /// Switches records of devices on or off, those that `trial` leaves in, in a moment without a launch where there is one.
    /// `last_window`: its generation.
    void switch_activities(const Trial& trial, bool enable, std::uint32_t last_window);
    [[nodiscard]] bool has_activities() const { return activities_; }

private:
    void enable_activities(const Trial& trial, bool enable);

    void* handle_ = nullptr;
    CallSwitch calls_;
    bool settled_ = true;
    bool activities_ = false;
};

}  // namespace millrace::probe
