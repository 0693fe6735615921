#pragma once
// What the data that was set aside says: which weights are the best, when a run ends, the confusion matrix of the best weights,
// and what is forgotten where domains are learned one after the other.

#include <functional>
#include <optional>

#include "base/recipe.h"
#include "io/checkpoint.h"
#include "io/file.h"
#include "models/forgetting.h"
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
    void undo() {
        best_ = best_before_;
        scores_ = scores_before_;
    }

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

/// On what was set aside whenever better weights are found, so that a run that is stopped has it; at the end on the test part.
class ConfusionPicture final : public Listener {
public:
    /// Behind `selection`, which is borrowed, as `loop` is.
    ConfusionPicture(Loop& loop, const Selection& selection, io::Path folder)
        : loop_(loop), selection_(selection), folder_(std::move(folder)) {}

    base::Status on_epoch(EpochReport& report) override;
    base::Status on_stop(RunResult& result) override;

private:
    void write(const models::ClassReport& classes, std::size_t member, data::Part part);

    Loop& loop_;
    const Selection& selection_;
    const io::Path folder_;
};

/// The course that a recipe asks for, before its first epoch; without domains where the data is one whole. Refuses an
/// eval.compare that is no key with a value for each member, and eval.controls that no member has.
base::Result<models::Course> course_of(const base::Recipe& recipe, const RunSettings& settings);

/// Of a member on one split, where tokens are scored in nats per token: a score's own loss is a mean over batches, whose windows
/// may be short.
double token_loss(const Score& score);

class DomainScores final : public Listener {
public:
    /// `course` has the epochs of earlier starts; `folder` is the run's; empty: another rank writes. Without domains
    /// nothing happens.
    DomainScores(models::Course course, io::Path folder) : course_(std::move(course)), folder_(std::move(folder)) {}

    void on_start(const StartReport& report) override { steps_per_epoch_ = report.steps_per_epoch; }
    /// Keeps the losses in the report, which Selection added before. The part of an epoch that a run with train.steps ends in is
    /// no stage's end and is left out.
    base::Status on_epoch(EpochReport& report) override;
    /// Writes continual.json and continual.svg of a run that was not stopped, and adds a table to its notes.
    base::Status on_stop(RunResult& result) override;

    [[nodiscard]] const std::vector<models::DomainLosses>& epochs() const { return course_.epochs; }

private:
    models::Course course_;
    const io::Path folder_;
    std::uint64_t steps_per_epoch_ = 1;
};

}  // namespace millrace::train
