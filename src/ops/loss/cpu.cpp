#include <algorithm>
#include <cmath>

#include "ops/cpu/kernel.h"
#include "ops/loss/loss.h"

namespace millrace::ops::cpu {
namespace {

using tensor::DType;
using tensor::Operand;

/// Loss of one row of logits; `gradient` (may be null) receives (softmax - onehot) * factor.
double cross_entropy_row(const float* logits, int classes, std::int32_t label, float* gradient, double factor,
                         bool& correct) noexcept {
    int best = 0;
    for (int c = 1; c < classes; ++c) best = logits[c] > logits[best] ? c : best;
    correct = best == label;
    const double top = static_cast<double>(logits[best]);
    double sum = 0;
    for (int c = 0; c < classes; ++c) sum += std::exp(static_cast<double>(logits[c]) - top);
    if (gradient != nullptr) {
        for (int c = 0; c < classes; ++c) {
            const double probability = std::exp(static_cast<double>(logits[c]) - top) / sum;
            gradient[c] = static_cast<float>((probability - (c == label ? 1 : 0)) * factor);
        }
    }
    return std::log(sum) - (static_cast<double>(logits[label]) - top);
}

}  // namespace

KernelResult make_cross_entropy(Context& context, const Bound& bound) {
    using namespace cross_entropy;
    const Operand in = bound[logits];
    return make_kernel([&context, b = bound, in, scale = bound.params<LossParams>().scale]() noexcept {
        context.pool.for_each_if(in.k > 1 && in.count() >= 256, in.k, [&](int member, int) {
            MemberState& s = state_of(b[state], member);
            const double share = scale / in.rows * static_cast<double>(s.loss_scale);
            double total = 0;
            bool strange = false;
            for (int row = 0; row < in.rows; ++row) {
                const std::int32_t label = *b[labels].at<std::int32_t>(member, 0, row);
                float* gradient = b[dlogits].present() ? b[dlogits].at<float>(member, 0, row) : nullptr;
                if (label < 0 || label >= in.cols) {
                    strange = true;
                    for (int c = 0; gradient != nullptr && c < in.cols; ++c) gradient[c] = 0;
                    continue;
                }
                bool correct = false;
                total += cross_entropy_row(in.at<float>(member, 0, row), in.cols, label, gradient, share, correct);
                s.correct += correct ? 1 : 0;
            }
            s.loss += total;
            s.rows += static_cast<std::uint32_t>(in.rows);
            if (strange || !std::isfinite(total)) s.nonfinite = 1;
        });
    });
}

KernelResult make_mse(Context& context, const Bound& bound) {
    using namespace mse;
    const Operand in = bound[prediction];
    return make_kernel([&context, b = bound, in, params = bound.params<LossParams>()]() noexcept {
        const auto factor = static_cast<float>(2 * params.scale / (static_cast<double>(in.rows) * in.cols));
        context.pool.for_each_if(in.k > 1 && in.count() >= kParallelElements, in.k, [&](int member, int) {
            MemberState& s = state_of(b[state], member);
            const float scaled = factor * s.loss_scale;
            double total = 0;
            for (int row = 0; row < in.rows; ++row) {
                const float *p = in.at<float>(member, 0, row), *t = b[target].at<float>(member, 0, row);
                float* gradient = b[dprediction].present() ? b[dprediction].at<float>(member, 0, row) : nullptr;
                total += context.simd.squared_distance(in.cols, p, t, scaled, gradient) / in.cols;
            }
            if (!params.as_loss) {
                s.penalty += in.rows > 0 ? params.scale * total / in.rows : 0;
                return;
            }
            s.loss += total;
            s.rows += static_cast<std::uint32_t>(in.rows);
        });
    });
}

KernelResult make_loss_total(Context& /*context*/, const Bound& bound) {
    using namespace loss_total;
    const Operand in = bound[values];
    return make_kernel([b = bound, in, most = bound.params<LossTotalParams>().most]() noexcept {
        for (int member = 0; member < in.k; ++member) {
            const float* weight = b[weights].present() ? b[weights].at<float>(member) : nullptr;
            double sum = 0;
            for (int row = 0; row < in.rows; ++row) {
                const std::int32_t value = *in.at<std::int32_t>(member, 0, row);
                if (weight == nullptr)
                    sum += std::clamp(value, 0, most);
                else if (value >= 0 && value < b[weights].cols)
                    sum += static_cast<double>(weight[value]);
            }
            b[total].at<float>(member)[0] = static_cast<float>(sum);
            b[total].at<float>(member)[1] = static_cast<float>(in.rows);
        }
    });
}

}  // namespace millrace::ops::cpu
