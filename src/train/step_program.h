#pragma once
// Assembles the programs of a run from a model, a source and the optimizer: training steps of one or more micro-batches, and
// evaluation.

#include <cstdint>

#include "data/batch_source.h"
#include "models/model.h"
#include "optim/settings.h"
#include "tape/builder.h"

namespace millrace::train {

/// Who computes a step: micro-batch m is done by rank m mod world.
struct StepRanks {
    std::uint32_t rank = 0, world = 1;
    bool by_library = false;  ///< gradients are added in the order of the library, not of the ranks

    /// Of `count` micro-batches, those of this rank.
    [[nodiscard]] std::int32_t share(std::int32_t count) const {
        return (count + static_cast<std::int32_t>(world - 1 - rank)) / static_cast<std::int32_t>(world);
    }
};

/// The rows of one step: `full` micro-batches of `rows` rows, then one of `tail` rows (0: none).
struct StepRows {
    std::int32_t rows = 0, full = 0, tail = 0;

    [[nodiscard]] std::int64_t total() const { return std::int64_t{rows} * full + tail; }
    [[nodiscard]] std::int32_t parts() const { return full + (tail > 0 ? 1 : 0); }
    /// Those of one rank.
    [[nodiscard]] StepRows of(const StepRanks& ranks) const {
        return {rows, ranks.share(full), static_cast<std::uint32_t>(full) % ranks.world == ranks.rank ? tail : 0};
    }
    friend bool operator==(const StepRows&, const StepRows&) = default;
};

/// How an epoch over `samples` rows divides into steps: `regular` steps of `step`, then one `last` when a remainder is left
/// (total() == 0: none). Nothing is padded and nothing is dropped.
struct EpochSteps {
    std::int32_t regular = 0;
    StepRows step, last;

    [[nodiscard]] std::int32_t count() const { return regular + (last.total() > 0 ? 1 : 0); }
};
EpochSteps divide_epoch(std::int32_t samples, std::int32_t batch, std::int32_t accumulation);

/// loss totals, step_begin | micro-batch, repeated | shorter micro-batch | parts, grad_norm, optimizer, metrics_push. `rows` are
/// those of all ranks. Every micro-batch weighs its rows over the rows of the step, so that a remainder counts neither more nor
/// less; losses that divide by something in the data have its sum over the step where there are several parts. Operator numbers
/// are the same in all micro-batches. `outputs` receives those of the last micro-batch. Call after Store::seal().
tape::Builder build_training_step(tape::Store& store, models::Model& model, data::BatchSource& source,
                                  const optim::OptimizerSettings& settings, const StepRows& rows,
                                  models::Outputs* outputs = nullptr, int memory_level = 0, const StepRanks& ranks = {});

/// Forward and loss of `rows` rows of `part`; sums go to the members' state, eval_position moves on. `keep_predictions`: a
/// classifier's Outputs::prediction, labels and predicted may be read after a run.
tape::Builder build_evaluation(tape::Store& store, models::Model& model, data::BatchSource& source, data::Part part,
                               std::int32_t rows, models::Outputs* outputs = nullptr, bool keep_predictions = false);

}  // namespace millrace::train
