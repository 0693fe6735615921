#include "ops/step/step.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numbers>
#include <span>

#include "ops/host_kernels.h"
#include "ops/kernels.h"

// The operators that keep the books of a step: a few words per member, always on the calling thread.
namespace millrace::ops {
namespace {

double schedule_factor(const MemberState& p) {
    const std::uint32_t step = p.step;
    if (step <= p.warmup_steps) return std::min(1.0, static_cast<double>(step) / p.warmup_steps);
    const double t = static_cast<double>(step) - p.warmup_steps;
    const double n = std::max(1.0, static_cast<double>(p.total_steps) - p.warmup_steps);
    switch (p.schedule) {
        case ScheduleKind::constant: return 1;
        case ScheduleKind::cosine: return p.floor + (1 - p.floor) * (1 + std::cos(std::numbers::pi * std::min(t, n) / n)) / 2;
        case ScheduleKind::step: return std::pow(p.gamma, std::floor((step - 1.0) / std::max(1u, p.interval)));
    }
    return 1;
}

float bias_correction(float beta, std::uint32_t applied) {
    return static_cast<float>(1 - std::pow(static_cast<double>(beta), static_cast<double>(applied) + 1));
}

void begin(const StepBeginParams& p, MemberState& s, std::span<GroupState> groups) {
    s.step += 1;
    s.micro = p.rank;
    s.position += p.first;
    s.nonfinite = 0;
    s.rows = s.correct = 0;
    s.loss = s.penalty = 0;
    s.lr = static_cast<float>(static_cast<double>(s.base_lr) * schedule_factor(s));
    for (GroupState& group : groups) {
        if (group.trainable == 0) continue;
        group.bias1 = bias_correction(s.beta1, group.applied);
        group.bias2 = bias_correction(s.beta2, group.applied);
    }
}

/// Writes a row that a reader may look at meanwhile: its number is zero while the other words change, and comes last.
void publish(MetricsRow* target, const MetricsRow& row) {
    constexpr std::size_t kWords = sizeof(MetricsRow) / sizeof(std::uint64_t);
    std::uint64_t words[kWords];
    std::memcpy(words, &row, sizeof row);
    auto* out = reinterpret_cast<std::uint64_t*>(target);
    std::atomic_ref<std::uint64_t>(out[0]).store(0, std::memory_order_relaxed);
    for (std::size_t i = 1; i < kWords; ++i) std::atomic_ref<std::uint64_t>(out[i]).store(words[i], std::memory_order_release);
    std::atomic_ref<std::uint64_t>(out[0]).store(words[0], std::memory_order_release);
}

template <class>
void begin_all(const Bound& bound) {
    const tensor::Operand& state = bound[step_begin::state];
    for (int m = 0; m < state.k; ++m)
        begin(bound.params<StepBeginParams>(), state_of(state, m), groups_of(bound[step_begin::groups], m));
}

template <class>
void end_micro(const Bound& bound) {
    const tensor::Operand& state = bound[micro_end::state];
    for (int m = 0; m < state.k; ++m) close_micro(bound.params<MicroEndParams>(), state_of(state, m));
}

template <class>
void push(const Bound& bound) {
    using namespace metrics_push;
    std::atomic_ref<std::uint64_t> pushes(*reinterpret_cast<std::uint64_t*>(bound[counter].at<std::uint8_t>(0)));
    const std::uint64_t sequence = pushes.load(std::memory_order_relaxed) + 1;
    const auto row = static_cast<std::int64_t>(sequence % bound.params<MetricsPushParams>().capacity);
    auto* rows = reinterpret_cast<MetricsRow*>(bound[ring].at<std::uint8_t>(0, 0, row));
    const auto now = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    for (int member = 0; member < bound[state].k; ++member) {
        const MemberState& s = state_of(bound[state], member);
        publish(rows + member, MetricsRow{sequence, s.step, s.epoch, s.rows, s.correct, s.skipped, s.nonfinite, s.lr, s.grad_norm,
                                          s.loss, s.penalty, s.loss_scale, s.good_steps, now});
    }
    pushes.store(sequence, std::memory_order_release);
}

}  // namespace

MILLRACE_OPERATOR(step_begin, Phase::data, {"state", update}, {"groups", update});
MILLRACE_OPERATOR(micro_end, Phase::optimizer, {"state", update});
MILLRACE_OPERATOR(metrics_push, Phase::optimizer, {"state"}, {"counter", update}, {"ring", write});

void step_begin::check(Checker& c) {
    c.state(state, c.shape(state).k).groups(groups, c.shape(state).k).params<StepBeginParams>();
}
void micro_end::check(Checker& c) { c.state(state, c.shape(state).k).params<MicroEndParams>(); }
void metrics_push::check(Checker& c) {
    const int k = c.shape(state).k, capacity = static_cast<int>(c.params<MetricsPushParams>().capacity);
    c.state(state, k).require({counter}, u8, {1, 1, 1, 8}).that(capacity > 0, "the ring needs at least one row");
    c.require({ring}, u8, {1, 1, capacity, k * static_cast<int>(sizeof(MetricsRow))});
}

MILLRACE_HOST_AT_ONCE(step_begin, begin_all);
MILLRACE_HOST_AT_ONCE(micro_end, end_micro);
MILLRACE_HOST_AT_ONCE(metrics_push, push);

}  // namespace millrace::ops
