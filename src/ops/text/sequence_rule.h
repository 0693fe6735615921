#pragma once
// What the rules of all operators over sequences share (ops/text/text.h).

#include "ops/check.h"

namespace millrace::ops {

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
