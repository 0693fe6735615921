#include "comm/watchdog.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

namespace millrace::comm {

using namespace std::chrono_literals;

Watchdog::Watchdog(const Group& group, std::chrono::milliseconds timeout) : group_(group), timeout_(timeout) {
    if (timeout_ > 0ms && group_.size() > 1) thread_ = std::jthread([this](const std::stop_token& end) { watch(end); });
}

void Watchdog::watch(const std::stop_token& end) {
    const auto tick = std::clamp(timeout_ / 8, 1ms, 1000ms);
    auto last = Clock::now();
    auto awake_since = last;
    std::mutex mutex;
    std::unique_lock lock(mutex);
    for (std::condition_variable_any ended; !ended.wait_for(lock, end, tick, [&] { return end.stop_requested(); });) {
        const auto now = Clock::now();
        // A process that was itself stopped, or its machine, has not waited for the others all that time.
        if (now - last > timeout_ / 2) awake_since = now;
        last = now;
        const UnderWay& waits = group_.waits();
        if (waits.count() == 0 || pauses_.count() > 0) continue;
        if (now - std::max({waits.changed(), pauses_.changed(), awake_since}) > timeout_) end_process();
    }
}

void Watchdog::end_process() const {
    const std::int64_t step = step_;
    const std::string where = step < 0 ? "before the first step" : fmt::format("in step {}", step);
    const std::string line = fmt::format(
        "millrace: rank {} of {} on {}: waited {:g} s for the other ranks {}; one of them is gone, stopped or too slow "
        "(parallel.timeout); ending with status {}\n",
        group_.rank(), group_.size(), group_.hosts()[static_cast<std::size_t>(group_.rank())],
        std::chrono::duration<double>(timeout_).count(), where, kHungStatus);
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
    _exit(kHungStatus);
}

}  // namespace millrace::comm
