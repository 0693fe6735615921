#include "sweep/heartbeat.h"

namespace millrace::sweep {

Heartbeat::Heartbeat(std::function<base::Result<storage::Study>()> open, std::chrono::milliseconds interval)
    : open_(std::move(open)), interval_(interval), thread_([this](const std::stop_token& stop) { beat(stop); }) {}

void Heartbeat::hold(std::vector<std::int64_t> numbers) {
    const std::lock_guard lock(mutex_);
    numbers_ = std::move(numbers);
}

void Heartbeat::beat(const std::stop_token& stop) {
    std::optional<storage::Study> study;
    std::unique_lock lock(mutex_);
    for (;;) {
        ended_.wait_for(lock, stop, interval_, [] { return false; });
        if (stop.stop_requested()) return;
        const std::vector<std::int64_t> numbers = numbers_;
        if (numbers.empty()) continue;
        lock.unlock();
        if (!study) {
            auto opened = open_();
            if (opened.ok()) study.emplace(std::move(opened).value());
        }
        if (study) (void)study->heartbeat(numbers);
        lock.lock();
    }
}

}  // namespace millrace::sweep
