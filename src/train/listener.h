#pragma once
// The events of a run with what they carry, and the interface of what listens to them: checkpoints, scores, streams, warnings,
// the console, and the listeners that a caller of train() adds. Accuracies are fractions of 1, losses means over rows, seconds
// wall time.

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/class_report.h"
#include "models/model.h"
#include "record/machine_line.h"
#include "tape/instrument.h"
#include "train/loader_waits.h"
#include "train/step_sums.h"

namespace millrace::train {

struct StartReport {
    std::string run;  ///< directory
    std::string model, preset;
    std::string make;  ///< one line about it, or empty
    std::int64_t parameters = 0;
    int members = 1;
    std::string device;  ///< "cpu: 2 threads, NEON"
    std::string precision;
    std::string data;     ///< "digits: 54000 to train on, 6000 to select, 10000 to test"
    std::string memory;   ///< what was planned
    std::string ranks;    ///< how they share the run; empty: one process
    std::string loading;  ///< how data comes to the device and why; empty where there is no choice
    std::uint64_t steps_per_epoch = 0, total_steps = 0, first_step = 0;
    std::uint32_t epochs = 0;
    bool resumed = false;
    bool on_gpu = false;
};

/// How long a step waited for its data.
struct StepWait {
    std::uint64_t step = 0;   ///< of the run, from 1: the one launched next
    std::uint32_t epoch = 0;  ///< counted from 1
    std::chrono::nanoseconds wait{}, now{};
    bool spike = false;  ///< longer than kLoaderSpike, and not the first step of this start
};

/// A step that ran with its parts timed, by phase or by kernel. Its loss counts, its time does not.
struct TimedStep {
    std::uint64_t step = 0;
    std::uint32_t epoch = 0;      ///< counted from 1
    double training_seconds = 0;  ///< since this start
    std::optional<tape::PhaseTimes> phases = {};
    std::vector<tape::KernelTime> kernels = {};
};

/// What the machine did over a stretch of training. GPU figures are those of the first visible one, which trains.
struct MachineReport {
    std::uint64_t samples = 0;       ///< of the machine; 0: everything below is absent
    record::MachineLineValues line;  ///< means
    std::optional<double>
        resident_percent;  ///< of the time some kernel was on the GPU: by its counters, else the driver's utilisation
    std::optional<double> sm_active_percent, tensor_active_percent, dram_active_percent;
    std::optional<double> vram_peak_bytes, ram_peak_bytes;
    std::optional<double> gpu_joules;  ///< by the GPU's counter, over `seconds`
    double seconds = 0;                ///< from the first sample to the last
    std::optional<double> power_watts;
    std::optional<double> throttled_share;  ///< of the samples that have throttle reasons
    std::string throttle_reasons;           ///< "power cap, thermal"
};

/// How a stretch of training went. What was not measured is absent.
struct PaceReport {
    std::optional<double> step_ms_p50, step_ms_p99;               ///< by the device's clock, from one step's end to the next
    std::optional<double> flops_per_second, flops_share_percent;  ///< absent where steps may leave out products
    std::optional<double> joules_per_sample;
    LoaderReport loader;
    MachineReport machine;
};

/// One per log interval.
struct IntervalReport {
    std::uint64_t step = 0, total_steps = 0;
    std::uint32_t epoch = 0, epochs = 0;                               ///< epoch counted from 1
    double loss = 0;                                                   ///< mean over the interval and the members
    double recent_samples = 0, average_samples = 0, recent_steps = 0;  ///< per second
    double seconds_left = 0, training_seconds = 0;                     ///< the latter since this start
    PaceReport pace = {};
    bool classifies = true;
    bool scales_loss = false;  ///< f16
    StepSums sums{1};          ///< per member
};

/// Loss and accuracy of one member on one split, and what else its family measures. A model that does not classify has an
/// accuracy of 0, which is shown nowhere.
struct Score {
    double loss = 0, accuracy = 0;
    models::Scored more = {};
    std::optional<models::ClassReport> classes = {};  ///< where the model classifies
    std::vector<Score> domains = {};                  ///< of each domain by itself, where the data has several
};
/// How good a score is by `metric` ("validation_loss", "validation_accuracy" or a figure's name): more is better.
double merit(const Score& score, const std::string& metric);

struct EpochReport {
    std::uint32_t epoch = 0, epochs = 0;
    std::uint64_t step = 0;
    std::vector<Score> training, validation;  ///< per member; validation is empty when nothing was set aside
    double seconds = 0, samples_per_second = 0;
    double training_seconds = 0;           ///< since this start
    std::uint64_t steps = 0, dropped = 0;  ///< of all members; `steps` counts dropped ones, too
    bool best = false;                     ///< the best weights so far of any member
    std::vector<bool> best_members = {};   ///< whose weights `checkpoints/best` takes: each member's best so far; empty: none
    bool classifies = true;
    bool scales_loss = false;                        ///< f16
    PaceReport pace;                                 ///< of training alone, evaluation left out
    std::optional<std::uint64_t> loader_bytes = {};  ///< of streamed data, moved to the device since the epoch before
    std::optional<double> mix_deviation = {};        ///< data::LoaderCounts
    std::string domain = {};                         ///< that was learned; empty where the data is one whole
};

struct MemberResult {
    double validation_accuracy = 0, validation_loss = 0;  ///< of its best epoch; NaN without validation data
    std::uint32_t best_epoch = 0;
    double test_accuracy = 0, test_loss = 0;  ///< when the data has a test part
    models::Scored more = {};                 ///< of the best weights, on the test part or else on what was set aside
};

struct RunResult {
    std::string run;
    bool stopped = false;      ///< before everything was done, so nothing was tested
    int signal = 0;            ///< that stopped it; 0: a listener did
    std::string ended_early;   ///< why the run was complete before its last step; empty: it was not
    std::uint32_t epochs = 0;  ///< completed
    std::uint64_t step = 0, dropped = 0;
    std::vector<MemberResult> members;
    std::optional<std::size_t> chosen = {};           ///< the member that did best on what was set aside to select by
    std::optional<models::ClassReport> classes = {};  ///< of best_member(), where the model classifies
    bool classifies = true;
    bool tested = true;                               ///< the data has a test part
    std::int64_t held = 0;                            ///< samples of the part that the members' scores are of
    std::string best_metric = "validation_accuracy";  ///< checkpoint.best_metric
    std::int64_t parameters = 0;
    double seconds = 0, samples_per_second = 0, steps_per_second = 0;  ///< of training alone, since this start
    bool was_complete = false;                                         ///< a resumed run that had nothing left to do
    std::string notes = {};                                            ///< further lines for people
};

/// Index of the member with the highest merit, the first of equals; what is not a number never wins.
std::size_t best_member(const std::vector<Score>& scores, const std::string& metric);
/// The same by the run's own measure on what was set aside to select by (on the test set when nothing was).
std::size_t best_member(const RunResult& result);

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
