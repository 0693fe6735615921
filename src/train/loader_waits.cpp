#include "train/loader_waits.h"

#include <utility>

namespace millrace::train {

void LoaderSums::add(std::chrono::nanoseconds wait) {
    wait_ms.add(std::chrono::duration<double, std::milli>(wait).count());
    spikes += wait > kLoaderSpike ? 1 : 0;
}

bool LoaderWaits::add(std::chrono::nanoseconds wait) noexcept {
    if (std::exchange(first_, false)) return false;
    const std::uint64_t at = written_.load(std::memory_order_relaxed);
    // The metrics ring holds steps back long before this fills up; were it full, one wait less is no loss.
    if (at - read_.load(std::memory_order_acquire) < kCapacity) {
        waits_[at % kCapacity] = wait;
        written_.store(at + 1, std::memory_order_release);
    }
    return wait > kLoaderSpike;
}

}  // namespace millrace::train
