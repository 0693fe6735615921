#pragma once
// Losses of tokens from rows of logits, for the reference (T = double) and the CPU backend (T = float).

#include <cmath>

#include "ops/text/sequences.h"

namespace millrace::ops {

/// Loops over a row as cpu::SimdKernels has them, in double.
struct PlainRows {
    static void add_rows(int n, const double* a, const double* b, double* y, bool add) {
        for (int i = 0; i < n; ++i) y[i] = (add ? y[i] : 0) + a[i] + (b != nullptr ? b[i] : 0);
    }
    static void scale_row(int n, double factor, double* y) {
        for (int i = 0; i < n; ++i) y[i] *= factor;
    }
    static int largest(int n, const double* x) {
        int best = 0;
        for (int i = 1; i < n; ++i)
            if (x[i] > x[best] || std::isnan(x[best])) best = i;
        return std::isnan(x[best]) ? 0 : best;
    }
    static double exp_sum(int n, const double* x, double top, double* out) {
        double sum = 0;
        for (int i = 0; i < n; ++i) {
            const double e = std::exp(x[i] - top);
            if (out != nullptr) out[i] = e;
            sum += e;
        }
        return sum;
    }
};

/// Of a row of `count` logits about token `id`. gradient: null, or gets that of the loss times `share`; it may be the logits.
template <class T, class Loops>
FoundToken token_loss(const Loops& loops, int count, const T* logits, std::int32_t id, double share, T* gradient) {
    if (id < 0 || id >= count) {
        if (gradient != nullptr) std::fill_n(gradient, count, T{});
        return {0, false, true};
    }
    const int best = loops.largest(count, logits);
    const auto top = static_cast<double>(logits[best]), target = static_cast<double>(logits[id]);
    const auto sum = static_cast<double>(loops.exp_sum(count, logits, logits[best], gradient));
    if (gradient != nullptr) {
        const auto own = static_cast<T>((static_cast<double>(gradient[id]) / sum - 1) * share);
        loops.scale_row(count, static_cast<T>(share / sum), gradient);
        gradient[id] = own;
    }
    const double loss = std::log(sum) - (target - top);
    return {loss, best == id, !std::isfinite(loss)};
}

/// Slots of a record whose rows predict tokens; value: one with those rows.
struct TokenSlots {
    int value, ids, lengths, state, tally, total;
};

/// The rows of one member that predict a token.
template <class T>
struct TokenRows {
    const Bound& b;
    TokenSlots at;
    int member, positions;
    TokenLossParams params;
    LossTotal over;
    double share;  ///< of a token's gradient

    TokenRows(const Bound& bound, const TokenSlots& slots, int m)
        : b(bound),
          at(slots),
          member(m),
          positions(positions_of(bound[slots.value], bound[slots.lengths])),
          params(bound.params<TokenLossParams>()),
          over(token_total<T>(bound[slots.total], bound[slots.lengths], m, bound[slots.ids].cols)) {
        const auto scale = static_cast<double>(state_of(b[at.state], m).loss_scale);
        share = over.divisor > 0 ? params.scale / over.divisor * scale : 0;
    }

    [[nodiscard]] int tokens(int sequence) const { return tokens_of(b[at.lengths], member, sequence, b[at.ids].cols); }
    [[nodiscard]] int row(int sequence, int t) const { return sequence * positions + params.first + t; }
    [[nodiscard]] std::int32_t id(int sequence, int t) const { return b[at.ids].at<std::int32_t>(member, 0, sequence)[t]; }

    /// Adds found(row, id) of all rows, in order, to state and tally.
    template <class Found>
    void add_up(Found&& found) const {
        TokenSums sums;
        const int sequences = b[at.lengths].rows;
        for (int s = 0; s < sequences; ++s)
            sums.add_sequence(tokens(s), [&](int t) -> FoundToken { return found(row(s, t), id(s, t)); });
        sums.put(params, sequences, over, state_of(b[at.state], member),
                 b[at.tally].present() ? b[at.tally].at<T>(member) : nullptr, b.accumulates(at.tally));
    }
};

}  // namespace millrace::ops
