#pragma once
// Recent and average speed, and the time left that follows from them.

#include <chrono>
#include <cstdint>

namespace millrace::train {

/// Counts work against time spent training; evaluation and saving are paused out. Not thread safe.
class SpeedMeter {
public:
    using Time = std::chrono::nanoseconds;

    void start(Time now);
    void pause(Time now);
    void resume(Time now);
    void add(std::uint64_t steps, std::uint64_t samples);

    struct Speed {
        double samples = 0, steps = 0;  ///< per second; 0 before anything was measured
    };
    /// Since the last call of this function (pauses left out).
    Speed recent(Time now);
    /// Since start (pauses left out).
    [[nodiscard]] Speed average(Time now) const;
    [[nodiscard]] double seconds(Time now) const;  ///< spent training since start

private:
    [[nodiscard]] Time active(Time now) const { return paused_ ? active_ : active_ + (now - since_); }

    Time since_{}, active_{}, mark_{};
    bool paused_ = true;
    std::uint64_t steps_ = 0, samples_ = 0, mark_steps_ = 0, mark_samples_ = 0;
};

}  // namespace millrace::train
