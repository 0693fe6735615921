#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/cpu/kernel.h"
#include "ops/text/sequences.h"
#include "ops/text/text.h"

namespace millrace::ops::cpu {
namespace {

using tensor::DType;
using tensor::Operand;
namespace at = token_cross_entropy;

/// Rows on all threads, then one sum per member in the order of the rows.
class TokenLoss {
public:
    TokenLoss(Context& context, const Bound& bound)
        : context_(context),
          b_(bound),
          params_(bound.params<TokenLossParams>()),
          positions_(positions_of(bound[at::logits], bound[at::lengths])),
          found_(static_cast<std::size_t>(bound[at::logits].k) * static_cast<std::size_t>(bound[at::logits].rows)) {}

    void operator()() noexcept {
        const Operand &logits = b_[at::logits], &lengths = b_[at::lengths];
        const int sequences = lengths.rows;
        context_.pool.for_each_if(logits.count() >= kParallelElements, logits.k * sequences, [&](int task, int) {
            const int member = task / sequences;
            const auto scale = static_cast<double>(state_of(b_[at::state], member).loss_scale);
            run_sequence(member, task % sequences, params_.scale / over(member).divisor * scale);
        });
        for (int member = 0; member < logits.k; ++member) conclude(member);
    }

private:
    [[nodiscard]] int tokens(int member, int sequence) const {
        return tokens_of(b_[at::lengths], member, sequence, b_[at::ids].cols);
    }
    [[nodiscard]] LossTotal over(int member) const {
        return token_total<float>(b_[at::total], b_[at::lengths], member, b_[at::ids].cols);
    }
    [[nodiscard]] FoundToken& found(int member, std::int64_t row) {
        return found_[static_cast<std::size_t>(member * std::int64_t{b_[at::logits].rows} + row)];
    }

    void run_sequence(int member, int sequence, double share) noexcept {
        const Operand& dlogits = b_[at::dlogits];
        const int count = tokens(member, sequence);
        for (int position = 0; position < positions_; ++position) {
            const std::int64_t row = std::int64_t{sequence} * positions_ + position;
            float* gradient = dlogits.present() ? dlogits.at<float>(member, 0, row) : nullptr;
            const int t = position - params_.first;
            if (t >= 0 && t < count) {
                const std::int32_t id = b_[at::ids].at<std::int32_t>(member, 0, sequence)[t];
                found(member, row) = run_row(b_[at::logits].at<float>(member, 0, row), id, gradient, share);
            } else if (gradient != nullptr) {
                std::fill_n(gradient, dlogits.cols, 0.0f);
            }
        }
    }

    [[nodiscard]] FoundToken run_row(const float* logits, std::int32_t id, float* gradient, double share) const noexcept {
        const int count = b_[at::logits].cols;
        if (id < 0 || id >= count) {
            if (gradient != nullptr) std::fill_n(gradient, count, 0.0f);
            return {0, false, true};
        }
        const int best = context_.simd.largest(count, logits);
        const float top = logits[best], sum = context_.simd.exp_sum(count, logits, top, gradient);
        if (gradient != nullptr) {
            const auto factor = static_cast<float>(share / static_cast<double>(sum));
            const auto own = static_cast<float>((static_cast<double>(gradient[id]) / static_cast<double>(sum) - 1) * share);
            context_.simd.scale_row(count, factor, gradient);
            gradient[id] = own;
        }
        const double loss = std::log(static_cast<double>(sum)) - (static_cast<double>(logits[id]) - static_cast<double>(top));
        return {loss, best == id, !std::isfinite(loss)};
    }

    void conclude(int member) noexcept {
        const int sequences = b_[at::lengths].rows;
        TokenSums sums;
        for (int b = 0; b < sequences; ++b)
            sums.add_sequence(tokens(member, b),
                              [&](int t) { return found(member, std::int64_t{b} * positions_ + params_.first + t); });
        const Operand& to = b_[at::tally];
        sums.put(params_, sequences, over(member), state_of(b_[at::state], member), to.present() ? to.at<float>(member) : nullptr,
                 b_.accumulates(at::tally));
    }

    Context& context_;
    Bound b_;
    TokenLossParams params_;
    int positions_;
    std::vector<FoundToken> found_;
};

}  // namespace

KernelResult make_token_cross_entropy(Context& context, const Bound& bound) { return make_kernel(TokenLoss(context, bound)); }

}  // namespace millrace::ops::cpu
