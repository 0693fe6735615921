#include <algorithm>
#include <cmath>
#include <span>
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

/// Calls `piece` for the part of every segment that lies in [begin, end): begin, end, group.
template <class Piece>
void for_each_piece(std::span<const Segment> segments, std::int64_t begin, std::int64_t end, const Piece& piece) {
    auto segment = std::ranges::upper_bound(segments, begin, {}, &Segment::end);
    for (; begin < end; ++segment) {
        const std::int64_t to = std::min<std::int64_t>(end, segment->end);
        piece(begin, to, static_cast<std::size_t>(segment->group));
        begin = to;
    }
}

AdamStep adam_step(const MemberState& s, const GroupState& group, OptimizerKind kind) {
    const bool decoupled = kind == OptimizerKind::adamw;
    const float lr = s.lr * group.lr_factor * group.gain, weight_decay = s.weight_decay * group.decay_factor;
    return AdamStep{.clip = s.clip_scale * group.gradient_gain,
                    .l2 = decoupled ? 0 : weight_decay,
                    .decay = decoupled ? lr * weight_decay : 0,
                    .beta1 = s.beta1,
                    .beta2 = s.beta2,
                    .rate = lr / group.bias1,
                    .root_bias2 = std::sqrt(group.bias2),
                    .epsilon = s.epsilon};
}

void update(const Context& context, const Bound& b, const OptimizerParams& params, int member, std::int64_t begin, std::int64_t n,
            const GroupState& group) noexcept {
    using namespace optimizer;
    const MemberState& s = state_of(b[state], member);
    float* p = b[optimizer::params].at<float>(member) + begin;
    const float* g = b[grads].at<float>(member) + begin;
    if (s.nonfinite != 0 || !group.updated()) return;
    float* first = b[m].present() ? b[m].at<float>(member) + begin : nullptr;
    if (params.kind == OptimizerKind::sgd) {
        const SgdStep step{s.clip_scale * group.gradient_gain, s.weight_decay * group.decay_factor, s.beta1,
                           s.lr * group.lr_factor * group.gain, group.applied == 0};
        context.simd.sgd(n, step, p, g, first);
    } else {
        context.simd.adam(n, adam_step(s, group, params.kind), p, g, first, b[v].at<float>(member) + begin);
    }
    if (!b[copy16].present()) return;
    std::uint16_t* rounded = b[copy16].at<std::uint16_t>(member) + begin;
    const auto round = b[copy16].dtype == DType::f16 ? tensor::to_f16 : tensor::to_bf16;
    for (std::int64_t i = std::max<std::int64_t>(0, params.first_copied - begin); i < n; ++i) rounded[i] = round(p[i]);
}

}  // namespace

KernelResult make_grad_norm(Context& context, const Bound& bound) {
    using namespace grad_norm;
    const Operand in = bound[grads];
    // Sums of squares stay in double: the scratch of the record is f32, which overflows where the norm itself does not.
    return make_kernel([&context, in, states = bound[state], table = bound[groups], pieces = bound[segments],
                        parts = std::vector<double>(static_cast<std::size_t>(in.k) * kNormBlocks)]() mutable noexcept {
        const std::int64_t block = (in.cols + kNormBlocks - 1) / kNormBlocks;
        context.pool.for_each_if(in.count() >= kParallelElements, in.k * kNormTasks, [&](int task, int) {
            const int member = task / kNormTasks, first = task % kNormTasks * (kNormBlocks / kNormTasks);
            for (int i = first; i < first + kNormBlocks / kNormTasks; ++i) {
                const std::int64_t begin = std::min<std::int64_t>(in.cols, i * block),
                                   end = std::min<std::int64_t>(in.cols, begin + block);
                double& sum = parts[static_cast<std::size_t>(member) * kNormBlocks + i];
                sum = 0;
                for_each_piece(segments_of(pieces), begin, end, [&](std::int64_t from, std::int64_t to, std::size_t group) {
                    if (groups_of(table, member)[group].trainable != 0)
                        sum += context.simd.sum_of_squares(to - from, in.at<float>(member) + from);
                });
            }
        });
        for (int member = 0; member < in.k; ++member) {
            double sum = 0;
            for (int i = 0; i < kNormBlocks; ++i) sum += parts[static_cast<std::size_t>(member) * kNormBlocks + i];
            MemberState& s = state_of(states, member);
            const double scale = static_cast<double>(s.loss_scale), norm = std::sqrt(sum) / scale;
            s.grad_norm = static_cast<float>(norm);
            const double clip = s.clip_norm > 0 ? std::min(1.0, static_cast<double>(s.clip_norm) / (norm + 1e-6)) : 1.0;
            s.clip_scale = static_cast<float>(clip / scale);
            if (!std::isfinite(norm)) s.nonfinite = 1;
        }
    });
}

KernelResult make_optimizer(Context& context, const Bound& bound) {
    using namespace optimizer;
    const Operand p = bound[optimizer::params];
    const auto options = bound.params<OptimizerParams>();
    return make_kernel([&context, b = bound, p, options]() noexcept {
        const Blocks blocks(p.cols, 16, p.cols / kUpdateBlock + 1);
        context.pool.for_each_if(p.count() >= kParallelElements, p.k * blocks.count, [&](int task, int) {
            const int part = task % blocks.count, member = task / blocks.count;
            for_each_piece(segments_of(b[segments]), blocks.begin(part), blocks.end(part),
                           [&](std::int64_t from, std::int64_t to, std::size_t group) {
                               update(context, b, options, member, from, to - from, groups_of(b[groups], member)[group]);
                           });
        });
        for (int member = 0; member < p.k; ++member) {
            MemberState& s = state_of(b[state], member);
            (s.nonfinite != 0 ? s.skipped : s.applied) += 1;
            for (GroupState& group : groups_of(b[groups], member))
                if (s.nonfinite == 0 && group.updated()) {
                    group.applied += 1;
                    group.last_applied = s.step;
                }
            s.adapt_loss_scale(s.nonfinite != 0, options.scale_interval);
        }
    });
}

}  // namespace millrace::ops::cpu
