#pragma once
// Time as a dependency, so that tests never sleep.

#include <atomic>
#include <chrono>

namespace millrace::base {

class Clock {
public:
    virtual ~Clock() = default;
    /// Monotonic time since an arbitrary origin; differences are durations.
    [[nodiscard]] virtual std::chrono::nanoseconds now() const = 0;
    /// Calendar time for manifests and logs; may jump, never subtract two of them.
    [[nodiscard]] virtual std::chrono::system_clock::time_point wall() const = 0;
};

class SteadyClock final : public Clock {
public:
    [[nodiscard]] std::chrono::nanoseconds now() const override { return std::chrono::steady_clock::now().time_since_epoch(); }
    [[nodiscard]] std::chrono::system_clock::time_point wall() const override { return std::chrono::system_clock::now(); }
    /// One for everybody who was not given another.
    static SteadyClock& shared() {
        static SteadyClock clock;
        return clock;
    }
};

/// Stands still until told to move; both times move together. May be read and advanced from different threads.
class FakeClock final : public Clock {
public:
    explicit FakeClock(std::chrono::nanoseconds start = {}) : elapsed_(start.count()) {}
    [[nodiscard]] std::chrono::nanoseconds now() const override { return std::chrono::nanoseconds{elapsed_.load()}; }
    [[nodiscard]] std::chrono::system_clock::time_point wall() const override {
        return std::chrono::system_clock::time_point{std::chrono::duration_cast<std::chrono::system_clock::duration>(now())};
    }
    void advance(std::chrono::nanoseconds by) { elapsed_ += by.count(); }

private:
    std::atomic<int64_t> elapsed_;
};

}  // namespace millrace::base
