#pragma once
// Signals to a training process as requests that the loop polls. No signal is ever delivered to a thread that computes.

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <thread>

#include "base/signal_queue.h"

namespace millrace::train {

/// Blocks SIGINT, SIGTERM, SIGHUP and SIGUSR1 for as long as it lives, and takes them with a thread of its own: make it before
/// any other thread starts. One that the process inherited as ignored stays ignored (SIGHUP under nohup, SIGINT in a script's
/// background job). The first SIGINT, SIGTERM or SIGHUP is remembered as a request to stop; the second one ends the process at
/// once with 128 + its number. Each SIGUSR1 asks for a checkpoint, or is a request to stop that any other one replaces.
class RunSignals {
public:
    enum class OnUser1 { save, stop };
    explicit RunSignals(OnUser1 on_user1 = OnUser1::save) : on_user1_(on_user1), queue_(kSignals), thread_([this] { take(); }) {}
    ~RunSignals() {
        ending_ = true;
        queue_.wake();
        thread_.join();
    }

    /// 0 until the process was asked to stop, then the number of the signal.
    [[nodiscard]] const std::atomic<int>& stop() const { return stop_; }
    /// How many checkpoints were asked for.
    [[nodiscard]] const std::atomic<std::uint32_t>& saves() const { return saves_; }

private:
    static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

    void take() {
        while (!ending_) {
            const auto event = queue_.next(std::nullopt);
            if (!event) continue;
            if (event->number != SIGUSR1) {
                if (const int before = stop_.exchange(event->number); before != 0 && before != SIGUSR1)
                    _exit(128 + event->number);
            } else if (on_user1_ == OnUser1::save) {
                saves_ += 1;
            } else {
                int none = 0;
                stop_.compare_exchange_strong(none, SIGUSR1);
            }
        }
    }

    const OnUser1 on_user1_;
    base::SignalQueue queue_;
    std::atomic<int> stop_{0};
    std::atomic<std::uint32_t> saves_{0};
    std::atomic<bool> ending_{false};
    std::thread thread_;
};

}  // namespace millrace::train
