#include "ops/text/sequences.h"

#include <cmath>

#include "ops/ref/kernels.h"
#include "ops/text/text.h"

namespace millrace::ops::ref {

void run_token_embed(const Bound& bound) {
    namespace at = token_embed;
    const int prefix = bound.params<TokenParams>().prefix;
    const auto &table = bound[at::table], &ids = bound[at::ids], &y = bound[at::y];
    const int positions = prefix + ids.cols;
    for (int m = 0; m < y.k; ++m)
        for (int row = 0; row < y.rows; ++row) {
            const int b = row / positions, position = row % positions;
            double* to = y.at<double>(m, 0, row);
            std::fill_n(to, y.cols, 0.0);
            if (position >= prefix + tokens_of(bound[at::lengths], m, b, ids.cols)) continue;
            const double* from = nullptr;
            if (position < prefix) {
                from = bound[at::before].at<double>(m, 0, b) + position * y.cols;
            } else {
                const std::int32_t id = ids.at<std::int32_t>(m, 0, b)[position - prefix];
                if (id >= 0 && id < table.rows)
                    from = table.at<double>(m, 0, id);
                else
                    state_of(bound[at::state], m).nonfinite = 1;
            }
            for (int c = 0; c < y.cols; ++c)
                to[c] = (from == nullptr ? 0 : from[c]) + bound[at::position].at<double>(m, 0, position)[c];
        }
}

namespace {

void clear(const Bound& bound, int slot, int member) {
    const auto& out = bound[slot];
    if (!out.present() || bound.accumulates(slot)) return;
    for (int row = 0; row < out.rows; ++row) std::fill_n(out.at<double>(member, 0, row), out.cols, 0.0);
}

void add_row(double* to, const double* from, int count) {
    for (int c = 0; c < count; ++c) to[c] += from[c];
}

}  // namespace

void run_token_embed_backward(const Bound& bound) {
    namespace at = token_embed_backward;
    const int prefix = bound.params<TokenParams>().prefix;
    const auto &dy = bound[at::dy], &ids = bound[at::ids], &dtable = bound[at::dtable];
    const int positions = prefix + ids.cols;
    for (int m = 0; m < dy.k; ++m) {
        for (const int slot : {at::dtable, at::dposition, at::dbefore}) clear(bound, slot, m);
        for (int row = 0; row < dy.rows; ++row) {
            const int b = row / positions, position = row % positions;
            if (position >= prefix + tokens_of(bound[at::lengths], m, b, ids.cols)) continue;
            const double* from = dy.at<double>(m, 0, row);
            if (bound[at::dposition].present()) add_row(bound[at::dposition].at<double>(m, 0, position), from, dy.cols);
            if (position < prefix) {
                if (bound[at::dbefore].present())
                    add_row(bound[at::dbefore].at<double>(m, 0, b) + position * dy.cols, from, dy.cols);
                continue;
            }
            const std::int32_t id = ids.at<std::int32_t>(m, 0, b)[position - prefix];
            if (dtable.present() && id >= 0 && id < dtable.rows) add_row(dtable.at<double>(m, 0, id), from, dy.cols);
        }
    }
}

void run_masked_mean(const Bound& bound) {
    namespace at = masked_mean;
    const auto &x = bound[at::x], &y = bound[at::y], &lengths = bound[at::lengths];
    const int prefix = bound.params<TokenParams>().prefix, positions = positions_of(x, lengths);
    for (int m = 0; m < y.k; ++m)
        for (int b = 0; b < y.rows; ++b) {
            const int filled = prefix + tokens_of(lengths, m, b, positions - prefix);
            for (int c = 0; c < y.cols; ++c) {
                double sum = 0;
                for (int position = 0; position < filled; ++position) sum += x.at<double>(m, 0, b * positions + position)[c];
                y.at<double>(m, 0, b)[c] = filled == 0 ? 0 : sum / filled;
            }
        }
}

void run_masked_mean_backward(const Bound& bound) {
    namespace at = masked_mean_backward;
    const auto &dx = bound[at::dx], &dy = bound[at::dy], &lengths = bound[at::lengths];
    const int prefix = bound.params<TokenParams>().prefix, positions = positions_of(dx, lengths);
    if (positions == 0) return;
    for (int m = 0; m < dx.k; ++m)
        for (int row = 0; row < dx.rows; ++row) {
            const int b = row / positions, filled = prefix + tokens_of(lengths, m, b, positions - prefix);
            for (int c = 0; c < dx.cols; ++c)
                store(dx.at<double>(m, 0, row)[c], row % positions < filled ? dy.at<double>(m, 0, b)[c] / filled : 0,
                      bound.accumulates(at::dx));
        }
}

namespace {

/// Number of the largest, the lowest on ties; a NaN is never the largest.
int largest_of(const double* logits, int count) {
    int best = 0;
    for (int c = 1; c < count; ++c)
        if (logits[c] > logits[best] || std::isnan(logits[best])) best = c;
    return std::isnan(logits[best]) ? 0 : best;
}

/// Loss of one token, and its gradient times `share` when wanted.
double token_loss(const double* logits, int count, std::int32_t id, double* gradient, double share) {
    const double top = logits[largest_of(logits, count)];
    double sum = 0;
    for (int c = 0; c < count; ++c) sum += std::exp(logits[c] - top);
    for (int c = 0; gradient != nullptr && c < count; ++c)
        gradient[c] = (std::exp(logits[c] - top) / sum - (c == id ? 1 : 0)) * share;
    return std::log(sum) - (logits[id] - top);
}

}  // namespace

void run_token_cross_entropy(const Bound& bound) {
    namespace at = token_cross_entropy;
    const auto& params = bound.params<TokenLossParams>();
    const auto &logits = bound[at::logits], &ids = bound[at::ids], &lengths = bound[at::lengths], &dlogits = bound[at::dlogits];
    const int positions = positions_of(logits, lengths);
    for (int m = 0; m < logits.k; ++m) {
        const LossTotal over = token_total<double>(bound[at::total], lengths, m, ids.cols);
        const double share = params.scale / over.divisor * state_of(bound[at::state], m).loss_scale;
        for (int row = 0; dlogits.present() && row < dlogits.rows; ++row)
            std::fill_n(dlogits.at<double>(m, 0, row), dlogits.cols, 0.0);
        TokenSums sums;
        for (int b = 0; b < lengths.rows; ++b)
            sums.add_sequence(tokens_of(lengths, m, b, ids.cols), [&](int t) -> FoundToken {
                const std::int32_t id = ids.at<std::int32_t>(m, 0, b)[t];
                if (id < 0 || id >= logits.cols) return {0, false, true};
                const int row = b * positions + params.first + t;
                const double* values = logits.at<double>(m, 0, row);
                double* gradient = dlogits.present() ? dlogits.at<double>(m, 0, row) : nullptr;
                const double loss = token_loss(values, logits.cols, id, gradient, share);
                return {loss, largest_of(values, logits.cols) == id, !std::isfinite(loss)};
            });
        sums.put(params, lengths.rows, over, state_of(bound[at::state], m),
                 bound[at::tally].present() ? bound[at::tally].at<double>(m) : nullptr, bound.accumulates(at::tally));
    }
}

void run_token_choose(const Bound& bound) {
    namespace at = token_choose;
    const auto& params = bound.params<TokenChooseParams>();
    const auto &logits = bound[at::logits], &ids = bound[at::ids], &lengths = bound[at::lengths];
    for (int m = 0; m < logits.k; ++m)
        for (int b = 0; b < lengths.rows; ++b) {
            std::int32_t* sequence = ids.at<std::int32_t>(m, 0, b);
            const int length = tokens_of(lengths, m, b, ids.cols);
            if (length == ids.cols || (length > 0 && sequence[length - 1] == params.end)) continue;
            const int row = b * positions_of(logits, lengths) + params.first + length;
            sequence[length] = largest_of(logits.at<double>(m, 0, row), logits.cols);
            *lengths.at<std::int32_t>(m, 0, b) = length + 1;
        }
}

}  // namespace millrace::ops::ref
