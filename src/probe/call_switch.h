#pragma once
// Which calls the probe is told of. A kind of call is never switched off while a thread is inside such a call: CUPTI counts
// begins and ends per thread, and when it misses an end it takes everything that the thread does afterwards for part of that one
// call, with its correlation for good.
//
// A thread marks the call that it begins (push_call, or CallbackState::unmarked where it has no lane), then looks whether the
// call is told (CallbackState::told). To switch one off, that word goes off first, then all marks are read. So either the mark is
// seen and the call stays on, or the thread sees the word and waits in its begin until the call is on again.

#include <cstdint>

#include "probe/calls.h"

namespace millrace::probe {

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

}  // namespace millrace::probe
