#include <cmath>
#include <vector>

#include "ops/cpu/kernel.h"
#include "ops/optimizer/optimizer.h"
#include "tensor/dtype.h"

namespace millrace::ops::cpu {
namespace {

using tensor::DType;
using tensor::Operand;

constexpr int kNormTasks = 16;      ///< tasks the blocks of one norm are handed out in
constexpr int kUpdateBlock = 8192;  ///< elements per task: four arenas of it fit the second cache

AdamStep adam_step(const MemberState& s, OptimizerKind kind) {
    const bool decoupled = kind == OptimizerKind::adamw;
    return AdamStep{.clip = s.clip_scale,
                    .l2 = decoupled ? 0 : s.weight_decay,
                    .decay = decoupled ? s.lr * s.weight_decay : 0,
                    .beta1 = s.beta1,
                    .beta2 = s.beta2,
                    .rate = s.lr / s.bias1,
                    .root_bias2 = std::sqrt(s.bias2),
                    .epsilon = s.epsilon};
}

void update(const Context& context, const Bound& b, const OptimizerParams& params, int member, int begin, int n) noexcept {
    using namespace optimizer;
    const MemberState& s = state_of(b[state], member);
    float* p = b[optimizer::params].at<float>(member) + begin;
    float* g = b[grads].at<float>(member) + begin;
    if (s.nonfinite != 0) {
        if (params.zero_grads) std::fill_n(g, n, 0.0f);
        return;
    }
    float* first = b[m].present() ? b[m].at<float>(member) + begin : nullptr;
    if (params.kind == OptimizerKind::sgd) {
        const SgdStep step{s.clip_scale, s.weight_decay, s.beta1, s.lr, s.applied == 0};
        context.simd.sgd(n, step, p, g, first, params.zero_grads);
    } else {
        context.simd.adam(n, adam_step(s, params.kind), p, g, first, b[v].at<float>(member) + begin, params.zero_grads);
    }
    if (!b[copy16].present()) return;
    std::uint16_t* rounded = b[copy16].at<std::uint16_t>(member) + begin;
    for (int i = 0; i < n; ++i) rounded[i] = tensor::to_bf16(p[i]);
}

}  // namespace

KernelResult make_grad_norm(Context& context, const Bound& bound) {
    using namespace grad_norm;
    const Operand in = bound[grads];
    Checker check(bound);
    check.require(grads, DType::f32, in.k, 1, 1, in.cols).state(state, in.k);
    MILLRACE_TRY(check.status());
    // Sums of squares stay in double: the scratch of the record is f32, which overflows where the norm itself does not.
    return make_kernel([&context, in, states = bound[state],
                        parts = std::vector<double>(static_cast<std::size_t>(in.k) * kNormBlocks)]() mutable noexcept {
        const std::int64_t block = (in.cols + kNormBlocks - 1) / kNormBlocks;
        context.pool.for_each_if(in.count() >= kParallelElements, in.k * kNormTasks, [&](int task, int) {
            const int member = task / kNormTasks, first = task % kNormTasks * (kNormBlocks / kNormTasks);
            for (int i = first; i < first + kNormBlocks / kNormTasks; ++i) {
                const std::int64_t begin = std::min<std::int64_t>(in.cols, i * block),
                                   end = std::min<std::int64_t>(in.cols, begin + block);
                parts[static_cast<std::size_t>(member) * kNormBlocks + i] =
                    context.simd.sum_of_squares(end - begin, in.at<float>(member) + begin);
            }
        });
        for (int member = 0; member < in.k; ++member) {
            double sum = 0;
            for (int i = 0; i < kNormBlocks; ++i) sum += parts[static_cast<std::size_t>(member) * kNormBlocks + i];
            const double norm = std::sqrt(sum);
            MemberState& s = state_of(states, member);
            s.grad_norm = static_cast<float>(norm);
            s.clip_scale =
                s.clip_norm > 0 ? static_cast<float>(std::min(1.0, static_cast<double>(s.clip_norm) / (norm + 1e-6))) : 1.0f;
            if (!std::isfinite(norm)) s.nonfinite = 1;
        }
    });
}

KernelResult make_optimizer(Context& context, const Bound& bound) {
    using namespace optimizer;
    const Operand p = bound[optimizer::params];
    const auto options = bound.params<OptimizerParams>();
    Checker check(bound);
    check.require(optimizer::params, DType::f32, p.k, 1, 1, p.cols)
        .like(grads, optimizer::params)
        .allow_like(m, optimizer::params);
    check.allow_like(v, optimizer::params).allow(copy16, DType::bf16, p.k, 1, 1, p.cols).state(state, p.k);
    if (options.kind != OptimizerKind::sgd) check.like(m, optimizer::params).like(v, optimizer::params);
    MILLRACE_TRY(check.status());
    return make_kernel([&context, b = bound, p, options]() noexcept {
        const Blocks blocks(p.cols, 16, p.cols / kUpdateBlock + 1);
        context.pool.for_each_if(p.count() >= kParallelElements, p.k * blocks.count, [&](int task, int) {
            const int part = task % blocks.count;
            update(context, b, options, task / blocks.count, blocks.begin(part), blocks.end(part) - blocks.begin(part));
        });
        for (int member = 0; member < p.k; ++member) {
            MemberState& s = state_of(b[state], member);
            (s.nonfinite != 0 ? s.skipped : s.applied) += 1;
        }
    });
}

}  // namespace millrace::ops::cpu
