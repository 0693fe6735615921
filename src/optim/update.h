#pragma once
// The records that frame a training step: its beginning, and the update at its end.

#include "base/rank.h"
#include "optim/settings.h"
#include "tape/builder.h"

namespace millrace::optim {

/// step_begin: step counter, learning rate by each member's schedule, sums back to zero. `rank` keys this machine's random
/// numbers.
void append_step_begin(tape::Builder& builder, base::Rank rank = {});

/// grad_norm, optimizer, metrics_push. With accumulation the optimizer also zeroes the gradients for the next step.
void append_update(tape::Builder& builder, const OptimizerSettings& settings);

}  // namespace millrace::optim
