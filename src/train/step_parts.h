#pragma once
// What a training step needs when it runs in several micro-batches, on this rank or on many (ops/parts).

#include "base/rank.h"
#include "tape/builder.h"
#include "train/step_program.h"

namespace millrace::train {

/// Gradients, sums and running statistics of each micro-batch apart, and the records that add them up in their order.
class StepParts {
public:
    /// Begins a step of `rows` on rank `rank`: appends what clears the sums. `builder` outlives it.
    StepParts(tape::Builder& builder, const StepRows& rows, base::Rank rank);

    /// Behind each micro-batch; `micro` as of ops::micro_end.
    void end_micro_batch(const ops::MicroEndParams& micro);
    /// Behind the last one: the step's gradients, sums and the statistics that were moved, of all ranks. by_library:
    /// ReduceParams.
    void finish(bool by_library, const std::vector<tape::Builder::Moved>& moved);

private:
    [[nodiscard]] tensor::View gather_tables();

    tape::Builder& builder_;
    const base::Rank rank_;
    const std::int32_t parts_;  ///< of the step
    const std::int32_t own_;    ///< of this rank
    tensor::View sums_;         ///< of gradients; absent with one micro-batch at most
    tensor::View moved_;        ///< by the micro-batch under way; absent without running statistics
    tensor::View table_;
};

}  // namespace millrace::train
