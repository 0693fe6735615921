#pragma once
// Time as a dependency, so that tests never sleep.

#include <chrono>
#include <cstdint>

namespace millrace::base {

class Clock {
public:
    virtual ~Clock() = default;
    /// Monotonic time since an arbitrary origin; differences are durations.
    [[nodiscard]] virtual std::chrono::nanoseconds now() const = 0;
    /// Calendar time for manifests and logs; may jump, never subtract two of them.
    [[nodiscard]] virtual std::chrono::system_clock::time_point wall() const = 0;
};

/// CLOCK_MONOTONIC in nanoseconds, which all processes of a machine share.
inline std::uint64_t monotonic_ns() {
    return static_cast<std::uint64_t>(std::chrono::nanoseconds{std::chrono::steady_clock::now().time_since_epoch()}.count());
}

class SteadyClock final : public Clock {
public:
    [[nodiscard]] std::chrono::nanoseconds now() const override { return std::chrono::steady_clock::now().time_since_epoch(); }
    [[nodiscard]] std::chrono::system_clock::time_point wall() const override { return std::chrono::system_clock::now(); }
    /// The clock of callers that were given no other.
    static SteadyClock& shared() {
        static SteadyClock clock;
        return clock;
    }
};

}  // namespace millrace::base
