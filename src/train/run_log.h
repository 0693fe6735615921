#pragma once
// Writes what happens in a run to metrics.jsonl, to the sinks and to the log.

#include <mutex>

#include "base/clock.h"
#include "record/metrics.h"
#include "train/loop.h"
#include "train/telemetry.h"

namespace millrace::train {

class RunLog final : public Listener {
public:
    /// Everything is borrowed.
    RunLog(Loop& loop, record::MetricsWriter& stream, Telemetry& telemetry, const base::Clock& clock)
        : loop_(loop), stream_(stream), telemetry_(telemetry), clock_(clock) {}

    void on_start(const StartReport& report) override;
    void on_timed_step(const TimedStep& timed) override;
    void on_interval(IntervalReport& report) override;
    base::Status on_epoch(EpochReport& report) override;
    base::Status on_stop(RunResult& result) override;

    /// Flushes metrics.jsonl to the disk, where that is possible, and gives its size with every row written.
    std::uint64_t sync();

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
