#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>

#include "ops/ref/kernels.h"
#include "ops/step/step.h"

namespace millrace::ops::ref {
namespace {

/// The schedule's factor at the member's step, counted from 1.
double schedule_factor(const MemberState& params) {
    const std::uint32_t step = params.step;
    if (step <= params.warmup_steps) return std::min(1.0, static_cast<double>(step) / params.warmup_steps);
    const double done = step - params.warmup_steps;
    const double length = params.total_steps > params.warmup_steps ? params.total_steps - params.warmup_steps : 1;
    switch (params.schedule) {
        case ScheduleKind::constant: return 1;
        case ScheduleKind::cosine:
            return params.floor +
                   (1 - params.floor) * (1 + std::cos(3.14159265358979323846 * std::min(done, length) / length)) / 2;
        case ScheduleKind::step: return std::pow(params.gamma, (step - 1) / params.interval);
    }
    return 1;
}

}  // namespace

void run_step_begin(const Bound& bound) {
    for (int m = 0; m < bound[step_begin::state].k; ++m) {
        MemberState& state = state_of(bound[step_begin::state], m);
        ++state.step;
        state.micro = state.nonfinite = state.rows = state.correct = 0;
        state.loss = state.penalty = 0;
        state.lr = static_cast<float>(state.base_lr * schedule_factor(state));
        for (GroupState& group : groups_of(bound[step_begin::groups], m)) {
            if (group.trainable == 0) continue;
            group.bias1 = static_cast<float>(1 - std::pow(static_cast<double>(state.beta1), group.applied + 1.0));
            group.bias2 = static_cast<float>(1 - std::pow(static_cast<double>(state.beta2), group.applied + 1.0));
        }
    }
}

void run_micro_end(const Bound& bound) {
    const auto& params = bound.params<MicroEndParams>();
    for (int m = 0; m < bound[micro_end::state].k; ++m) {
        MemberState& state = state_of(bound[micro_end::state], m);
        if (!params.training) {
            state.eval_position += params.rows;
            continue;
        }
        ++state.micro;
        state.position += params.rows;
        if (state.position >= params.samples) {
            state.position = 0;
            ++state.epoch;
        }
    }
}

void run_metrics_push(const Bound& bound) {
    namespace at = metrics_push;
    const auto& states = bound[at::state];
    std::uint64_t& counter = *reinterpret_cast<std::uint64_t*>(bound[at::counter].at<std::uint8_t>(0));
    const std::uint64_t sequence = ++counter;
    const auto place = static_cast<std::int64_t>(sequence % bound.params<MetricsPushParams>().capacity);
    auto* rows = reinterpret_cast<MetricsRow*>(bound[at::ring].at<std::uint8_t>(0, 0, place));
    for (int m = 0; m < states.k; ++m) {
        const MemberState& state = state_of(states, m);
        MetricsRow& row = rows[m];
        row.step = state.step;
        row.epoch = state.epoch;
        row.rows = state.rows;
        row.correct = state.correct;
        row.skipped = state.skipped;
        row.nonfinite = state.nonfinite;
        row.lr = state.lr;
        row.grad_norm = state.grad_norm;
        row.loss = state.loss;
        row.penalty = state.penalty;
        row.clock = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
        std::atomic_ref<std::uint64_t>(row.sequence).store(sequence, std::memory_order_release);
    }
}

}  // namespace millrace::ops::ref
