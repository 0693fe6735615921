#pragma once
// Scores every epoch on what was set aside, remembers each member's best, and tests those weights once at the end.

#include <functional>
#include <optional>

#include "io/checkpoint.h"
#include "train/loop.h"

namespace millrace::train {

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

}  // namespace millrace::train
