#pragma once
// Writes what happens in a run to metrics.jsonl, to the sinks and to the log. The rows of metrics.jsonl are flat objects whose
// `kind` is "interval", "epoch", "components" or "test". Values are means over the members; with several members each one's own
// follow as "member_003/loss".

#include <mutex>
#include <vector>

#include "base/clock.h"
#include "models/model.h"
#include "record/metrics.h"
#include "train/loop.h"
#include "train/telemetry.h"

namespace millrace::train {

using Row = std::vector<record::Metric>;

/// `seconds`: training time since this start; `time`: seconds since 1970.
struct RowTime {
    double seconds = 0, time = 0;
};

Row interval_row(const IntervalReport& report, const StepSums& sums, RowTime when);
Row epoch_row(const EpochReport& report, RowTime when);
/// An instrumented step; `components` are the model's, in the order of times.components.
Row components_row(const tape::PhaseTimes& times, const std::vector<models::Component>& components, std::uint64_t step,
                   std::uint32_t epoch, RowTime when);
Row test_row(const RunResult& result, RowTime when);

class RunLog final : public Listener {
public:
    /// Everything is borrowed.
    RunLog(Loop& loop, record::MetricsWriter& stream, Telemetry& telemetry, const base::Clock& clock)
        : loop_(loop), stream_(stream), telemetry_(telemetry), clock_(clock) {}

    void on_start(const StartReport& report) override;
    void on_timed_step(const TimedStep& timed) override;
    void on_interval(IntervalReport& report) override {
        append(record::RowKind::kInterval, interval_row(report, report.sums, now(report.training_seconds)));
    }
    base::Status on_epoch(EpochReport& report) override {
        append(record::RowKind::kEpoch, epoch_row(report, now(report.training_seconds)));
        return base::ok();
    }
    base::Status on_stop(RunResult& result) override {
        if (!result.stopped && result.tested) append(record::RowKind::kTest, test_row(result, now(result.seconds)));
        return base::ok();
    }

    /// Flushes metrics.jsonl to the disk, where that is possible, and gives its size with every row written.
    std::uint64_t sync() {
        const std::lock_guard lock(mutex_);
        note(stream_.sync());
        return stream_.offset();
    }

private:
    [[nodiscard]] RowTime now(double training_seconds) const;
    /// Rows that cannot be written are kept back and tried again; a warning says so once.
    void append(record::RowKind kind, const Row& row);
    void note(const base::Status& written);

    Loop& loop_;
    record::MetricsWriter& stream_;
    Telemetry& telemetry_;
    const base::Clock& clock_;
    std::mutex mutex_;     ///< guards stream_ and what follows
    bool behind_ = false;  ///< rows are kept back
};

}  // namespace millrace::train
