#pragma once
// How long steps waited for their data. The training thread leaves each wait in a ring that the metrics thread empties: neither
// waits for the other and nothing is allocated.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "record/statistics.h"

namespace millrace::train {

/// A wait beyond this is a spike, which is reported one by one.
constexpr std::chrono::milliseconds kLoaderSpike{50};

struct LoaderReport {
    record::Statistics wait_ms;  ///< per step
    std::uint64_t spikes = 0;
    std::array<double, 5> worst_ms{};  ///< the longest spikes, longest first; 0 beyond their number
    double spike_spacing = 0;          ///< mean number of steps from one spike to the next; 0: fewer than two
};

/// Waits of an interval or an epoch.
struct LoaderSums {
    record::Series wait_ms{};
    std::uint64_t spikes = 0, first_spike = 0, last_spike = 0;  ///< the latter by the count of waits at that moment
    std::array<double, 5> worst_ms{};

    void add(std::chrono::nanoseconds wait) {
        const double milliseconds = std::chrono::duration<double, std::milli>(wait).count();
        wait_ms.add(milliseconds);
        if (wait <= kLoaderSpike) return;
        last_spike = wait_ms.count();
        if (spikes++ == 0) first_spike = last_spike;
        if (milliseconds <= worst_ms.back()) return;
        worst_ms.back() = milliseconds;
        std::ranges::sort(worst_ms, std::greater());
    }
    [[nodiscard]] LoaderReport report() const {
        const double spacing = spikes < 2 ? 0 : static_cast<double>(last_spike - first_spike) / static_cast<double>(spikes - 1);
        return {wait_ms.statistics(), spikes, worst_ms, spacing};
    }
};

class LoaderWaits {
public:
    /// By the training thread. The first step of all is left out: it waits for the pipeline to fill. True when the wait was a
    /// spike.
    bool add(std::chrono::nanoseconds wait) noexcept {
        if (std::exchange(first_, false)) return false;
        const std::uint64_t at = written_.load(std::memory_order_relaxed);
        // The metrics ring holds steps back long before this fills up; were it full, one wait less is no loss.
        if (at - read_.load(std::memory_order_acquire) < kCapacity) {
            waits_[at % kCapacity] = wait;
            written_.store(at + 1, std::memory_order_release);
        }
        return wait > kLoaderSpike;
    }
    /// By the metrics thread: hands every wait since the last call to `take`.
    template <class Take>
    void drain(Take take) {
        const std::uint64_t end = written_.load(std::memory_order_acquire);
        std::uint64_t at = read_.load(std::memory_order_relaxed);
        for (; at < end; ++at) take(waits_[at % kCapacity]);
        read_.store(at, std::memory_order_release);
    }

private:
    static constexpr std::uint64_t kCapacity = 4096;  // of the metrics ring, too: emptied together
    std::array<std::chrono::nanoseconds, kCapacity> waits_{};
    std::atomic<std::uint64_t> written_{0}, read_{0};
    bool first_ = true;  ///< the training thread's own
};

}  // namespace millrace::train
