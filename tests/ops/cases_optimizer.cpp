#include <limits>

#include <fmt/format.h>

#include "op_case.h"
#include "ops/optimizer/optimizer.h"

namespace millrace::ops::cases {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// One segment of one group, or several of four groups: group 0 as it is, group 1 at half the rate without decay and at a quarter
/// of its gradient, group 2 frozen in even members and group 0 in odd ones, group 3 not chosen in even members and chosen at 0.3
/// of the rate in odd ones.
struct Grouping {
    int segments = 1;

    [[nodiscard]] std::vector<GroupState> table(int k) const {
        if (segments == 1) return sample_groups(k, 1);
        std::vector<GroupState> groups = sample_groups(k, 4);
        for (std::size_t m = 0; m < static_cast<std::size_t>(k); ++m) {
            groups[4 * m + 1].lr_factor = 0.5f;
            groups[4 * m + 1].decay_factor = 0;
            groups[4 * m + 1].gradient_gain = 0.25f;
            groups[4 * m + 3].gain = m % 2 == 0 ? 0 : 0.3f;
            groups[4 * m + (m % 2 == 0 ? 2 : 0)].trainable = 0;
        }
        return groups;
    }
    /// Of unequal lengths; all ends but the last are multiples of 4.
    [[nodiscard]] std::vector<Segment> runs(int count) const {
        std::vector<Segment> list;
        for (int s = 1; s < segments; ++s)
            list.push_back(
                {static_cast<std::int32_t>(std::int64_t{count} * s * s / (segments * segments) / 4 * 4 + 4), (s - 1) % 4});
        list.push_back({count, (segments - 1) % 4});
        return list;
    }
    [[nodiscard]] std::string text() const { return segments == 1 ? "" : fmt::format("_S{}", segments); }
};

OpCase norm(int k, int count, const std::string& note, Values grads, float clip, Grouping grouping = {}) {
    namespace at = grad_norm;
    OpCase c;
    c.name = fmt::format("grad_norm/{}/K{}_P{}{}", note, k, count, grouping.text());
    c.op = &grad_norm::kDef;
    c.params = GradNormParams{};
    c.members = k;
    c.states = sample_states(k);
    for (MemberState& state : c.states) state.clip_norm = clip;
    c.slot(at::grads, Element::stat, k, 1, 1, count, std::move(grads));
    c.slot(at::scratch, Element::stat, k, 1, 1, kNormBlocks, poison());
    c.slots[at::scratch].compare = false;
    c.groups(at::groups, grouping.table(k)).segments(at::segments, grouping.runs(count));
    return c.state(at::state);
}

struct Variant {
    std::string note;
    OptimizerKind kind = OptimizerKind::adam;
    float decay = 0, clip_scale = 1, beta1 = 0.9f;
    bool copy16 = false, first_step = false, dropped = false, moments = true;
    Grouping grouping{};
    std::uint32_t scale_interval = 0;
    bool f16 = false;  ///< of the copy
    std::int32_t first_copied = 0;
};

OpCase update(const Variant& v, int k, int count) {
    namespace at = optimizer;
    static constexpr const char* kKinds[] = {"sgd", "adam", "adamw"};
    OpCase c;
    c.name = fmt::format("optimizer/{}_{}/K{}_P{}{}", kKinds[static_cast<int>(v.kind)], v.note, k, count, v.grouping.text());
    c.op = &optimizer::kDef;
    c.params = OptimizerParams{v.kind, v.scale_interval, v.first_copied};
    c.members = k;
    c.f32_tolerance = c.bf16_tolerance = 1e-6;  // the arenas are f32 in every precision
    c.states = sample_states(k);
    for (std::size_t m = 0; m < c.states.size(); ++m) {
        MemberState& state = c.states[m];
        state.weight_decay = v.decay;
        state.clip_scale = v.clip_scale;
        state.beta1 = v.beta1;
        if (v.dropped) state.nonfinite = m % 2 == 0 ? 1 : 0;
    }
    std::vector<GroupState> table = v.grouping.table(k);
    for (GroupState& group : table)
        if (v.first_step) {
            group.applied = 0;
            group.bias1 = 0.1f;
            group.bias2 = 0.001f;
        }
    c.groups(at::groups, table).segments(at::segments, v.grouping.runs(count));
    c.slot(at::params, Element::stat, k, 1, 1, count, uniform(-1, 1));
    c.slot(at::grads, Element::stat, k, 1, 1, count, v.dropped ? uniform(-1, 1).with(count / 2, kNan) : uniform(-1, 1));
    if (v.dropped) c.makes_nan = true;
    if (v.moments) c.slot(at::m, Element::stat, k, 1, 1, count, uniform(-0.5, 0.5));
    if (v.moments && v.kind != OptimizerKind::sgd) c.slot(at::v, Element::stat, k, 1, 1, count, uniform(0.05, 0.5));
    if (v.copy16)
        c.slot(at::copy16, v.f16 ? Element::f16 : Element::bf16, k, 1, 1, count,
               v.dropped || v.grouping.segments > 1 || v.first_copied > 0 ? uniform(-1, 1) : poison());
    return c.state(at::state);
}

}  // namespace

