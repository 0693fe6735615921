#pragma once
// A thread that reads a source on an absolute schedule: tick n is due at start + n * interval, whatever the ticks before took.
// Ticks that came and went while a reading was under way are missed: counted, never made up for.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "sense/machine.h"

namespace millrace::sense {

/// The arithmetic of the schedule, apart from any thread.
class Schedule {
public:
    Schedule(std::chrono::nanoseconds start, std::chrono::nanoseconds interval) : start_(start), interval_(interval) {}

    /// When the next tick is due.
    [[nodiscard]] std::chrono::nanoseconds due() const { return start_ + interval_ * static_cast<std::int64_t>(next_); }
    struct Tick {
        std::uint64_t sequence = 0;  ///< number of the tick taken
        std::uint64_t missed = 0;    ///< ticks skipped before it
        std::chrono::nanoseconds late{};
    };
    /// Takes the newest tick that is due at `now` (now >= due()) and moves on to the one after it. `late` is behind that tick, so
    /// always below the interval.
    Tick take(std::chrono::nanoseconds now);

private:
    std::chrono::nanoseconds start_, interval_;
    std::uint64_t next_ = 0;
};

class Sampler {
public:
    /// Called on the sampler's thread with each sample. It must be quick and must not throw.
    using Receiver = std::function<void(const Sample&)>;

    /// Starts at once; the first sample is taken immediately. Everything is borrowed until stop(). The thread sleeps on the real
    /// monotonic clock for as long as `clock` says is left and then asks it again: with a fake clock that the source or the
    /// receiver moves past the next tick, it never sleeps. The interval is above zero.
    Sampler(Source& source, std::chrono::nanoseconds interval, Receiver receiver,
            const base::Clock& clock = base::SteadyClock::shared());
    ~Sampler() { stop(); }
    Sampler(const Sampler&) = delete;
    Sampler& operator=(const Sampler&) = delete;

    /// Joins the thread; no call of the receiver is under way afterwards.
    void stop();

    struct Costs {
        std::uint64_t samples = 0, missed = 0;
        double cpu_seconds = 0;  ///< of the sampler's thread
    };
    [[nodiscard]] Costs costs() const;

private:
    void loop();
    /// Sleeps until `due`; false when asked to stop.
    bool wait_for(std::chrono::nanoseconds due);

    Source& source_;
    const std::chrono::nanoseconds interval_;
    const Receiver receiver_;
    const base::Clock& clock_;
    mutable std::mutex mutex_;  ///< guards what follows
    std::condition_variable wake_;
    bool stopping_ = false;
    Costs costs_;
    std::thread thread_;
};

}  // namespace millrace::sense
