#include "clamp.h"

#include <algorithm>

#include "ops/check.h"
#include "ops/cpu/kernel.h"
#include "ops/fused.h"
#include "tape/record.h"

namespace own {
namespace {

using namespace millrace;

template <class T>
void clamp_row(const T* x, T* y, int cols, const ClampParams& p) {
    for (int c = 0; c < cols; ++c) y[c] = std::clamp(x[c], static_cast<T>(p.low), static_cast<T>(p.high));
}

/// One function serves the reference (double) and the CPU (float): each element by itself, every thread takes whole rows.
template <class T>
void forward(const ops::Bound& b, int member, int group, int row) {
    namespace at = clamp_forward;
    clamp_row(b[at::x].at<T>(member, group, row), b[at::y].at<T>(member, group, row), b[at::y].cols, b.params<ClampParams>());
}

template <class T>
void backward(const ops::Bound& b, int member, int group, int row) {
    namespace at = clamp_backward;
    const auto& p = b.params<ClampParams>();
    const T *dy = b[at::dy].at<T>(member, group, row), *x = b[at::x].at<T>(member, group, row);
    T* dx = b[at::dx].at<T>(member, group, row);
    for (int c = 0; c < b[at::dx].cols; ++c) {
        const T gradient = x[c] > static_cast<T>(p.low) && x[c] < static_cast<T>(p.high) ? dy[c] : T{0};
        dx[c] = b.accumulates(at::dx) ? dx[c] + gradient : gradient;
    }
}

template <int kShape, void (*kRow)(const ops::Bound&, int, int, int)>
void run_reference(const ops::Bound& b) {
    for (int k = 0; k < b[kShape].k; ++k)
        for (int g = 0; g < b[kShape].g; ++g)
            for (int row = 0; row < b[kShape].rows; ++row) kRow(b, k, g, row);
}

template <int kShape, void (*kRow)(const ops::Bound&, int, int, int)>
ops::KernelResult make_cpu(ops::cpu::Context& context, const ops::Bound& bound) {
    return ops::cpu::make_kernel([&context, b = bound]() noexcept {
        const tensor::Operand& all = b[kShape];
        context.pool.for_each_if(all.count() >= ops::cpu::kParallelElements, all.k * all.g * all.rows, [&](int task, int) {
            kRow(b, task / (all.g * all.rows), task / all.rows % all.g, task % all.rows);
        });
    });
}

/// All slots are of one type and shape, the limits in order. Kernels need not look at either.
template <int kSlots>
void check(ops::Checker& c) {
    for (int slot = 0; slot < kSlots; ++slot) c.require({slot}, ops::Type::real, c.shape(0));
    const auto& p = c.params<ClampParams>();
    c.that(p.low <= p.high, "low must not be above high");
}

constexpr ops::SlotDef kForward[] = {{"x"}, {"y", ops::Access::write}};
constexpr ops::SlotDef kBackward[] = {{"dy"}, {"x"}, {"dx", ops::Access::add}};
static_assert(std::size(kForward) == clamp_forward::slots && std::size(kBackward) == clamp_backward::slots);

}  // namespace

// A backend that a definition lacks is refused when a program is built: .cuda would name a function in a .cu file.
const ops::OpDef clamp_forward::kDef({.name = "clamp_forward",
                                      .slots = kForward,
                                      .check = check<slots>,
                                      .phase = ops::Phase::forward,
                                      .ref = run_reference<y, forward<double>>,
                                      .cpu = make_cpu<y, forward<float>>});
const ops::OpDef clamp_backward::kDef({.name = "clamp_backward",
                                       .slots = kBackward,
                                       .check = check<slots>,
                                       .phase = ops::Phase::backward,
                                       .ref = run_reference<dx, backward<double>>,
                                       .cpu = make_cpu<dx, backward<float>>});

namespace {

/// Two clamps in a row, the second of which is all that reads the first: one with the limits that are left.
ops::Match match_clamps(const ops::cpu::Context&, const ops::Window& records) {
    const auto next = records.next_reader(records[0][clamp_forward::y], 0);
    if (!next || records[*next].record->op != &clamp_forward::kDef) return {};
    return {.records = {0, *next}, .inner = {{0, clamp_forward::y}}};
}

ops::KernelResult make_clamps(ops::cpu::Context& context, const ops::Bound& fused) {
    const ops::BoundParts of(fused);
    ops::Bound both = of.parts[1];
    both.operands[clamp_forward::x] = of.parts[0][clamp_forward::x];
    const auto &first = of.parts[0].params<ClampParams>(), &second = of.parts[1].params<ClampParams>();
    const ClampParams left{std::clamp(first.low, second.low, second.high), std::clamp(first.high, second.low, second.high)};
    return ops::cpu::make_kernel([&context, both, left]() noexcept {
        const tensor::Operand& all = both[clamp_forward::y];
        context.pool.for_each_if(all.count() >= ops::cpu::kParallelElements, all.k * all.g * all.rows, [&](int task, int) {
            const int member = task / (all.g * all.rows), group = task / all.rows % all.g, row = task % all.rows;
            clamp_row<float>(both[clamp_forward::x].at<float>(member, group, row), all.at<float>(member, group, row), all.cols,
                             left);
        });
    });
}

ops::OpTraits clamps_traits() {
    ops::OpTraits traits = ops::fused_traits("clamp_clamp");
    traits.cpu = make_clamps;
    return traits;
}
const ops::OpDef kClamps(clamps_traits());
const ops::Rewrite kClampsRewrite(
    {.name = "clamp_clamp", .fused = &kClamps, .begins = &clamp_forward::kDef, .cpu = match_clamps});

}  // namespace

tape::Value clamp(tape::Builder& builder, const tape::Value& x, ClampParams params, const std::string& name) {
    const tape::Value y = builder.activation(x.view.rows, x.view.cols, name, builder.training() && x.needs_gradient);
    builder.append(tape::record_of(&clamp_forward::kDef, params, name, {x, y}));
    if (!y.needs_gradient) return y;
    builder.on_backward([&builder, x, y, params, name] {
        const tensor::View dy = builder.gradient(y);
        if (!dy.present()) return;
        builder.append(tape::record_of(&clamp_backward::kDef, params, name, {dy, x, builder.gradient_target(x)}));
    });
    return y;
}

}  // namespace own
