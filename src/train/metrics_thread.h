#pragma once
// The thread that watches the metrics ring: sums what arrives, writes one row of metrics.jsonl per log interval and tells the
// observer. The training thread meets it at epoch ends and checkpoints only.

#include <condition_variable>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

#include "base/clock.h"
#include "base/result.h"
#include "record/metrics.h"
#include "train/loader_waits.h"
#include "train/metrics_reader.h"
#include "train/metrics_rows.h"
#include "train/reports.h"
#include "train/speed.h"
#include "train/step_sums.h"
#include "train/telemetry.h"

namespace millrace::train {

struct MetricsPlan {
    std::chrono::nanoseconds interval = std::chrono::seconds{1};
    std::uint64_t steps_per_epoch = 1, total_steps = 1;
    std::uint32_t epochs = 1;
    bool classifies = true;
    bool on_gpu = false;
    double flops_per_sample = 0;         ///< 0: not known
    std::optional<double> peak_flops{};  ///< of the device, per second
};

class MetricsThread {
public:
    /// `reader`, `stream`, `observer`, `telemetry` and `clock` outlive the thread. `epoch` holds what an interrupted epoch had
    /// already summed.
    MetricsThread(MetricsReader& reader, record::MetricsWriter& stream, Observer& observer, Telemetry& telemetry,
                  const base::Clock& clock, MetricsPlan plan, StepSums epoch);
    ~MetricsThread();
    MetricsThread(const MetricsThread&) = delete;
    MetricsThread& operator=(const MetricsThread&) = delete;

    /// Returns when push number `sequence` has been summed. The steps must have been launched.
    void wait_for(std::uint64_t sequence);
    /// The training thread leaves its waits for data here.
    LoaderWaits& loader_waits() { return waits_; }
    /// Push number `sequence`, not launched yet, is no ordinary step: its loss counts, its time and its samples do not.
    void exclude(std::uint64_t sequence);
    /// How the epoch went so far, at this average speed: step times, waits, the machine.
    PaceReport epoch_pace(double samples_per_second);
    /// Starts the next epoch's figures.
    void begin_epoch();
    /// Time from here to resume() counts neither as training nor towards a log interval.
    void pause();
    void resume();

    /// The sums of the epoch so far; `take` also starts the next epoch. Call between wait_for and the next launch.
    StepSums epoch_sums();
    StepSums take_epoch();
    /// Writes the interval that is open, if any steps are in it.
    void close_interval();
    /// Appends a row of somebody else (an epoch, a test) to the stream and posts it to the sinks. Rows that cannot be written are
    /// kept back and tried again; a warning says so once.
    void append(record::RowKind kind, const Row& row);
    /// Flushes the stream to the disk, where that is possible, and gives its size with every row written.
    std::uint64_t sync();
    struct Totals {
        double seconds = 0, samples = 0, samples_per_second = 0, steps_per_second = 0;
    };
    [[nodiscard]] Totals totals();

private:
    void loop();
    void drain_locked();
    void report_locked(std::chrono::nanoseconds now);
    void note_locked(const base::Status& written);

    MetricsReader& reader_;
    record::MetricsWriter& stream_;
    Observer& observer_;
    Telemetry& telemetry_;
    LoaderWaits waits_;
    const base::Clock& clock_;
    const MetricsPlan plan_;

    std::mutex mutex_;  ///< guards everything below
    std::condition_variable wake_;
    bool stopping_ = false;
    struct Pace {
        record::Series step_ms{};
        LoaderSums loader{};
    };
    [[nodiscard]] PaceReport pace_locked(const Pace& pace, double samples_per_second, MachineReport machine) const;

    StepSums interval_, epoch_;
    Pace interval_pace_, epoch_pace_;
    std::optional<std::uint64_t> last_clock_;  ///< of the step before, when it was an ordinary one
    std::uint64_t excluded_ = 0;               ///< sequence; 0: none
    std::chrono::nanoseconds interval_start_{}, paused_at_{};
    SpeedMeter speed_;
    bool behind_ = false;  ///< rows are kept back
    std::thread thread_;
};

}  // namespace millrace::train
