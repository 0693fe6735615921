#pragma once
// A run from one start: from the step it begins at to the end or to a stop. The parts of train().

#include <atomic>
#include <optional>

#include "base/clock.h"
#include "base/recipe.h"
#include "io/checkpoint.h"
#include "models/weights.h"
#include "record/run_directory.h"
#include "train/metrics_rows.h"
#include "train/metrics_thread.h"
#include "train/reports.h"
#include "train/run_state.h"
#include "train/setup.h"
#include "train/telemetry.h"
#include "train/warnings.h"

namespace millrace::train {

/// Puts a loaded state and its weights into the engine. Refuses a state that does not fit the engine's epoch.
base::Status restore(Engine& engine, const RunSettings& settings, const RunState& state, const io::LoadedCheckpoint& checkpoint);

/// CPU time of this process so far.
double cpu_seconds();

class Run {
public:
    /// Everything is borrowed. `state` is where the run stands (a fresh one: step 0).
    Run(Setup& setup, const base::Recipe& recipe, record::RunDirectory& directory, io::CheckpointStore& checkpoints,
        RunState state, Observer& observer, Telemetry& telemetry, const base::Clock& clock);

    /// Trains until everything is done or `stop` is not 0, then tests the best weights, unless stopped before that is done. Saves
    /// and goes on whenever `saves` grows. Both may be null.
    base::Result<RunResult> execute(const std::atomic<int>* stop, const std::atomic<std::uint32_t>* saves = nullptr);

private:
    base::Status train_until(const std::atomic<int>* stop, const std::atomic<std::uint32_t>* saves);
    base::Status step();
    base::Status await_rows();
    base::Status measured_step(std::uint64_t index);
    enum class Measurement { none, components, operators };
    [[nodiscard]] Measurement measurement_due() const;
    void begin_epoch();
    void warn(const PaceReport& pace, std::uint32_t epoch);
    [[nodiscard]] MetricsPlan metrics_plan() const;
    base::Status hold_back();
    base::Status settle();
    base::Status end_epoch(bool whole);
    /// When a checkpoint that cannot be written ends the run: only if there will be no later one.
    enum class IfUnsaved { goes_on, fails };
    base::Status save(bool is_best, io::CheckpointKind kind, IfUnsaved then);
    base::Status save_between_epochs(const std::atomic<std::uint32_t>* saves);
    [[nodiscard]] io::Checkpoint checkpoint_now(models::WeightCopies& weights);
    base::Status test(RunResult& result, const std::atomic<int>* stop);
    base::Result<std::vector<Score>> test_scores(RunResult& result, const std::atomic<int>* stop);
    bool note_best(const EpochReport& report);
    [[nodiscard]] RowTime row_time();
    [[nodiscard]] RunFigures figures();
    [[nodiscard]] std::uint64_t total_steps() const;
    [[nodiscard]] std::int64_t batches_done() const;

    Setup& setup_;
    Engine& engine_;
    const base::Recipe& recipe_;
    record::RunDirectory& directory_;
    io::CheckpointStore& checkpoints_;
    RunState state_;
    Observer& observer_;
    Telemetry& telemetry_;
    const base::Clock& clock_;
    const std::uint64_t steps_per_epoch_;
    std::uint64_t launched_ = 0;               ///< steps since this start, equal to pushes into the ring
    std::optional<std::uint64_t> saved_step_;  ///< of the newest checkpoint; none before the first
    std::chrono::nanoseconds saved_at_;        ///< when this start began, or last tried to save
    std::uint32_t saves_seen_ = 0;             ///< requests for a checkpoint that were answered
    std::chrono::nanoseconds began_;
    double cpu_began_ = 0, epoch_seconds_ = 0, epoch_samples_ = 0;
    std::optional<double> gpu_utilization_, sm_active_;  ///< of the newest epoch with enough looks at the machine
    std::vector<Score> best_scores_;  ///< of the best weights on what was set aside, when this start found them
    WarningGate gate_;
    std::uint32_t spikes_noted_ = 0;  ///< of this epoch
    bool looked_early_ = false;       ///< in this epoch
    std::chrono::nanoseconds epoch_began_{};
    MetricsReader reader_;
    std::optional<MetricsThread> metrics_;
};

}  // namespace millrace::train
