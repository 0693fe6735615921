// The reference, an element after the other, and the CPU backend.
#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "ops/cpu/kernel.h"
#include "ops/optimizer/optimizer.h"
#include "ops/ref/kernels.h"
#include "tensor/element.h"

namespace millrace::ops {
namespace {

/// What follows from the sum of the squares of a member's gradients.
void set_norm(MemberState& state, double squares) {
    const double scale = state.loss_scale, norm = std::sqrt(squares) / scale;
    state.grad_norm = static_cast<float>(norm);
    state.clip_scale = static_cast<float>((state.clip_norm > 0 ? std::min(1.0, state.clip_norm / (norm + 1e-6)) : 1) / scale);
    if (!std::isfinite(norm)) state.nonfinite = 1;
}

/// What a step leaves in a member's state and groups.
void count_step(MemberState& state, std::span<GroupState> groups, std::uint32_t scale_interval) {
    ++(state.nonfinite == 0 ? state.applied : state.skipped);
    for (GroupState& group : groups)
        if (state.nonfinite == 0 && group.updated()) {
            ++group.applied;
            group.last_applied = state.step;
        }
    state.adapt_loss_scale(state.nonfinite != 0, scale_interval);
}

}  // namespace

namespace ref {

void run_grad_norm(const Bound& bound) {
    namespace at = grad_norm;
    const auto& grads = bound[at::grads];
    for (int m = 0; m < grads.k; ++m) {
        MemberState& state = state_of(bound[at::state], m);
        double sum = 0;
        int i = 0;
        for (const Segment& segment : segments_of(bound[at::segments])) {
            const bool counts = groups_of(bound[at::groups], m)[static_cast<std::size_t>(segment.group)].trainable != 0;
            for (; i < segment.end; ++i)
                if (counts) sum += grads.at<double>(m)[i] * grads.at<double>(m)[i];
        }
        set_norm(state, sum);
    }
}

namespace {

/// One parameter with its gradient and moments, and the step's scalars in double.
struct Element {
    double p, g, m, v;
};

void update(Element& e, OptimizerKind kind, const MemberState& state, const GroupState& group) {
    const double lr = state.lr * group.lr_factor * group.gain, decay = state.weight_decay * group.decay_factor;
    const double beta1 = state.beta1, beta2 = state.beta2;
    double g = e.g * state.clip_scale * group.gradient_gain;
    if (kind == OptimizerKind::adamw)
        e.p -= lr * decay * e.p;
    else
        g += decay * e.p;
    if (kind == OptimizerKind::sgd) {
        e.m = group.applied == 0 ? g : beta1 * e.m + g;
        e.p -= lr * (beta1 != 0 ? e.m : g);
        return;
    }
    e.m = beta1 * e.m + (1 - beta1) * g;
    e.v = beta2 * e.v + (1 - beta2) * g * g;
    e.p -= lr / group.bias1 * e.m / (std::sqrt(e.v) / std::sqrt(static_cast<double>(group.bias2)) + state.epsilon);
}

}  // namespace

void run_optimizer(const Bound& bound) {
    namespace at = optimizer;
    const auto& params = bound.params<OptimizerParams>();
    const auto &values = bound[at::params], &grads = bound[at::grads], &first = bound[at::m], &second = bound[at::v];
    for (int member = 0; member < values.k; ++member) {
        MemberState& state = state_of(bound[at::state], member);
        const std::span<GroupState> groups = groups_of(bound[at::groups], member);
        const Segment* segment = segments_of(bound[at::segments]).data();
        for (int i = 0; i < values.cols; ++i) {
            while (i >= segment->end) ++segment;
            const GroupState& group = groups[static_cast<std::size_t>(segment->group)];
            double& p = values.at<double>(member)[i];
            const double g = grads.at<double>(member)[i];
            if (state.nonfinite == 0 && group.updated()) {
                Element e{p, g, first.present() ? first.at<double>(member)[i] : 0,
                          second.present() ? second.at<double>(member)[i] : 0};
                update(e, params.kind, state, group);
                p = e.p;
                if (first.present()) first.at<double>(member)[i] = e.m;
                if (second.present()) second.at<double>(member)[i] = e.v;
                if (bound[at::copy16].present() && i >= params.first_copied)
                    tensor::write_element(bound[at::copy16].at<std::uint16_t>(member) + i, bound[at::copy16].dtype, p);
            }
        }
        count_step(state, groups, params.scale_interval);
    }
}

}  // namespace ref

namespace cpu {
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
            set_norm(state_of(states, member), sum);
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
        for (int member = 0; member < p.k; ++member)
            count_step(state_of(b[state], member), groups_of(b[groups], member), options.scale_interval);
    });
}

}  // namespace cpu
}  // namespace millrace::ops
