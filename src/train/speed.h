#pragma once
// Recent and average speed, and the time left that follows from them.

#include <chrono>
#include <cstdint>

namespace millrace::train {

/// Counts work against time spent training; evaluation and saving are paused out. Not thread safe.
class SpeedMeter {
public:
    using Time = std::chrono::nanoseconds;
    struct Speed {
        double samples = 0, steps = 0;  ///< per second; 0 before anything was measured
    };

    void start(Time now) {
        *this = {};
        resume(now);
    }
    void pause(Time now) {
        active_ = active(now);
        paused_ = true;
    }
    void resume(Time now) {
        if (paused_) since_ = now;
        paused_ = false;
    }
    void add(std::uint64_t steps, std::uint64_t samples) {
        done_.steps += static_cast<double>(steps);
        done_.samples += static_cast<double>(samples);
    }
    /// Since the last call of this function (pauses left out).
    Speed recent(Time now) {
        const SpeedMeter before = *this;
        mark_ = active(now);
        mark_done_ = done_;
        return rate({done_.samples - before.mark_done_.samples, done_.steps - before.mark_done_.steps}, mark_ - before.mark_);
    }
    /// Since start (pauses left out).
    [[nodiscard]] Speed average(Time now) const { return rate(done_, active(now)); }
    [[nodiscard]] double seconds(Time now) const { return seconds_of(active(now)); }  ///< spent training since start

private:
    static double seconds_of(Time time) { return std::chrono::duration<double>(time).count(); }
    static Speed rate(Speed done, Time time) {
        return time.count() > 0 ? Speed{done.samples / seconds_of(time), done.steps / seconds_of(time)} : Speed{};
    }
    [[nodiscard]] Time active(Time now) const { return paused_ ? active_ : active_ + (now - since_); }

    Time since_{}, active_{}, mark_{};
    bool paused_ = true;
    Speed done_, mark_done_;  ///< counts, not rates
};

}  // namespace millrace::train
