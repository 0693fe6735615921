#include <limits>

#include <fmt/format.h>

#include "op_case.h"
#include "ops/optimizer/optimizer.h"

namespace millrace::ops::cases {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

OpCase norm(int k, int count, const std::string& note, Values grads, float clip) {
    namespace at = grad_norm;
    OpCase c;
    c.name = fmt::format("grad_norm/{}/K{}_P{}", note, k, count);
    c.op = &grad_norm::def;
    c.params = GradNormParams{};
    c.members = k;
    c.states = sample_states(k);
    for (MemberState& state : c.states) state.clip_norm = clip;
    c.slot(at::grads, Element::stat, k, 1, 1, count, std::move(grads));
    c.slot(at::scratch, Element::stat, k, 1, 1, kNormBlocks, poison());
    c.slots[at::scratch].compare = false;
    return c.state(at::state);
}

struct Variant {
    std::string note;
    OptimizerKind kind = OptimizerKind::adam;
    float decay = 0, clip_scale = 1, beta1 = 0.9f;
    bool zero_grads = false, copy16 = false, first_step = false, dropped = false, moments = true;
};

OpCase update(const Variant& v, int k, int count) {
    namespace at = optimizer;
    static constexpr const char* kKinds[] = {"sgd", "adam", "adamw"};
    OpCase c;
    c.name = fmt::format("optimizer/{}_{}/K{}_P{}", kKinds[static_cast<int>(v.kind)], v.note, k, count);
    c.op = &optimizer::def;
    c.params = OptimizerParams{v.kind, v.zero_grads};
    c.members = k;
    c.f32_tolerance = c.bf16_tolerance = 1e-6;  // the arenas are f32 in every precision
    c.states = sample_states(k);
    for (std::size_t m = 0; m < c.states.size(); ++m) {
        MemberState& state = c.states[m];
        state.weight_decay = v.decay;
        state.clip_scale = v.clip_scale;
        state.beta1 = v.beta1;
        if (v.first_step) {
            state.applied = 0;
            state.bias1 = 0.1f;
            state.bias2 = 0.001f;
        }
        if (v.dropped) state.nonfinite = m % 2 == 0 ? 1 : 0;
    }
    c.slot(at::params, Element::stat, k, 1, 1, count, uniform(-1, 1));
    c.slot(at::grads, Element::stat, k, 1, 1, count, v.dropped ? uniform(-1, 1).with(count / 2, kNan) : uniform(-1, 1));
    if (v.dropped) c.makes_nan = !v.zero_grads;
    if (v.moments) c.slot(at::m, Element::stat, k, 1, 1, count, uniform(-0.5, 0.5));
    if (v.moments && v.kind != OptimizerKind::sgd) c.slot(at::v, Element::stat, k, 1, 1, count, uniform(0.05, 0.5));
    if (v.copy16) c.slot(at::copy16, Element::bf16, k, 1, 1, count, v.dropped ? uniform(-1, 1) : poison());
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
    for (auto& c : cases)
        if (c.op == &grad_norm::def &&
            (c.name.find("/nan/") != std::string::npos || c.name.find("/infinite/") != std::string::npos))
            c.makes_nan = true;

    for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::adam, OptimizerKind::adamw}) {
        cases.push_back(update({.note = "plain", .kind = kind}, 2, 1000));
        cases.push_back(update({.note = "decay", .kind = kind, .decay = 0.1f}, 2, 131));
        cases.push_back(update({.note = "clipped", .kind = kind, .clip_scale = 0.3f}, 1, 13));
        cases.push_back(update({.note = "decay_clipped", .kind = kind, .decay = 0.05f, .clip_scale = 0.3f}, 3, 77));
        cases.push_back(update({.note = "first_step", .kind = kind, .decay = 0.1f, .first_step = true}, 2, 65));
        cases.push_back(update({.note = "zeroing", .kind = kind, .zero_grads = true}, 2, 1031));
        cases.push_back(update({.note = "copy16", .kind = kind, .copy16 = true}, 2, 513));
        cases.push_back(update({.note = "dropped", .kind = kind, .copy16 = true, .dropped = true}, 2, 40));
        cases.push_back(update({.note = "dropped_zeroing", .kind = kind, .zero_grads = true, .dropped = true}, 3, 40));
        cases.push_back(update({.note = "plain", .kind = kind}, 1, 1));
        cases.push_back(update({.note = "plain", .kind = kind}, 1, 4099));
        OpCase three = update({.note = "three_steps", .kind = kind, .decay = 0.1f, .first_step = true}, 2, 29);
        three.repeats = 3;
        three.f32_tolerance = three.bf16_tolerance = 3e-6;
        cases.push_back(three);
    }
    cases.push_back(update({.note = "no_momentum", .kind = OptimizerKind::sgd, .beta1 = 0}, 2, 50));
    cases.push_back(update({.note = "no_moments", .kind = OptimizerKind::sgd, .beta1 = 0, .moments = false}, 2, 50));
}

}  // namespace millrace::ops::cases
