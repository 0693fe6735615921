#pragma once
// The probe's subscription to CUPTI: of which calls it reports, and whether it records what devices do. The controller decides,
// the subscription carries it out. Used by the probe's thread alone, once that runs.

#include <cstdint>

#include "probe/calls.h"
#include "probe/cupti_library.h"
#include "probe/trial.h"

namespace millrace::probe {

/// Which calls the probe is told of. A kind of call is never switched off while a thread is inside such a call: CUPTI counts
/// begins and ends per thread, and when it misses an end it takes everything that the thread does afterwards for part of that one
/// call, with its correlation for good.
///
/// A thread marks the call that it begins (push_call, or CallbackState::unmarked where it has no lane), then looks whether the
/// call is told (CallbackState::told). To switch one off, that word goes off first, then all marks are read. So either the mark
/// is seen and the call stays on, or the thread sees the word and waits in its begin until the call is on again.
class CallSwitch {
public:
    /// Switches each call on or off as `wanted` says. Calls that a thread is inside of stay on, or go on again: then it answers
    /// false, and should be asked again.
    bool set(void* subscriber, bool (*wanted)(std::uint32_t index));
    /// Switches calls on and none off, and lets those that were not reported come to their ends, if they are short; where a
    /// launch waits for room in a queue, that of a thread that gave a device work in the window of that generation.
    void add(void* subscriber, bool (*wanted)(std::uint32_t index), std::uint32_t last_window);
    /// Waits for a moment in which no thread is inside of a call that gives a device work, and lets none begin until release().
    /// Answers false when there was none for a while; then nothing is held.
    bool hold();
    void release();
    /// The subscription is gone, and with it all that was on.
    void forget();

private:
    void open(void* subscriber, std::uint32_t index);
    bool close(void* subscriber, bool (*wanted)(std::uint32_t index));
};

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
