#include "models/leak_cnn/ops/sounds.h"

#include <algorithm>
#include <cmath>

#include "data/sound/mel.h"
#include "ops/conv/conv.h"
#include "ops/host_kernels.h"
#include "ops/kernels.h"

namespace millrace::ops {
namespace {

/// One row of the slots; T is what they are computed in, and stored in unless y is f16.
template <class T>
void bands_of_row(const Bound& b, int member, int row) {
    std::array<T, data::kMelBands> decibels;
    data::mel_bands_of<T, T>(std::span<const T, data::kShortWindow>(b[mel_bands::x].at<T>(member, 0, row), data::kShortWindow),
                             decibels);
    if (b[mel_bands::y].dtype == tensor::DType::f16)
        std::ranges::transform(decibels, b[mel_bands::y].at<std::uint16_t>(member, 0, row),
                               [](T value) { return tensor::to_f16(static_cast<float>(value)); });
    else
        std::ranges::copy(decibels, b[mel_bands::y].at<T>(member, 0, row));
}

using tensor::Operand;

/// The rows of one member, in double; T is what the slots are stored in.
template <class T>
class WeightedPass {
public:
    WeightedPass(const Bound& b, int member) : b_(b), member_(member), classes_(b[weighted_cross_entropy::logits].cols) {}

    void run() noexcept {
        using namespace weighted_cross_entropy;
        const auto& params = b_.params<WeightedLossParams>();
        const int rows = b_[logits].rows;
        double divisor = params.by_rows ? rows : 0;
        for (int row = 0; row < rows && !params.by_rows; ++row)
            if (valid(row)) divisor += weight_of(row);
        const LossTotal over = total_of<T>(b_[total], member_, divisor, rows);
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
            if (b_[dlogits].present()) std::fill_n(b_[dlogits].at<T>(member_, 0, row), classes_, T{});
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
    [[nodiscard]] double weight_of(int row) const noexcept {
        return static_cast<double>(b_[weighted_cross_entropy::weights].at<T>(member_)[label(row)]);
    }

    double one(int row, double factor, MemberState& s) noexcept {
        using namespace weighted_cross_entropy;
        const T* values = b_[logits].at<T>(member_, 0, row);
        const T* best = std::max_element(values, values + classes_);
        const auto largest = static_cast<double>(*best);
        const auto exponential = [&](int c) { return std::exp(static_cast<double>(values[c]) - largest); };
        double denominator = 0;
        for (int c = 0; c < classes_; ++c) denominator += exponential(c);
        const double loss = std::log(denominator) - (static_cast<double>(values[label(row)]) - largest);
        s.correct += best - values == label(row) ? 1 : 0;
        const double weight = weight_of(row), focus = static_cast<double>(*b_[gamma].at<T>(member_));
        const double p = std::exp(-loss), q = std::max(1 - p, 1e-8), damping = focus == 0 ? 1 : std::pow(q, focus);
        const double slope = weight * (damping + (focus == 0 ? 0 : focus * damping / q * p * loss)) * factor;
        T* gradient = b_[dlogits].present() ? b_[dlogits].at<T>(member_, 0, row) : nullptr;
        for (int c = 0; gradient != nullptr && c < classes_; ++c)
            gradient[c] = static_cast<T>((exponential(c) / denominator - (c == label(row) ? 1 : 0)) * slope);
        return weight * damping * loss;
    }

    const Bound& b_;
    int member_, classes_;
};

template <class T>
void binary_of_member(const Bound& b, int member) noexcept {
    using namespace binary_cross_entropy;
    const Operand& in = b[logit];
    const auto& p = b.params<BinaryLossParams>();
    const double share = p.scale * static_cast<double>(*b[weight].at<T>(member)) / std::max(in.rows, 1);
    MemberState& s = state_of(b[state], member);
    const double slope = share * static_cast<double>(s.loss_scale);
    double sum = 0;
    for (int row = 0; row < in.rows; ++row) {
        const auto l = static_cast<double>(*in.at<T>(member, 0, row));
        const double wanted = *b[labels].at<std::int32_t>(member, 0, row) == p.positive ? 1 : 0, e = std::exp(-std::abs(l));
        sum += std::max(l, 0.0) + std::log1p(e) - wanted * l;
        if (b[dlogit].present())
            *b[dlogit].at<T>(member, 0, row) = static_cast<T>(((l >= 0 ? 1 / (1 + e) : e / (1 + e)) - wanted) * slope);
    }
    s.penalty += sum * share;
    if (!std::isfinite(sum)) s.nonfinite = 1;
}

template <class T>
void weighted_of_member(const Bound& b, int member) noexcept {
    WeightedPass<T>(b, member).run();
}

}  // namespace

MILLRACE_OPERATOR(mel_bands, Phase::data, {"x"}, {"y", write});

void mel_bands::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(y);
    c.require({x}, stat, {k, 1, rows, data::kShortWindow});
    c.require({y}, c[y].dtype == tensor::DType::f16 ? f16 : stat, {k, 1, rows, data::kMelBands});
}

MILLRACE_OPERATOR(weighted_cross_entropy, Phase::loss, {"logits"}, {"labels"}, {"weights"}, {"gamma"}, {"state", update},
                  {"dlogits", write}, {"total"});
MILLRACE_OPERATOR(binary_cross_entropy, Phase::loss, {"logit"}, {"labels"}, {"weight"}, {"state", update}, {"dlogit", write});

void weighted_cross_entropy::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(logits);
    check_classes(c, logits, labels, state, dlogits).params<WeightedLossParams>();
    c.require({weights}, stat, {k, 1, 1, cols}).require({gamma}, stat, {k, 1, 1, 1}).allow({total}, stat, {k, 1, 1, 2});
    c.that(!c[total].present() || !c.params<WeightedLossParams>().by_rows, "rows are counted without a total");
}

void binary_cross_entropy::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(logit);
    check_classes(c, logit, labels, state, dlogit).params<BinaryLossParams>();
    c.require({weight}, stat, {k, 1, 1, 1}).that(cols == 1, "there is one logit a row");
}

MILLRACE_REWRITE(line_forward, conv_forward, 0);
MILLRACE_REWRITE(line_backward, conv_backward, 0);

MILLRACE_HOST_ROWS(mel_bands, y, data::kShortWindow, bands_of_row);

MILLRACE_HOST_MEMBERS(weighted_cross_entropy, logits, 256, weighted_of_member);
MILLRACE_HOST_MEMBERS(binary_cross_entropy, logit, 256, binary_of_member);

}  // namespace millrace::ops
