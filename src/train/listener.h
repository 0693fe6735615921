#pragma once
// The events of a run, and the interface of what listens to them: checkpoints, scores, streams, warnings, the console, and the
// listeners that a caller of train() adds.

#include <atomic>

#include "base/result.h"
#include "train/reports.h"

namespace millrace::train {

/// A run raises start and epoch_begin; per step step_begin, wait, timed_step where its parts were timed, epoch and epoch_begin
/// where it ends an epoch, and step; then stop, and finish. Listeners are called in the order in which the loop was given them,
/// and each sees what those before it added to a report. on_interval comes from the thread that reads the metrics ring, or from
/// the training thread where it closes an interval early, under a lock: it must not wait for the training thread or call the
/// loop. Everything else comes from the training thread. An error ends the run.
class Listener {
public:
    Listener() = default;
    virtual ~Listener() = default;
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

    /// Nothing was launched yet.
    virtual void on_start(const StartReport&) {}
    /// The figures of an epoch start at zero.
    virtual void on_epoch_begin() {}
    /// `done` steps of the run were launched, and another will be. Everything that belongs to them was heard and saved.
    virtual base::Status on_step_begin(std::uint64_t /*done*/) { return base::ok(); }
    /// The data of the next step is there.
    virtual void on_wait(const StepWait&) {}
    virtual void on_timed_step(const TimedStep&) {}
    /// Step number `step` of the run, from 1, was launched; the device may still be running it. At the end of an epoch after
    /// on_epoch.
    virtual base::Status on_step(std::uint64_t /*step*/) { return base::ok(); }
    /// At the end of a log interval.
    virtual void on_interval(IntervalReport&) {}
    /// At the end of an epoch, or of a run that ends within one. The device is idle, and the time counts in no speed.
    virtual base::Status on_epoch(EpochReport&) { return base::ok(); }
    /// No step follows, because all were done or because the run was stopped. The device is idle.
    virtual base::Status on_stop(RunResult&) { return base::ok(); }
    /// The run directory is complete.
    virtual void on_finish(const RunResult&) {}

    /// Asks the loop to end after the step that it is at, as a signal would: a checkpoint is saved and the run can be resumed.
    /// From any thread, between on_start and on_stop.
    void request_stop() { stop_ = true; }
    [[nodiscard]] bool stop_requested() const { return stop_.load(std::memory_order_relaxed); }
    /// By the loop, before on_start.
    void clear_stop() { stop_ = false; }

private:
    std::atomic<bool> stop_{false};
};

}  // namespace millrace::train
