#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace millrace::base {

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
    std::atomic<std::int64_t> elapsed_;
};

}  // namespace millrace::base
