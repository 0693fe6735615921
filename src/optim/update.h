#pragma once
// The records that frame a training step: its beginning, and the update at its end.

#include "optim/settings.h"
#include "tape/builder.h"

namespace millrace::optim {

/// step_begin: step counter, learning rate by each member's schedule, sums back to zero. `rank` is the number of the first
/// micro-batch, which begins `first` rows behind where the step does.
void append_step_begin(tape::Builder& builder, std::uint32_t rank = 0, std::uint32_t first = 0);

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

/// grad_norm, optimizer, metrics_push.
void append_update(tape::Builder& builder, const OptimizerSettings& settings);

}  // namespace millrace::optim
