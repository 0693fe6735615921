#pragma once
// Ends a process whose peers are gone: a collective that waits for one of them would wait for ever.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "comm/group.h"

namespace millrace::comm {

constexpr int kHungStatus = 75;  ///< "run me again"

/// When a collective of `group` has been under way for longer than `timeout`, prints one line with rank, host and step, and ends
/// the process with kHungStatus, without destructors. Looks at the group's Progress alone, never at MPI or a device.
class Watchdog {
public:
    /// A timeout of zero: never. `group` outlives it.
    Watchdog(const Group& group, std::chrono::milliseconds timeout);
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    /// The step that is computed from now on.
    void at_step(std::int64_t step) { step_ = step; }

    /// Work during which ranks rightly wait for each other: saving, evaluating, building. The time starts anew after it.
    class [[nodiscard]] Pause {
    public:
        explicit Pause(Watchdog& watchdog);
        ~Pause();
        Pause(const Pause&) = delete;
        Pause& operator=(const Pause&) = delete;

    private:
        Watchdog& watchdog_;
    };
    /// Pauses may nest; any thread.
    Pause pause() { return Pause(*this); }

private:
    using Clock = Progress::Clock;

    void watch();
    [[noreturn]] void end_process() const;

    const Group& group_;
    const std::chrono::milliseconds timeout_;
    std::atomic<std::int64_t> step_ = -1;  ///< none yet
    std::atomic<int> pauses_ = 0;
    std::atomic<Clock::rep> resumed_ = 0;
    std::mutex mutex_;
    std::condition_variable stopped_;
    bool stop_ = false;
    std::thread thread_;
};

}  // namespace millrace::comm
