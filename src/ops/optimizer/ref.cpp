#include <algorithm>
#include <cmath>

#include "ops/optimizer/optimizer.h"
#include "ops/ref/kernels.h"
#include "tensor/element.h"

namespace millrace::ops::ref {

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
        const double scale = state.loss_scale, norm = std::sqrt(sum) / scale;
        state.grad_norm = static_cast<float>(norm);
        state.clip_scale = static_cast<float>((state.clip_norm > 0 ? std::min(1.0, state.clip_norm / (norm + 1e-6)) : 1) / scale);
        if (!std::isfinite(norm)) state.nonfinite = 1;
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
        ++(state.nonfinite == 0 ? state.applied : state.skipped);
        for (GroupState& group : groups)
            if (state.nonfinite == 0 && group.updated()) {
                ++group.applied;
                group.last_applied = state.step;
            }
        state.adapt_loss_scale(state.nonfinite != 0, params.scale_interval);
    }
}

}  // namespace millrace::ops::ref
