#pragma once
// The records that frame a training step: its beginning, and the update at its end.

#include "base/rank.h"
#include "optim/settings.h"
#include "tape/builder.h"

namespace millrace::optim {

/// step_begin: step counter, learning rate by each member's schedule, sums back to zero. `rank` keys this machine's random
/// numbers.
void append_step_begin(tape::Builder& builder, base::Rank rank = {});

/// How the scale of the loss moves in f16: as torch.amp.GradScaler's, whose defaults these are.
constexpr float kFirstLossScale = 65536;
constexpr std::uint32_t kScaleInterval = 2000;  ///< steps applied in a row that double it
/// Of a precision whose gradients need no scale: 0.
constexpr std::uint32_t scale_interval(tape::Precision precision) {
    return precision == tape::Precision::f16 ? kScaleInterval : 0;
}
/// Before a run's first step: 1 where gradients need no scale. In f16 the first scale, or what the members have where
/// `had_scale`: the run is resumed and its steps had one.
void set_loss_scale(tape::Precision precision, std::vector<ops::MemberState>& states, bool had_scale = false);

/// grad_norm, optimizer, metrics_push. With accumulation the optimizer also zeroes the gradients for the next step.
void append_update(tape::Builder& builder, const OptimizerSettings& settings);

}  // namespace millrace::optim
