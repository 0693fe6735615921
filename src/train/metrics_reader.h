#pragma once
// Reads the metrics ring while the device fills it, where no call waits for the device, and says how far the host runs ahead.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <thread>

#include "ops/backend.h"
#include "ops/member_state.h"

namespace millrace::train {

/// The K rows that one step left behind.
using RingRows = std::span<const ops::MetricsRow>;

/// One thread drains; any thread may ask how far it got.
class MetricsReader {
public:
    /// `ring` is [capacity][members]; row s mod capacity holds push number s, from 1.
    MetricsReader(const ops::MetricsRow* ring, std::uint32_t capacity, int members)
        : ring_(ring), capacity_(capacity), members_(static_cast<std::size_t>(members)) {}

    /// Hands every step that has arrived since the last call to `sink`, in order; returns how many. `sink` sees the ring itself.
    template <class Sink>
    std::uint64_t drain(Sink sink) {
        const std::uint64_t before = consumed_.load(std::memory_order_relaxed);
        std::uint64_t next = before + 1;
        for (; arrived(next); ++next) {
            sink(rows_of(next));
            consumed_.store(next, std::memory_order_release);
        }
        return next - 1 - before;
    }
    /// Whether the device has finished push number `sequence`, whose row must not have been overwritten since.
    [[nodiscard]] bool arrived(std::uint64_t sequence) const {
        for (const ops::MetricsRow& row : rows_of(sequence)) {
            auto& written = const_cast<std::uint64_t&>(row.sequence);  // atomic_ref of C++20 takes no const object
            if (std::atomic_ref<std::uint64_t>(written).load(std::memory_order_acquire) < sequence) return false;
        }
        return true;
    }
    /// Goes on with another ring of the same size that holds the same rows. The one before must outlive what drains it now.
    void follow(const ops::MetricsRow* ring) { ring_ = ring; }
    /// Pushes handed out so far. The producer must stay less than `capacity` ahead of this.
    [[nodiscard]] std::uint64_t consumed() const { return consumed_.load(std::memory_order_acquire); }
    [[nodiscard]] std::uint32_t capacity() const { return capacity_; }
    [[nodiscard]] int members() const { return static_cast<int>(members_); }

private:
    [[nodiscard]] RingRows rows_of(std::uint64_t sequence) const {
        return {ring_.load() + sequence % capacity_ * members_, members_};
    }

    std::atomic<const ops::MetricsRow*> ring_;
    std::uint32_t capacity_;
    std::size_t members_;
    std::atomic<std::uint64_t> consumed_{0};
};

constexpr std::uint64_t kStepsInFlight = 64;  ///< enough to hide the host, few enough to stop soon

/// More than that many of the `launched` steps have not ended.
inline bool is_far_ahead(const MetricsReader& reader, std::uint64_t launched) {
    return launched > kStepsInFlight && !reader.arrived(launched - kStepsInFlight);
}

/// Reads host memory alone while it waits; an error where the device has failed.
template <class Condition>
base::Status wait_while(ops::Backend& backend, const Condition& condition) {
    while (condition()) {
        MILLRACE_TRY(backend.check());
        std::this_thread::sleep_for(std::chrono::microseconds{50});
    }
    return base::ok();
}

}  // namespace millrace::train
