#include <algorithm>
#include <cmath>

#include "ops/cpu/kernel.h"
#include "ops/loss/loss.h"

namespace millrace::ops::cpu {
namespace {

using tensor::DType;
using tensor::Operand;

struct Row {
    double largest = 0, denominator = 0, loss = 0;
    bool correct = false;
};

/// Of a row with a valid label.
Row row_of(const float* logits, int classes, std::int32_t label) noexcept {
    Row row;
    const float* best = std::max_element(logits, logits + classes);
    row.correct = best - logits == label;
    row.largest = static_cast<double>(*best);
    for (int c = 0; c < classes; ++c) row.denominator += std::exp(static_cast<double>(logits[c]) - row.largest);
    row.loss = std::log(row.denominator) - (static_cast<double>(logits[label]) - row.largest);
    return row;
}

/// The rows of one member.
class WeightedPass {
public:
    WeightedPass(const Bound& b, int member) : b_(b), member_(member), classes_(b[weighted_cross_entropy::logits].cols) {}

    void run() noexcept {
        using namespace weighted_cross_entropy;
        const auto& params = b_.params<WeightedLossParams>();
        const int rows = b_[logits].rows;
        double divisor = params.by_rows ? rows : 0;
        for (int row = 0; row < rows && !params.by_rows; ++row)
            if (valid(row)) divisor += static_cast<double>(weight_of(row));
        const LossTotal over = total_of<float>(b_[total], member_, divisor, rows);
        const double share = over.divisor > 0 ? 1 / over.divisor : 0;
        MemberState& s = state_of(b_[state], member_);
        const double factor = params.scale * share * static_cast<double>(s.loss_scale);
        double sum = 0;
        bool strange = false;
        for (int row = 0; row < rows; ++row) {
            if (valid(row)) {
                sum += one(row, factor, s);
                continue;
            }
            strange = true;
            if (b_[dlogits].present()) std::fill_n(b_[dlogits].at<float>(member_, 0, row), classes_, 0.0f);
        }
        s.loss += sum * share * over.rows;
        s.rows += static_cast<std::uint32_t>(rows);
        if (strange || !std::isfinite(sum)) s.nonfinite = 1;
    }

private:
    [[nodiscard]] std::int32_t label(int row) const noexcept {
        return *b_[weighted_cross_entropy::labels].at<std::int32_t>(member_, 0, row);
    }
    [[nodiscard]] bool valid(int row) const noexcept { return label(row) >= 0 && label(row) < classes_; }
    [[nodiscard]] float weight_of(int row) const noexcept {
        return b_[weighted_cross_entropy::weights].at<float>(member_)[label(row)];
    }

    double one(int row, double factor, MemberState& s) noexcept {
        using namespace weighted_cross_entropy;
        const float* values = b_[logits].at<float>(member_, 0, row);
        const Row r = row_of(values, classes_, label(row));
        s.correct += r.correct ? 1 : 0;
        const double weight = static_cast<double>(weight_of(row)), focus = static_cast<double>(*b_[gamma].at<float>(member_));
        const double p = std::exp(-r.loss), q = std::max(1 - p, 1e-8), damping = focus == 0 ? 1 : std::pow(q, focus);
        if (b_[dlogits].present()) {
            const double slope = weight * (damping + (focus == 0 ? 0 : focus * damping / q * p * r.loss)) * factor;
            float* gradient = b_[dlogits].at<float>(member_, 0, row);
            for (int c = 0; c < classes_; ++c) {
                const double probability = std::exp(static_cast<double>(values[c]) - r.largest) / r.denominator;
                gradient[c] = static_cast<float>((probability - (c == label(row) ? 1 : 0)) * slope);
            }
        }
        return weight * damping * r.loss;
    }

    const Bound& b_;
    int member_, classes_;
};

}  // namespace

KernelResult make_weighted_cross_entropy(Context& context, const Bound& bound) {
    using namespace weighted_cross_entropy;
    const Operand in = bound[logits];
    return make_kernel([&context, b = bound, in]() noexcept {
        context.pool.for_each_if(in.k > 1 && in.count() >= 256, in.k, [&](int member, int) { WeightedPass(b, member).run(); });
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

KernelResult make_binary_cross_entropy(Context& context, const Bound& bound) {
    using namespace binary_cross_entropy;
    const Operand in = bound[logit];
    return make_kernel([&context, b = bound, in, p = bound.params<BinaryLossParams>()]() noexcept {
        context.pool.for_each_if(in.k > 1 && in.count() >= 256, in.k, [&](int member, int) {
            const double share = p.scale * static_cast<double>(*b[weight].at<float>(member)) / std::max(in.rows, 1);
            MemberState& s = state_of(b[state], member);
            const double slope = share * static_cast<double>(s.loss_scale);
            double sum = 0;
            for (int row = 0; row < in.rows; ++row) {
                const auto l = static_cast<double>(*in.at<float>(member, 0, row));
                const double wanted = *b[labels].at<std::int32_t>(member, 0, row) == p.positive ? 1 : 0,
                             e = std::exp(-std::abs(l));
                sum += std::max(l, 0.0) + std::log1p(e) - wanted * l;
                if (b[dlogit].present())
                    *b[dlogit].at<float>(member, 0, row) =
                        static_cast<float>(((l >= 0 ? 1 / (1 + e) : e / (1 + e)) - wanted) * slope);
            }
            s.penalty += sum * share;
            if (!std::isfinite(sum)) s.nonfinite = 1;
        });
    });
}

}  // namespace millrace::ops::cpu
