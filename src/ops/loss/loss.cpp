#include "ops/loss/loss.h"

#include <algorithm>
#include <cmath>

#include "ops/host_kernels.h"
#include "ops/kernels.h"

namespace millrace::ops {
namespace {

using tensor::Operand;

/// Loss of one row of logits, in double, the largest of which is number `best`; `gradient` (may be null) receives
/// (softmax - onehot) * factor.
template <class T>
double cross_entropy_row(const T* logits, int classes, std::ptrdiff_t best, std::int32_t label, T* gradient, double factor) {
    const auto top = static_cast<double>(logits[best]);
    double sum = 0;
    for (int c = 0; c < classes; ++c) sum += std::exp(static_cast<double>(logits[c]) - top);
    for (int c = 0; gradient != nullptr && c < classes; ++c) {
        const double probability = std::exp(static_cast<double>(logits[c]) - top) / sum;
        gradient[c] = static_cast<T>((probability - (c == label ? 1 : 0)) * factor);
    }
    return std::log(sum) - (static_cast<double>(logits[label]) - top);
}

template <class T>
void cross_entropy_of(const Bound& b, int member) {
    using namespace cross_entropy;
    const Operand& in = b[logits];
    MemberState& s = state_of(b[state], member);
    const double share = b.params<LossParams>().scale / in.rows * static_cast<double>(s.loss_scale);
    double total = 0;
    bool strange = false;
    for (int row = 0; row < in.rows; ++row) {
        const std::int32_t label = *b[labels].at<std::int32_t>(member, 0, row);
        T* gradient = b[dlogits].present() ? b[dlogits].at<T>(member, 0, row) : nullptr;
        const T* values = in.at<T>(member, 0, row);
        const std::ptrdiff_t best = std::max_element(values, values + in.cols) - values;
        if (b[predicted].present()) *b[predicted].at<std::int32_t>(member, 0, row) = static_cast<std::int32_t>(best);
        if (label < 0 || label >= in.cols) {
            strange = true;
            if (gradient != nullptr) std::fill_n(gradient, in.cols, T{});
            continue;
        }
        const double weight = b[weights].present() ? static_cast<double>(b[weights].at<T>(member)[label]) : 1;
        total += weight * cross_entropy_row(values, in.cols, best, label, gradient, share * weight);
        s.correct += best == label ? 1 : 0;
    }
    s.loss += total;
    s.rows += static_cast<std::uint32_t>(in.rows);
    if (strange || !std::isfinite(total)) s.nonfinite = 1;
}

template <class T>
void loss_total_of(const Bound& b, int member) {
    using namespace loss_total;
    const Operand& in = b[values];
    const T* weight = b[weights].present() ? b[weights].at<T>(member) : nullptr;
    double sum = 0;
    for (int row = 0; row < in.rows; ++row) {
        const std::int32_t value = *in.at<std::int32_t>(member, 0, row);
        if (weight == nullptr)
            sum += std::clamp(value, 0, b.params<LossTotalParams>().most);
        else if (value >= 0 && value < b[weights].cols)
            sum += static_cast<double>(weight[value]);
    }
    b[total].at<T>(member)[0] = static_cast<T>(sum);
    b[total].at<T>(member)[1] = static_cast<T>(in.rows);
}

template <class T>
void mse_of(const Bound& b, int member, const host::Loops<T>& loops) {
    using namespace mse;
    const Operand& in = b[prediction];
    const auto& params = b.params<LossParams>();
    MemberState& s = state_of(b[state], member);
    const auto factor =
        static_cast<T>(2 * params.scale / (static_cast<double>(in.rows) * in.cols)) * static_cast<T>(s.loss_scale);
    double total = 0;
    for (int row = 0; row < in.rows; ++row) {
        T* gradient = b[dprediction].present() ? b[dprediction].at<T>(member, 0, row) : nullptr;
        total += loops.squared_distance(in.cols, in.at<T>(member, 0, row), b[target].at<T>(member, 0, row), factor, gradient) /
                 in.cols;
    }
    if (!params.as_loss) {
        s.penalty += in.rows > 0 ? params.scale * total / in.rows : 0;
        return;
    }
    s.loss += total;
    s.rows += static_cast<std::uint32_t>(in.rows);
}

}  // namespace

Checker& check_classes(Checker& c, int logits, int labels, int state, int gradients) {
    const auto [k, g, rows, cols] = c.shape(logits);
    c.require({logits}, Type::real, {k, 1, rows, cols}).allow({gradients}, Type::real, {k, 1, rows, cols});
    return c.require({labels}, Type::i32, {k, 1, rows, 1}).state(state, k).that(cols > 0, "needs at least one class");
}

MILLRACE_OPERATOR(cross_entropy, Phase::loss, {"logits"}, {"labels"}, {"state", update}, {"dlogits", write}, {"weights"},
                  {"predicted", write});
MILLRACE_OPERATOR(loss_total, Phase::loss, {"values"}, {"weights"}, {"total", write});
MILLRACE_OPERATOR(mse, Phase::loss, {"prediction"}, {"target"}, {"state", update}, {"dprediction", write});

void cross_entropy::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(logits);
    check_classes(c, logits, labels, state, dlogits)
        .allow({weights}, stat, {k, 1, 1, cols})
        .allow({predicted}, i32, {k, 1, rows, 1});
    c.params<LossParams>();
}

void loss_total::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(values);
    c.require({values}, Type::i32, {k, 1, rows, 1}).require({total}, stat, {k, 1, 1, 2});
    c.allow({weights}, stat, {k, 1, 1, c.shape(weights).cols}).params<LossTotalParams>();
}

void mse::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(prediction);
    c.require({prediction, target}, real, {k, 1, rows, cols}).allow({dprediction}, real, {k, 1, rows, cols});
    c.state(state, k).that(cols > 0, "needs at least one column").params<LossParams>();
}

MILLRACE_HOST_MEMBERS(cross_entropy, logits, 256, cross_entropy_of);
MILLRACE_HOST_MEMBERS(loss_total, values, cpu::kParallelElements, loss_total_of);
MILLRACE_HOST_MEMBERS(mse, prediction, cpu::kParallelElements, mse_of);

}  // namespace millrace::ops
