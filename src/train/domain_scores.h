#pragma once
// Follows the losses of all domains over a run that learns them one after the other, and reports at its end what was forgotten.

#include "base/recipe.h"
#include "io/file.h"
#include "models/forgetting.h"
#include "train/loop.h"

namespace millrace::train {

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
