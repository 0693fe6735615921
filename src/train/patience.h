#pragma once
// Ends a run whose validation no longer improves (train.patience).

#include "train/loop.h"

namespace millrace::train {

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
