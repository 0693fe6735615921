#include "train/run_log.h"

#include <fmt/format.h>

#include "base/log.h"
#include "train/console.h"

namespace millrace::train {

using record::RowKind;

void RunLog::on_start(const StartReport& report) {
    Engine& engine = loop_.engine();
    (void)telemetry_.events().append("memory", report.memory,
                                     {{"planned_bytes", engine.memory_needs().total()},
                                      {"planned_peak_bytes", engine.memory_needs().peak()},
                                      {"activation_bytes", engine.memory_needs().activations},
                                      {"used_bytes", engine.memory_used()},
                                      {"micro_batch", std::int64_t{engine.micro_batch()}}});
}

void RunLog::on_timed_step(const TimedStep& timed) {
    if (!timed.phases) {
        MILLRACE_LOG(profiling, "{}", operators_text(timed.kernels, timed.step));
        return;
    }
    MILLRACE_LOG(performance, "{}", components_text(*timed.phases, timed.step));
    append(RowKind::kComponents, components_row(*timed.phases, loop_.engine().model().components(), timed.step, timed.epoch,
                                                now(timed.training_seconds)));
}

void RunLog::on_interval(IntervalReport& report) {
    append(RowKind::kInterval, interval_row(report, report.sums, now(report.training_seconds)));
}

base::Status RunLog::on_epoch(EpochReport& report) {
    append(RowKind::kEpoch, epoch_row(report, now(report.training_seconds)));
    return base::ok();
}

base::Status RunLog::on_stop(RunResult& result) {
    if (!result.stopped && result.tested) append(RowKind::kTest, test_row(result, now(result.seconds)));
    return base::ok();
}

RowTime RunLog::now(double training_seconds) const {
    return {training_seconds, std::chrono::duration<double>(clock_.wall().time_since_epoch()).count()};
}

void RunLog::append(RowKind kind, const Row& row) {
    telemetry_.post(kind, row);
    const std::lock_guard lock(mutex_);
    note(stream_.append(row));
}

std::uint64_t RunLog::sync() {
    const std::lock_guard lock(mutex_);
    note(stream_.sync());
    return stream_.offset();
}

void RunLog::note(const base::Status& written) {
    if (!written.ok() && !behind_)
        MILLRACE_LOG(warn, "{}; training goes on, the rows are kept and written once that works again", written.error().text());
    if (written.ok() && behind_)
        MILLRACE_LOG(info, "metrics.jsonl is being written again{}",
                     stream_.lost() > 0 ? fmt::format(", {} rows were lost", stream_.lost()) : "");
    behind_ = !written.ok();
}

}  // namespace millrace::train
