#include "comm/watchdog.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace millrace::comm {
namespace {

using namespace std::chrono_literals;

constexpr auto kLongestTick = 1000ms;

}  // namespace

Watchdog::Pause::Pause(Watchdog& watchdog) : watchdog_(watchdog) { ++watchdog_.pauses_; }

Watchdog::Pause::~Pause() {
    watchdog_.resumed_ = Clock::now().time_since_epoch().count();
    --watchdog_.pauses_;
}

Watchdog::Watchdog(const Group& group, std::chrono::milliseconds timeout) : group_(group), timeout_(timeout) {
    if (timeout_ > 0ms && group_.size() > 1) thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    stopped_.notify_all();
    if (thread_.joinable()) thread_.join();
}

void Watchdog::watch() {
    const auto tick = std::clamp(timeout_ / 8, 1ms, kLongestTick);
    auto last = Clock::now();
    auto awake_since = last;
    std::unique_lock lock(mutex_);
    while (!stopped_.wait_for(lock, tick, [this] { return stop_; })) {
        const auto now = Clock::now();
        // A process that was itself stopped, or its machine, has not waited for the others all that time.
        if (now - last > timeout_ / 2) awake_since = now;
        last = now;
        const auto waiting_since = group_.progress().waiting_since();
        if (!waiting_since.has_value() || pauses_ > 0) continue;
        const Clock::time_point resumed(Clock::duration(resumed_.load()));
        if (now - std::max({*waiting_since, resumed, awake_since}) > timeout_) end_process();
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
