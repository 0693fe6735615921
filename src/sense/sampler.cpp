#include "sense/sampler.h"

#include <sched.h>

#include <algorithm>
#include <ctime>

#include "base/result.h"

namespace millrace::sense {
namespace {

using std::chrono::nanoseconds;

double thread_cpu_seconds() {
    timespec used{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

/// A thread that sleeps nearly always and is asked to be on time. With busy cores a kernel may let an ordinary thread wait for
/// its timer tick (4 ms), whatever its niceness; a real-time one runs at once. Only the privileged may ask; for others nothing
/// changes.
void ask_for_priority() {
    sched_param lowest{};
    lowest.sched_priority = ::sched_get_priority_min(SCHED_RR);
    static_cast<void>(::sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &lowest));  // 0 is the calling thread
}

}  // namespace

Schedule::Tick Schedule::take(nanoseconds now) {
    Tick tick;
    const nanoseconds behind = std::max(now - due(), nanoseconds{0});
    tick.missed = static_cast<std::uint64_t>(behind / interval_);
    tick.sequence = next_ + tick.missed;
    tick.late = behind % interval_;
    next_ = tick.sequence + 1;
    return tick;
}

Sampler::Sampler(Source& source, nanoseconds interval, Receiver receiver, const base::Clock& clock)
    : source_(source), interval_(interval), receiver_(std::move(receiver)), clock_(clock) {
    MILLRACE_ASSERT(interval > nanoseconds{0}, "a sampler needs an interval above zero");
    thread_ = std::thread([this] { loop(); });
}

void Sampler::stop() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
}

Sampler::Costs Sampler::costs() const {
    const std::lock_guard lock(mutex_);
    return costs_;
}

bool Sampler::wait_for(nanoseconds due) {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
        const nanoseconds left = due - clock_.now();
        if (left <= nanoseconds{0}) return true;
        // The clock given may be a fake that moves by itself, so what it says is asked again after each wait.
        wake_.wait_until(lock, std::chrono::steady_clock::now() + left);
    }
    return false;
}

void Sampler::loop() {
    ask_for_priority();
    Schedule schedule(clock_.now(), interval_);
    Sample sample;
    while (wait_for(schedule.due())) {
        const nanoseconds now = clock_.now();
        const Schedule::Tick tick = schedule.take(now);
        sample.time = now;
        sample.wall = std::chrono::duration<double>(clock_.wall().time_since_epoch()).count();
        sample.sequence = tick.sequence;
        sample.late = tick.late;
        source_.read(now, sample);
        sample.took = clock_.now() - now;
        receiver_(sample);
        const double cpu_seconds = thread_cpu_seconds();
        const std::lock_guard lock(mutex_);
        ++costs_.samples;
        costs_.missed += tick.missed;
        costs_.cpu_seconds = cpu_seconds;
    }
}

}  // namespace millrace::sense
