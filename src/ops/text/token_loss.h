#pragma once
// Losses of tokens from rows of logits, for the reference (T = double) and the CPU backend (T = float).

#include <cmath>

#include "ops/loss/loss.h"
#include "ops/text/sequences.h"

namespace millrace::ops {

/// What a loss finds for one token.
struct FoundToken {
    double loss = 0;
    bool right = false, bad = false;
};

/// Of a row of `count` logits about token `id`, by host::Loops<T>. gradient: null, or gets that of the loss times `share`; it may
/// be the logits.
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
    int member, sequences, positions;
    TokenLossParams params;
    LossTotal over;  ///< tokens and sequences
    double share;    ///< of a token's gradient

    TokenRows(const Bound& bound, const TokenSlots& slots, int m)
        : b(bound),
          at(slots),
          member(m),
          sequences(bound[slots.lengths].rows),
          positions(positions_of(bound[slots.value], bound[slots.lengths])),
          params(bound.params<TokenLossParams>()) {
        std::int64_t own = 0;
        for (int s = 0; s < sequences; ++s) own += tokens(s);
        over = total_of<T>(b[at.total], m, static_cast<double>(own), sequences);
        const auto scale = static_cast<double>(state_of(b[at.state], m).loss_scale);
        share = over.divisor > 0 ? params.scale / over.divisor * scale : 0;
    }

    [[nodiscard]] int tokens(int sequence) const { return tokens_of(b[at.lengths], member, sequence, b[at.ids].cols); }
    [[nodiscard]] int row(int sequence, int t) const { return sequence * positions + params.first + t; }
    [[nodiscard]] std::int32_t id(int sequence, int t) const { return b[at.ids].at<std::int32_t>(member, 0, sequence)[t]; }

    /// Adds found(row, id) of all rows, in order, to state and tally.
    template <class Found>
    void add_up(Found&& found) const {
        double sums[kTallyColumns] = {};
        MemberState& state = state_of(b[at.state], member);
        for (int s = 0; s < sequences; ++s) {
            const int count = tokens(s);
            int right = 0;
            for (int t = 0; t < count; ++t) {
                const FoundToken token = found(row(s, t), id(s, t));
                sums[tally::loss] += token.loss;
                right += token.right ? 1 : 0;
                if (token.bad) state.nonfinite = 1;
            }
            sums[tally::tokens] += count;
            sums[tally::right] += right;
            sums[tally::whole] += count > 0 && right == count ? 1 : 0;
        }
        const double mean = over.divisor > 0 ? sums[tally::loss] / over.divisor : 0;
        if (params.as_loss) {
            state.loss += over.rows * mean;
            state.rows += static_cast<std::uint32_t>(sequences);
        } else {
            state.penalty += params.scale * mean;
        }
        T* out = b[at.tally].present() ? b[at.tally].at<T>(member) : nullptr;
        for (int c = 0; out != nullptr && c < kTallyColumns; ++c)
            out[c] = static_cast<T>(b.accumulates(at.tally) ? static_cast<double>(out[c]) + sums[c] : sums[c]);
    }
};

}  // namespace millrace::ops
