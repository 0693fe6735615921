#pragma once
// How many positions of a sequence are filled, and what the losses of tokens add up to (ops/text/text.h), on the host.

#include <algorithm>

#include "ops/loss/loss.h"
#include "ops/text/text.h"

namespace millrace::ops {

/// Tokens of one sequence, at most `most`.
inline int tokens_of(const tensor::Operand& lengths, int member, int sequence, int most) {
    return std::clamp(*lengths.at<std::int32_t>(member, 0, sequence), 0, most);
}

/// Positions of one sequence in a value over the positions of all of them.
inline int positions_of(const tensor::Operand& value, const tensor::Operand& lengths) {
    return lengths.rows == 0 ? 0 : value.rows / lengths.rows;
}

/// Tokens of all sequences of a member.
inline std::int64_t tokens_in(const tensor::Operand& lengths, int member, int most) {
    std::int64_t sum = 0;
    for (int b = 0; b < lengths.rows; ++b) sum += tokens_of(lengths, member, b, most);
    return sum;
}

/// The tokens that the loss of a member is a mean over, and the sequences: of the whole step where `total` is present.
template <class Stat>
LossTotal token_total(const tensor::Operand& total, const tensor::Operand& lengths, int member, int most) {
    return total_of<Stat>(total, member, static_cast<double>(tokens_in(lengths, member, most)), lengths.rows);
}

/// What a loss finds for one token.
struct FoundToken {
    double loss = 0;
    bool right = false, bad = false;
};

/// The sums over the tokens of one member; sequences are added in order.
struct TokenSums {
    double values[kTallyColumns] = {};
    bool bad = false;

    /// found(t): of token t.
    template <class Found>
    void add_sequence(int tokens, Found&& found) {
        int right = 0;
        for (int t = 0; t < tokens; ++t) {
            const FoundToken token = found(t);
            values[tally::loss] += token.loss;
            right += token.right ? 1 : 0;
            bad = bad || token.bad;
        }
        values[tally::tokens] += tokens;
        values[tally::right] += right;
        values[tally::whole] += tokens > 0 && right == tokens ? 1 : 0;
    }
    /// Into the member's state and, unless that is null, its tally.
    template <class Stat>
    void put(const TokenLossParams& params, int sequences, const LossTotal& over, MemberState& state, Stat* tally,
             bool add) const {
        const double mean = over.divisor > 0 ? values[tally::loss] / over.divisor : 0;
        if (params.as_loss) {
            state.loss += over.rows * mean;
            state.rows += static_cast<std::uint32_t>(sequences);
        } else {
            state.penalty += params.scale * mean;
        }
        if (bad) state.nonfinite = 1;
        for (int c = 0; tally != nullptr && c < kTallyColumns; ++c)
            tally[c] = static_cast<Stat>(add ? static_cast<double>(tally[c]) + values[c] : values[c]);
    }
};

}  // namespace millrace::ops