void add_optimizer_cases(std::vector<OpCase>& cases) {
    for (const int count : {1, 2, 13, 1000, 65537}) cases.push_back(norm(1, count, "clipped", uniform(-1, 1), 0.5f));
    cases.push_back(norm(3, 1021, "clipped", uniform(-1, 1), 3.0f));
    cases.push_back(norm(3, 1021, "not_clipped", uniform(-1, 1), 0.0f));
    cases.push_back(norm(2, 255, "below_the_limit", uniform(-1e-3, 1e-3), 1.0f));
    cases.push_back(norm(2, 255, "zero", constant(0), 1.0f));
    cases.push_back(norm(3, 513, "nan", uniform(-1, 1).with(600, kNan), 1.0f));
    cases.push_back(norm(3, 513, "infinite", uniform(-1, 1).with(1538, -kInfinity), 1.0f));
    for (const int segments : {2, 3, 7, 40})
        for (const int count : {1000, 1021, 65537}) cases.push_back(norm(2, count, "groups", uniform(-1, 1), 0.5f, {segments}));
    cases.push_back(norm(1, 266000, "groups", uniform(-1, 1), 0.5f, {40}));  // segments end inside of what a thread reads at once
    cases.push_back(norm(1, 64, "nan_of_a_frozen_group", uniform(-1, 1).with(63, kNan), 1.0f, {3}));
    for (auto& c : cases)
        if (c.op == &grad_norm::kDef &&
            (c.name.find("/nan/") != std::string::npos || c.name.find("/infinite/") != std::string::npos))
            c.makes_nan = true;

    for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::adam, OptimizerKind::adamw}) {
        cases.push_back(update({.note = "plain", .kind = kind}, 2, 1000));
        cases.push_back(update({.note = "decay", .kind = kind, .decay = 0.1f}, 2, 131));
        cases.push_back(update({.note = "clipped", .kind = kind, .clip_scale = 0.3f}, 1, 13));
        cases.push_back(update({.note = "decay_clipped", .kind = kind, .decay = 0.05f, .clip_scale = 0.3f}, 3, 77));
        cases.push_back(update({.note = "first_step", .kind = kind, .decay = 0.1f, .first_step = true}, 2, 65));
        cases.push_back(update({.note = "plain", .kind = kind}, 2, 1031));
        cases.push_back(update({.note = "copy16", .kind = kind, .copy16 = true}, 2, 513));
        cases.push_back(update({.note = "copy16_f16", .kind = kind, .copy16 = true, .f16 = true}, 2, 517));
        // The scale of even members halves; of the others, those with two good steps behind them double it.
        cases.push_back(update({.note = "scaled", .kind = kind, .dropped = true, .scale_interval = 3}, 4, 40));
        OpCase least = update({.note = "scaled_at_1", .kind = kind, .dropped = true, .scale_interval = 3}, 2, 40);
        for (MemberState& state : least.states) state.loss_scale = 1;
        cases.push_back(least);
        for (const std::int32_t first : {4, 512, 516})
            cases.push_back(update(
                {.note = fmt::format("copied_from_{}", first), .kind = kind, .copy16 = true, .first_copied = first}, 2, 516));
        cases.push_back(update({.note = "copied_from_512", .kind = kind, .copy16 = true, .first_copied = 512}, 2, 513));
        cases.push_back(update({.note = "dropped", .kind = kind, .copy16 = true, .dropped = true}, 2, 40));
        cases.push_back(update({.note = "plain", .kind = kind}, 1, 1));
        cases.push_back(update({.note = "plain", .kind = kind}, 1, 4099));
        OpCase three = update({.note = "three_steps", .kind = kind, .decay = 0.1f, .first_step = true}, 2, 29);
        three.repeats = 3;
        three.f32_tolerance = three.bf16_tolerance = 3e-6;
        cases.push_back(three);
        for (const int segments : {2, 3, 7, 40})
            for (const int count : {1000, 1031, 65537})
                cases.push_back(
                    update({.note = "groups", .kind = kind, .decay = 0.1f, .copy16 = true, .grouping = {segments}}, 2, count));
        cases.push_back(update({.note = "groups_dropped", .kind = kind, .dropped = true, .grouping = {7}}, 3, 400));
        OpCase frozen = update({.note = "groups_three_steps", .kind = kind, .first_step = true, .grouping = {5}}, 2, 203);
        frozen.repeats = 3;
        frozen.f32_tolerance = frozen.bf16_tolerance = 3e-6;
        cases.push_back(frozen);
    }
    cases.push_back(update({.note = "no_momentum", .kind = OptimizerKind::sgd, .beta1 = 0}, 2, 50));
    cases.push_back(update({.note = "no_moments", .kind = OptimizerKind::sgd, .beta1 = 0, .moments = false}, 2, 50));
}

}  // namespace millrace::ops::cases
