#pragma once
// The thread that reads the metrics ring: sums what arrives and raises Listener::on_interval once per log interval. The training
// thread waits for it at epoch ends and checkpoints only.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "train/listener.h"
#include "train/loader_waits.h"
#include "train/metrics_reader.h"
#include "train/step_sums.h"

namespace millrace::train {

/// Counts work against time spent training; evaluation and saving are paused out. Not thread safe.
class SpeedMeter {
public:
    using Time = std::chrono::nanoseconds;
    struct Speed {
        double samples = 0, steps = 0;  ///< per second; 0 before anything was measured
    };

    void start(Time now) {
        *this = {};
        resume(now);
    }
    void pause(Time now) {
        active_ = active(now);
        paused_ = true;
    }
    void resume(Time now) {
        if (paused_) since_ = now;
        paused_ = false;
    }
    void add(std::uint64_t steps, std::uint64_t samples) {
        done_.steps += static_cast<double>(steps);
        done_.samples += static_cast<double>(samples);
    }
    /// Since the last call of this function (pauses left out).
    Speed recent(Time now) {
        const SpeedMeter before = *this;
        mark_ = active(now);
        mark_done_ = done_;
        return rate({done_.samples - before.mark_done_.samples, done_.steps - before.mark_done_.steps}, mark_ - before.mark_);
    }
    /// Since start (pauses left out).
    [[nodiscard]] Speed average(Time now) const { return rate(done_, active(now)); }
    [[nodiscard]] double seconds(Time now) const { return seconds_of(active(now)); }  ///< spent training since start

private:
    static double seconds_of(Time time) { return std::chrono::duration<double>(time).count(); }
    static Speed rate(Speed done, Time time) {
        return time.count() > 0 ? Speed{done.samples / seconds_of(time), done.steps / seconds_of(time)} : Speed{};
    }
    [[nodiscard]] Time active(Time now) const { return paused_ ? active_ : active_ + (now - since_); }

    Time since_{}, active_{}, mark_{};
    bool paused_ = true;
    Speed done_, mark_done_;  ///< counts, not rates
};

/// What the figures of an interval need to know of the run.
struct MetricsPlan {
    std::chrono::nanoseconds interval{};
    std::uint64_t steps_per_epoch = 1, total_steps = 1;
    std::uint32_t epochs = 1;
    int member_groups = 1;  ///< of ranks that each train as many members
    bool classifies = true;
    bool scales_loss = false;            ///< f16
    double flops_per_sample = 0;         ///< 0: not known
    std::optional<double> peak_flops{};  ///< of the device, per second
};

class MetricsThread {
public:
    /// `reader`, `listeners` and `clock` outlive the thread. `epoch` holds what an interrupted epoch had already summed.
    MetricsThread(MetricsReader& reader, const std::vector<Listener*>& listeners, const base::Clock& clock, MetricsPlan plan,
                  StepSums epoch);

    /// Returns when push number `sequence` has been summed. The steps must have been launched.
    void wait_for(std::uint64_t sequence);
    /// The training thread leaves its waits for data here.
    LoaderWaits& loader_waits() { return waits_; }
    /// Push number `sequence`, not launched yet, is no ordinary step: its loss counts, its time and its samples do not.
    void exclude(std::uint64_t sequence) {
        const std::lock_guard lock(mutex_);
        excluded_ = sequence;
    }
    /// How the epoch went so far, at this average speed: step times and waits. The machine is left to a listener.
    PaceReport epoch_pace(double samples_per_second) {
        const std::lock_guard lock(mutex_);
        return pace_of(epoch_, samples_per_second);
    }
    /// What a sample takes from now on; 0: not known. The ring is not being drained when it returns.
    void set_flops(double per_sample) {
        const std::lock_guard lock(mutex_);
        plan_.flops_per_sample = per_sample;
    }
    /// Starts the next epoch's figures.
    void begin_epoch() {
        const std::lock_guard lock(mutex_);
        epoch_ = {std::move(epoch_.sums)};
    }
    /// Time from here to resume() counts neither as training nor towards a log interval.
    void pause() {
        const std::lock_guard lock(mutex_);
        paused_at_ = clock_.now();
        speed_.pause(paused_at_);
        last_clock_.reset();  // what comes before the next step is no step
    }
    void resume() {
        const std::lock_guard lock(mutex_);
        speed_.resume(clock_.now());
        interval_start_ += clock_.now() - paused_at_;
    }

    /// The sums of the epoch so far; `take` also starts the next epoch. Call between wait_for and the next launch.
    StepSums epoch_sums() {
        const std::lock_guard lock(mutex_);
        return epoch_.sums;
    }
    StepSums take_epoch() {
        const std::lock_guard lock(mutex_);
        return std::exchange(epoch_.sums, StepSums(reader_.members()));
    }
    /// Reports the interval that is open, if any steps are in it.
    void close_interval() {
        const std::lock_guard lock(mutex_);
        if (interval_.sums.steps() > 0) report_locked(clock_.now());
    }
    struct Totals {
        double seconds = 0, samples = 0, samples_per_second = 0, steps_per_second = 0;
    };
    [[nodiscard]] Totals totals();

private:
    void loop(const std::stop_token& stop);
    void drain_locked();
    void report_locked(std::chrono::nanoseconds now);

    MetricsReader& reader_;
    const std::vector<Listener*>& listeners_;
    LoaderWaits waits_;
    const base::Clock& clock_;

    std::mutex mutex_;  ///< guards everything below
    MetricsPlan plan_;
    std::condition_variable_any wake_;
    struct Stretch {
        StepSums sums;
        record::Series step_ms{};
        LoaderSums loader{};
    };
    [[nodiscard]] PaceReport pace_of(const Stretch& stretch, double samples_per_second) const;

    Stretch interval_, epoch_;
    std::optional<std::uint64_t> last_clock_;  ///< of the step before, when it was an ordinary one
    std::uint64_t excluded_ = 0;               ///< sequence; 0: none
    std::chrono::nanoseconds interval_start_{}, paused_at_{};
    SpeedMeter speed_;
    std::jthread thread_;
};

}  // namespace millrace::train
