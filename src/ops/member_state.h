#pragma once
// Everything that changes from step to step, one block per ensemble member, in device memory. A captured step reads it, so a
// replay sees new values; the host writes it only between steps.

#include <cstdint>

#include "base/philox.h"

namespace millrace::ops {

enum class ScheduleKind : std::uint32_t { constant, cosine, step };

struct MemberState {
    // Identity and hyper-parameters: written by the host when a run starts or resumes.
    std::uint64_t seed = 0;       ///< key of all random numbers and of the data order
    double floor = 0, gamma = 1;  ///< of the schedule (ops/step/step.h)
    float base_lr = 1e-3f;
    float weight_decay = 0;
    float beta1 = 0.9f;  ///< SGD: momentum
    float beta2 = 0.999f;
    float epsilon = 1e-8f;
    float clip_norm = 0;      ///< 0: no clipping
    float dropout_scale = 1;  ///< a layer drops with its own probability times this, clamped below 1
    ScheduleKind schedule = ScheduleKind::constant;
    std::uint32_t warmup_steps = 0, total_steps = 0, interval = 1;

    // Progress: advanced by the step program, stored in checkpoints.
    std::uint32_t step = 0;           ///< optimizer steps begun; 1 during the first
    std::uint32_t micro = 0;          ///< micro-batch within the step, from 0
    std::uint32_t epoch = 0;          ///< passes over the training set completed
    std::uint32_t position = 0;       ///< samples of the current pass already used
    std::uint32_t eval_position = 0;  ///< samples of the current evaluation pass already used; reset by the host
    std::uint32_t skipped = 0;        ///< steps dropped because of a non-finite gradient or loss
    std::uint32_t applied = 0;        ///< steps applied
    std::uint32_t good_steps = 0;     ///< steps applied since loss_scale last changed; counted where it may change
    float loss_scale = 1;             ///< on every gradient from the loss to the norm, which takes it out again

    // Values of the current step.
    std::uint32_t nonfinite = 0;  ///< 1: drop this step
    float lr = 0;                 ///< after schedule
    float grad_norm = 0;          ///< global L2 norm before clipping
    float clip_scale = 1;         ///< factor for every gradient: of clipping, over loss_scale

    // Sums over the rows since the last reset: one step in training (reset by step_begin), one pass in evaluation (by the host).
    std::uint32_t rows = 0;
    std::uint32_t correct = 0;
    double loss = 0;     ///< sum over rows of the prediction loss
    double penalty = 0;  ///< sum over micro-batches of further terms (diversity), already weighted by the micro-batch's share

    /// At a step's end, by the rule of torch.amp.GradScaler: a dropped step halves the scale (to 1 at least), `patience` applied
    /// ones in a row double it as long as it stays finite. patience 0: the scale stays.
    MILLRACE_HD void adapt_loss_scale(bool dropped, std::uint32_t patience) {
        if (patience == 0) return;
        good_steps = dropped ? 0 : good_steps + 1;
        if (dropped) loss_scale = loss_scale > 2 ? loss_scale / 2 : 1;
        if (good_steps < patience) return;
        good_steps = 0;
        if (loss_scale < 0x1p127f) loss_scale *= 2;
    }
};
static_assert(sizeof(MemberState) == 144);

/// One group of parameters of one member: [K][G] in device memory. The host writes it between steps; a captured step obeys.
struct GroupState {
    float lr_factor = 1, decay_factor = 1;  ///< on the member's learning rate and weight decay
    std::uint32_t trainable = 1;            ///< 0: parameters, moments and 16-bit copy keep their bits, the norm leaves it out
    std::uint32_t applied = 0;              ///< steps applied to this group: the t of Adam's bias correction
    float bias1 = 1, bias2 = 1;             ///< 1 - beta^t of the current step
    // A step that chooses groups writes these before the update.
    float gain = 1;                  ///< on this step's learning rate; 0: not chosen, the group keeps its bits and its count
    float gradient_gain = 1;         ///< on this step's gradient, behind clipping
    float norm = 0;                  ///< L2 norm of the group's own gradient, where something chooses by it
    std::uint32_t last_applied = 0;  ///< number of the last step applied to this group; 0: none

    /// Whether a step that is not dropped changes the group.
    [[nodiscard]] MILLRACE_HD bool updated() const { return trainable != 0 && gain != 0; }
};
static_assert(sizeof(GroupState) == 40);

/// A run of parameters of one group: the arena's elements from the end of the segment before up to `end`.
struct Segment {
    std::int32_t end = 0, group = 0;
};

/// One row of the metrics ring: what a step left behind for one member. `sequence` is written last.
struct MetricsRow {
    std::uint64_t sequence = 0;  ///< pushes so far, 1 for the first; 0: never written
    std::uint32_t step = 0, epoch = 0, rows = 0, correct = 0;
    std::uint32_t skipped = 0, nonfinite = 0;
    float lr = 0, grad_norm = 0;
    double loss = 0, penalty = 0;
    float loss_scale = 1;  ///< of the next step
    std::uint32_t good_steps = 0;
    std::uint64_t clock = 0;  ///< nanoseconds of the device's own clock when the row was written; only differences mean something
};
static_assert(sizeof(MetricsRow) == 72);

}  // namespace millrace::ops
