#include "train/metrics_thread.h"

#include <algorithm>
#include <utility>

namespace millrace::train {
namespace {

// The ring holds thousands of steps, so only shorter log intervals need a shorter period.
constexpr std::chrono::nanoseconds kPollPeriod = std::chrono::milliseconds{10};
constexpr std::chrono::microseconds kDeviceWait{50};

}  // namespace

MetricsThread::MetricsThread(MetricsReader& reader, const std::vector<Listener*>& listeners, const base::Clock& clock,
                             MetricsPlan plan, StepSums epoch)
    : reader_(reader),
      listeners_(listeners),
      clock_(clock),
      plan_(plan),
      interval_{StepSums(reader.members())},
      epoch_{std::move(epoch)},
      interval_start_(clock.now()),
      paused_at_(clock.now()) {
    speed_.start(clock_.now());
    thread_ = std::jthread([this](const std::stop_token& stop) { loop(stop); });
}

void MetricsThread::loop(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    const auto period = std::min(kPollPeriod, plan_.interval);
    while (!stop.stop_requested()) {
        wake_.wait_for(lock, stop, period, [] { return false; });
        drain_locked();
        const auto now = clock_.now();
        if (now - interval_start_ >= plan_.interval && interval_.sums.steps() > 0) report_locked(now);
    }
}

void MetricsThread::drain_locked() {
    reader_.drain([this](RingRows rows) {
        interval_.sums.add(rows);
        epoch_.sums.add(rows);
        if (rows.front().sequence == excluded_) {
            last_clock_.reset();
            return;
        }
        std::uint64_t samples = 0;
        for (const ops::MetricsRow& row : rows) samples += row.rows;
        speed_.add(1, samples * static_cast<std::uint64_t>(plan_.member_groups));
        const std::uint64_t clock = rows.front().clock;
        // A device's clock may be coarse; one that runs backwards was set meanwhile.
        if (last_clock_ && clock >= *last_clock_)
            for (Stretch* stretch : {&interval_, &epoch_}) stretch->step_ms.add(1e-6 * static_cast<double>(clock - *last_clock_));
        last_clock_ = clock;
    });
    waits_.drain([this](std::chrono::nanoseconds wait) {
        for (Stretch* stretch : {&interval_, &epoch_}) stretch->loader.add(wait);
    });
}

PaceReport MetricsThread::pace_of(const Stretch& stretch, double samples_per_second) const {
    PaceReport report;
    if (!stretch.step_ms.empty()) {
        report.step_ms_p50 = stretch.step_ms.quantile(0.5);
        report.step_ms_p99 = stretch.step_ms.quantile(0.99);
    }
    if (plan_.flops_per_sample > 0 && samples_per_second > 0) {
        report.flops_per_second = plan_.flops_per_sample * samples_per_second;
        if (plan_.peak_flops) report.flops_share_percent = 100 * *report.flops_per_second / *plan_.peak_flops;
    }
    report.loader = stretch.loader.report();
    return report;
}

void MetricsThread::report_locked(std::chrono::nanoseconds now) {
    IntervalReport report;
    report.step = interval_.sums.last_step;
    report.total_steps = plan_.total_steps;
    report.epoch = static_cast<std::uint32_t>((report.step - 1) / plan_.steps_per_epoch) + 1;
    report.epochs = plan_.epochs;
    report.loss = interval_.sums.mean_loss();
    report.classifies = plan_.classifies;
    report.scales_loss = plan_.scales_loss;
    const SpeedMeter::Speed recent = speed_.recent(now), average = speed_.average(now);
    report.recent_samples = recent.samples;
    report.recent_steps = recent.steps;
    report.average_samples = average.samples;
    report.seconds_left = average.steps > 0
                              ? static_cast<double>(plan_.total_steps - std::min(plan_.total_steps, report.step)) / average.steps
                              : -1;
    report.training_seconds = speed_.seconds(now);
    report.pace = pace_of(interval_, recent.samples);
    report.sums = std::exchange(interval_, {StepSums(reader_.members())}).sums;
    interval_start_ = now;
    for (Listener* listener : listeners_) listener->on_interval(report);
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

MetricsThread::Totals MetricsThread::totals() {
    const std::lock_guard lock(mutex_);
    const SpeedMeter::Speed average = speed_.average(clock_.now());
    const double seconds = speed_.seconds(clock_.now());
    return {seconds, average.samples * seconds, average.samples, average.steps};
}

}  // namespace millrace::train
