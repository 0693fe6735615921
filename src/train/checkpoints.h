#pragma once
// Saves checkpoints: at the end of epochs, by time, on request, and when the run is stopped.

#include <atomic>
#include <optional>

#include "base/recipe.h"
#include "record/metrics.h"
#include "train/loop.h"
#include "train/run_log.h"
#include "train/selection.h"

namespace millrace::train {

class Checkpoints final : public Listener {
public:
    struct Parts {
        Loop& loop;
        const base::Recipe& recipe;
        io::CheckpointStore* store;  ///< null where another rank writes
        Selection& selection;
        Patience& patience;
        const DomainScores& domains;
        RunLog* log;                  ///< null with `store`
        record::EventWriter* events;  ///< null with `store`
        const base::Clock& clock;
        const std::atomic<std::uint32_t>* saves;  ///< saves and goes on whenever it grows; may be null
    };
    /// All of `parts` is borrowed. `saved_step` is that of the checkpoint that the run goes on from, if any.
    Checkpoints(const Parts& parts, std::optional<std::uint64_t> saved_step);

    base::Status on_step(std::uint64_t step) override;
    base::Status on_epoch(EpochReport& report) override;
    base::Status on_stop(RunResult& result) override {
        if (loop_.complete() || saved_step_ == result.step) return base::ok();
        return save({}, io::CheckpointKind::kStep, IfUnsaved::fails);
    }

private:
    /// When a checkpoint that cannot be written ends the run: only if there will be no later one.
    enum class IfUnsaved { goes_on, fails };
    /// `best`: EpochReport::best_members.
    base::Status save(const std::vector<bool>& best, io::CheckpointKind kind, IfUnsaved then);
    /// Without tensors.
    base::Result<io::Checkpoint> checkpoint_now();
    /// Writes it, where that is this rank's; the outcome is the same on all.
    base::Status write(const io::Checkpoint& checkpoint, bool is_best, io::CheckpointKind kind);
    [[nodiscard]] std::uint32_t requests() const {
        return parts_.saves != nullptr ? parts_.saves->load(std::memory_order_relaxed) : 0;
    }
    [[nodiscard]] bool is_due() const {
        const std::chrono::nanoseconds every = loop_.setup().settings.checkpoint.every_time;
        return parts_.store != nullptr && every.count() > 0 && parts_.clock.now() - saved_at_ >= every;
    }
    [[nodiscard]] RunFigures figures();
    [[nodiscard]] std::int64_t batches_done();

    const Parts parts_;
    Loop& loop_;
    std::optional<std::uint64_t> saved_step_;  ///< of the newest checkpoint; none before the first
    std::uint32_t saves_seen_ = 0;             ///< requests for a checkpoint that were answered
    const std::chrono::nanoseconds began_;
    const double cpu_began_;                             ///< CPU seconds of this process at `began_`
    std::chrono::nanoseconds saved_at_;                  ///< when this start began, or last tried to save
    std::optional<double> gpu_utilization_, sm_active_;  ///< of the newest epoch with enough samples of the machine
};

}  // namespace millrace::train
