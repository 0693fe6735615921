#pragma once
// What is decided by the data that was set aside: which weights are the best, and when a run ends.

#include <functional>
#include <optional>

#include "io/checkpoint.h"
#include "train/loop.h"

namespace millrace::train {

/// Scores every epoch on what was set aside, remembers each member's best, and tests those weights once at the end.
class Selection final : public Listener {
public:
    /// The engine whose model has the structure of a checkpoint, borrowed until the next call.
    using EngineOf = std::function<base::Result<Engine*>(const io::LoadedCheckpoint& checkpoint)>;
    /// `loop` is borrowed. `best` is what an earlier start found; `folder` is where checkpoints keep the best weights.
    Selection(Loop& loop, BestSoFar best, io::Path folder, EngineOf engine_of)
        : loop_(loop), best_(std::move(best)), folder_(std::move(folder)), engine_of_(std::move(engine_of)) {}

    base::Status on_epoch(EpochReport& report) override;
    /// Fills in the members of a run that was not stopped.
    base::Status on_stop(RunResult& result) override;

    [[nodiscard]] const BestSoFar& best() const { return best_; }
    /// The epoch's best weights could not be saved: those before it stay the best.
    void undo();

private:
    void note_best(EpochReport& report);
    base::Result<std::vector<Score>> test_scores(RunResult& result);

    Loop& loop_;
    BestSoFar best_, best_before_;
    /// By member, of its best weights on what was set aside, when this start found them.
    std::vector<std::optional<Score>> scores_, scores_before_;
    std::string refused_;  ///< why the newest weights that a scoring refused were no candidates
    const io::Path folder_;
    const EngineOf engine_of_;
};

/// Ends a run whose validation no longer improves (train.patience).
class Patience final : public Listener {
public:
    /// `loop` is borrowed. `state` is what earlier starts counted. `was_complete`: they had nothing left to train, so a run that
    /// patience ended is ended again unless train.patience grew.
    Patience(Loop& loop, Staleness state, bool was_complete);

    /// Counts the evaluations in the report, which Selection added before. Counts without train.patience, too: a resumed run may
    /// set it.
    base::Status on_epoch(EpochReport& report) override;

    /// The epoch's best weights could not be saved: a later epoch that reaches them improves on those before.
    void undo() { state_.best = best_before_; }

    [[nodiscard]] const Staleness& state() const { return state_; }

private:
    void end_if_exhausted();

    Loop& loop_;
    Staleness state_;
    std::vector<double> best_before_;  ///< state_.best before the newest epoch
};

}  // namespace millrace::train
