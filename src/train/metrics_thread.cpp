#include "train/metrics_thread.h"

#include <algorithm>

#include "train/metrics_rows.h"

namespace millrace::train {
namespace {

constexpr std::chrono::milliseconds kLook{10};  // the ring holds thousands of steps; looking more often buys nothing
constexpr std::chrono::microseconds kDeviceWait{50};

double unix_seconds(const base::Clock& clock) { return std::chrono::duration<double>(clock.wall().time_since_epoch()).count(); }

}  // namespace

MetricsThread::MetricsThread(MetricsReader& reader, record::MetricsWriter& stream, Observer& observer, const base::Clock& clock,
                             MetricsPlan plan, StepSums epoch)
    : reader_(reader),
      stream_(stream),
      observer_(observer),
      clock_(clock),
      plan_(plan),
      interval_(reader.members()),
      epoch_(std::move(epoch)),
      interval_start_(clock.now()),
      paused_at_(clock.now()) {
    speed_.start(clock_.now());
    thread_ = std::thread([this] { loop(); });
}

MetricsThread::~MetricsThread() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
}

void MetricsThread::loop() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
        wake_.wait_for(lock, kLook, [this] { return stopping_; });
        drain_locked();
        const auto now = clock_.now();
        if (now - interval_start_ >= plan_.interval && interval_.steps() > 0) report_locked(now);
    }
}

void MetricsThread::drain_locked() {
    reader_.drain([this](RingRows rows) {
        interval_.add(rows);
        epoch_.add(rows);
        std::uint64_t samples = 0;
        for (const ops::MetricsRow& row : rows) samples += row.rows;
        speed_.add(1, samples);
    });
}

void MetricsThread::report_locked(std::chrono::nanoseconds now) {
    IntervalReport report;
    report.step = interval_.last_step;
    report.total_steps = plan_.total_steps;
    report.epoch = static_cast<std::uint32_t>((report.step - 1) / plan_.steps_per_epoch) + 1;
    report.epochs = plan_.epochs;
    report.loss = interval_.mean_loss();
    const SpeedMeter::Speed recent = speed_.recent(now), average = speed_.average(now);
    report.recent_samples = recent.samples;
    report.recent_steps = recent.steps;
    report.average_samples = average.samples;
    report.seconds_left = average.steps > 0
                              ? static_cast<double>(plan_.total_steps - std::min(plan_.total_steps, report.step)) / average.steps
                              : -1;
    const base::Status written = stream_.append(interval_row(report, interval_, {speed_.seconds(now), unix_seconds(clock_)}));
    if (!written.ok() && !failure_) failure_ = written.error();
    interval_.clear();
    interval_start_ = now;
    observer_.on_interval(report);
}

void MetricsThread::wait_for(std::uint64_t sequence) {
    while (true) {
        {
            const std::lock_guard lock(mutex_);
            drain_locked();
            if (reader_.consumed() >= sequence) return;
        }
        std::this_thread::sleep_for(kDeviceWait);
    }
}

void MetricsThread::pause() {
    const std::lock_guard lock(mutex_);
    paused_at_ = clock_.now();
    speed_.pause(paused_at_);
}

void MetricsThread::resume() {
    const std::lock_guard lock(mutex_);
    speed_.resume(clock_.now());
    interval_start_ += clock_.now() - paused_at_;
}

StepSums MetricsThread::epoch_sums() {
    const std::lock_guard lock(mutex_);
    return epoch_;
}

StepSums MetricsThread::take_epoch() {
    const std::lock_guard lock(mutex_);
    StepSums taken = epoch_;
    epoch_.clear();
    return taken;
}

void MetricsThread::close_interval() {
    const std::lock_guard lock(mutex_);
    if (interval_.steps() > 0) report_locked(clock_.now());
}

base::Status MetricsThread::append(std::span<const record::Metric> row) {
    const std::lock_guard lock(mutex_);
    return stream_.append(row);
}

base::Result<std::uint64_t> MetricsThread::sync() {
    const std::lock_guard lock(mutex_);
    if (failure_) return *failure_;
    MILLRACE_TRY(stream_.sync());
    return stream_.offset();
}

MetricsThread::Totals MetricsThread::totals() {
    const std::lock_guard lock(mutex_);
    const SpeedMeter::Speed average = speed_.average(clock_.now());
    const double seconds = speed_.seconds(clock_.now());
    return {seconds, average.samples * seconds, average.samples, average.steps};
}

}  // namespace millrace::train
