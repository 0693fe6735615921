#include <cmath>
#include <limits>

#include "ops/ref/kernels.h"
#include "ops/text/sequences.h"
#include "ops/vocabulary/vocabulary.h"

namespace millrace::ops::ref {
namespace {

namespace at = vocabulary_loss;

void clear(const Bound& bound, int slot, int member) {
    const auto& out = bound[slot];
    if (!out.present() || bound.accumulates(slot)) return;
    for (int row = 0; row < out.rows; ++row) std::fill_n(out.at<double>(member, 0, row), out.cols, 0.0);
}

double logit(const Bound& bound, int member, int row, int entry) {
    const double *x = bound[at::x].at<double>(member, 0, row), *w = bound[at::weight].at<double>(member, 0, entry);
    double sum = bound[at::bias].present() ? bound[at::bias].at<double>(member)[entry] : 0;
    for (int c = 0; c < bound[at::x].cols; ++c) sum += x[c] * w[c];
    return sum;
}

/// Adds the gradients of one row, where `gradient` is that of its logit `entry`.
void add_gradients(const Bound& bound, int member, int row, int entry, double gradient) {
    const double *x = bound[at::x].at<double>(member, 0, row), *w = bound[at::weight].at<double>(member, 0, entry);
    for (int c = 0; c < bound[at::x].cols; ++c) {
        if (bound[at::dx].present()) bound[at::dx].at<double>(member, 0, row)[c] += gradient * w[c];
        if (bound[at::dweight].present()) bound[at::dweight].at<double>(member, 0, entry)[c] += gradient * x[c];
    }
    if (bound[at::dbias].present()) bound[at::dbias].at<double>(member)[entry] += gradient;
}

FoundToken run_row(const Bound& bound, int member, int row, std::int32_t id, double share) {
    const int vocabulary = bound[at::weight].rows;
    if (id < 0 || id >= vocabulary) return {0, false, true};
    double top = -std::numeric_limits<double>::infinity(), sum = 0;
    int best = 0;
    for (int v = 0; v < vocabulary; ++v)
        if (const double value = logit(bound, member, row, v); value > top) {
            top = value;
            best = v;
        }
    for (int v = 0; v < vocabulary; ++v) sum += std::exp(logit(bound, member, row, v) - top);
    const double logsumexp = top + std::log(sum), loss = std::log(sum) - (logit(bound, member, row, id) - top);
    *bound[at::logsumexp].at<double>(member, 0, row) = logsumexp;
    const bool wanted = bound[at::dx].present() || bound[at::dweight].present() || bound[at::dbias].present();
    for (int v = 0; wanted && v < vocabulary; ++v)
        add_gradients(bound, member, row, v, (std::exp(logit(bound, member, row, v) - top) / sum - (v == id ? 1 : 0)) * share);
    return {loss, best == id, !std::isfinite(loss)};
}

}  // namespace

void run_vocabulary_loss(const Bound& bound) {
    const auto& params = bound.params<TokenLossParams>();
    const auto &x = bound[at::x], &ids = bound[at::ids], &lengths = bound[at::lengths];
    const int positions = positions_of(x, lengths);
    for (int m = 0; m < x.k; ++m) {
        for (const int slot : {at::logsumexp, at::dx, at::dweight, at::dbias}) clear(bound, slot, m);
        const LossTotal over = token_total<double>(bound[at::total], lengths, m, ids.cols);
        const double share = params.scale / over.divisor * state_of(bound[at::state], m).loss_scale;
        TokenSums sums;
        for (int b = 0; b < lengths.rows; ++b)
            sums.add_sequence(tokens_of(lengths, m, b, ids.cols), [&](int t) {
                return run_row(bound, m, b * positions + params.first + t, ids.at<std::int32_t>(m, 0, b)[t], share);
            });
        sums.put(params, lengths.rows, over, state_of(bound[at::state], m),
                 bound[at::tally].present() ? bound[at::tally].at<double>(m) : nullptr, bound.accumulates(at::tally));
    }
}

}  // namespace millrace::ops::ref
