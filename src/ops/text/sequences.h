#pragma once
// What all operators over sequences share (ops/text/text.h): how many positions are filled, on the host, and rules.

#include <algorithm>

#include "ops/check.h"
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

/// One length per sequence, and `value` has whole sequences of at least `least` positions.
inline Checker& check_positions(Checker& c, int value, int lengths, int least) {
    const Shape all = c.shape(value);
    const int sequences = c.shape(lengths).rows, positions = sequences == 0 ? 0 : all.rows / sequences;
    c.require({lengths}, Type::i32, {all.k, 1, sequences, 1});
    c.that(positions * sequences == all.rows, "the rows are not the same number of positions for every sequence");
    return c.that(positions >= least || sequences == 0, "a sequence has too few positions for the prefix and its tokens");
}

/// The same, and token t of `ids` belongs to position first + t.
inline Checker& check_tokens(Checker& c, int value, int ids, int lengths, int first) {
    const Shape tokens = c.shape(ids);
    c.require({ids}, Type::i32, {c.shape(value).k, 1, c.shape(lengths).rows, tokens.cols});
    return check_positions(c, value, lengths, first + tokens.cols).that(first >= 0, "the first position is below 0");
}

}  // namespace millrace::ops
