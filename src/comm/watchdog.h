#pragma once
// Ends a process whose peers are gone: a collective that waits for one of them would wait for ever.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "comm/group.h"

namespace millrace::comm {

constexpr int kHungStatus = 75;  ///< "run me again"

/// When something has waited for other ranks of `group` for longer than `timeout`, prints one line with rank, host and step, and
/// ends the process with kHungStatus, without destructors. Looks at Group::waits() alone, never at MPI or a device.
class Watchdog {
public:
    /// A timeout of zero: never. `group` outlives it.
    Watchdog(const Group& group, std::chrono::milliseconds timeout);

    /// The step that is computed from now on.
    void at_step(std::int64_t step) { step_ = step; }
    /// Work during which ranks rightly wait for each other: saving, evaluating, building. The time starts anew after it.
    UnderWay::Scope pause() { return UnderWay::Scope(pauses_); }

private:
    using Clock = UnderWay::Clock;

    void watch(const std::stop_token& end);
    [[noreturn]] void end_process() const;

    const Group& group_;
    const std::chrono::milliseconds timeout_;
    std::atomic<std::int64_t> step_ = -1;  ///< none yet
    UnderWay pauses_;
    std::jthread thread_;  ///< ends before the rest
};

}  // namespace millrace::comm
