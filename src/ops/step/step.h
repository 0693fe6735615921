#pragma once
// What every step begins and ends with: schedule, counters, the metrics ring. Conventions: ops/op.h.

#include "ops/op.h"

namespace millrace::ops {

// clang-format off

/// step_begin. state[K]: step += 1, micro = rank, position += first, nonfinite = 0, rows = correct = 0, loss = penalty = 0; lr by the member's schedule at step s
/// (from 1): factor = warm-up min(1, s / warmup_steps) when s <= warmup_steps, else with t = s - warmup_steps, n = max(1, total_steps -
/// warmup_steps): constant 1; cosine floor + (1 - floor) * (1 + cos(pi * min(t, n) / n)) / 2; step gamma^(floor((s - 1) / interval)).
/// lr = base_lr * factor, computed in double, stored as float. groups u8 [K,1,1,G * sizeof(GroupState)]: of each trainable group
/// bias1 = 1 - beta1^(applied + 1) with the applied of the group, bias2 likewise.
struct StepBeginParams { std::uint32_t rank = 0, first = 0; };
namespace step_begin { enum Slot { state, groups, slots }; extern const OpDef kDef; }

/// micro_end. Closes a micro-batch. Training: a step has `parts` micro-batches, of which number m covers the rows from m * rows on and is done by rank m mod
/// world; its number keys its random numbers. micro += world; while that is one of them, position += world * rows; behind the rank's last, position += last, to
/// the end of the step; when position >= samples: position = 0, epoch += 1. Evaluation: eval_position += rows.
struct MicroEndParams { std::uint32_t rows = 0, samples = 0; bool training = true; std::uint32_t world = 1, parts = 1, last = 0; };
namespace micro_end { enum Slot { state, slots }; extern const OpDef kDef; }

/// metrics_push. Copies the step's values of every member into ring row (sequence mod capacity), ring [1,1,capacity,K * sizeof(MetricsRow)] u8.
/// sequence = (number of earlier pushes) + 1, kept in `counter` [1,1,1,8] u8 (one uint64). A reader may look at any time: `sequence`
/// of each row is stored last, with release order. `clock` is the one thing a step writes that is not the same every time.
struct MetricsPushParams { std::uint32_t capacity = 0; };
namespace metrics_push { enum Slot { state, counter, ring, slots }; extern const OpDef kDef; }

// clang-format on

MILLRACE_HD inline void close_micro(const MicroEndParams& p, MemberState& s) {
    if (!p.training) {
        s.eval_position += p.rows;
        return;
    }
    s.micro += p.world;
    s.position += s.micro < p.parts ? p.world * p.rows : p.last;
    if (s.position >= p.samples) {
        s.position = 0;
        s.epoch += 1;
    }
}

}  // namespace millrace::ops
