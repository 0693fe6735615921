#pragma once
// Signals to a training process as requests that the loop looks at. No signal is ever delivered to a thread that computes.

#include <atomic>
#include <cstdint>
#include <thread>

#include "base/signal_queue.h"

namespace millrace::train {

/// Blocks SIGINT, SIGTERM, SIGUSR1 and, unless it is ignored (nohup), SIGHUP for as long as it lives, and takes them with a
/// thread of its own: make it before any other thread starts. The first SIGINT, SIGTERM or SIGHUP is remembered as the wish to
/// stop; the second one ends the process at once with 128 + its number. Each SIGUSR1 asks for a checkpoint. SIGPIPE is ignored
/// meanwhile: whoever read our output may leave, the run goes on.
class RunSignals {
public:
    RunSignals();
    ~RunSignals();
    RunSignals(const RunSignals&) = delete;
    RunSignals& operator=(const RunSignals&) = delete;

    /// 0 until the process was asked to stop, then the number of the signal.
    [[nodiscard]] const std::atomic<int>& stop() const { return stop_; }
    /// How many checkpoints were asked for.
    [[nodiscard]] const std::atomic<std::uint32_t>& saves() const { return saves_; }

private:
    void take();

    base::SignalQueue queue_;
    std::atomic<int> stop_{0};
    std::atomic<std::uint32_t> saves_{0};
    std::atomic<bool> ending_{false};
    std::thread thread_;
};

}  // namespace millrace::train
