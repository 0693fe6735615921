#pragma once
// Reads the metrics ring while the device fills it. No call waits for the device.

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>

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
    std::uint64_t drain(const std::function<void(RingRows)>& sink);
    /// Whether the device has finished push number `sequence` (and nobody has overwritten its row since).
    [[nodiscard]] bool arrived(std::uint64_t sequence) const;
    /// Pushes handed out so far. The producer must stay less than `capacity` ahead of this.
    [[nodiscard]] std::uint64_t consumed() const { return consumed_.load(std::memory_order_acquire); }
    [[nodiscard]] std::uint32_t capacity() const { return capacity_; }
    [[nodiscard]] int members() const { return static_cast<int>(members_); }

private:
    [[nodiscard]] RingRows rows_of(std::uint64_t sequence) const { return {ring_ + sequence % capacity_ * members_, members_}; }

    const ops::MetricsRow* ring_;
    std::uint32_t capacity_;
    std::size_t members_;
    std::atomic<std::uint64_t> consumed_{0};
};

}  // namespace millrace::train
