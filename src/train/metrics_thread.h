#pragma once
// The thread that reads the metrics ring: sums what arrives and raises Listener::on_interval once per log interval. The training
// thread waits for it at epoch ends and checkpoints only.

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "train/listener.h"
#include "train/loader_waits.h"
#include "train/metrics_reader.h"
#include "train/speed.h"
#include "train/step_sums.h"

namespace millrace::train {

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
    void exclude(std::uint64_t sequence);
    /// How the epoch went so far, at this average speed: step times and waits. The machine is left to a listener.
    PaceReport epoch_pace(double samples_per_second);
    /// What a sample takes from now on; 0: not known. The ring is not being drained when it returns.
    void set_flops(double per_sample);
    /// Starts the next epoch's figures.
    void begin_epoch();
    /// Time from here to resume() counts neither as training nor towards a log interval.
    void pause();
    void resume();

    /// The sums of the epoch so far; `take` also starts the next epoch. Call between wait_for and the next launch.
    StepSums epoch_sums();
    StepSums take_epoch();
    /// Reports the interval that is open, if any steps are in it.
    void close_interval();
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
