#pragma once
// How long steps waited for their data. The training thread leaves each wait in a ring that the metrics thread empties: neither
// waits for the other and nothing is allocated.

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <utility>

#include "record/statistics.h"

namespace millrace::train {

/// A wait beyond this is a spike, which is reported one by one.
constexpr std::chrono::milliseconds kLoaderSpike{50};

struct LoaderReport {
    record::Statistics wait_ms;  ///< per step
    std::uint64_t spikes = 0;
};

/// Waits of an interval or an epoch.
struct LoaderSums {
    record::Series wait_ms{};
    std::uint64_t spikes = 0;

    void add(std::chrono::nanoseconds wait) {
        wait_ms.add(std::chrono::duration<double, std::milli>(wait).count());
        spikes += wait > kLoaderSpike ? 1 : 0;
    }
    [[nodiscard]] LoaderReport report() const { return {wait_ms.statistics(), spikes}; }
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
