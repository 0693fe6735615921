#pragma once
// The checks that all operators over sequences share (ops/text/text.h).

#include "ops/cpu/kernel.h"
#include "ops/text/sequences.h"

namespace millrace::ops::cpu {

/// One length per sequence, and `value` has whole sequences with room for the prefix.
inline Checker& require_positions(Checker& check, int slot, const tensor::Operand& lengths, const tensor::Operand& value,
                                  int prefix) {
    check.require(slot, tensor::DType::i32, value.k, 1, lengths.rows, 1);
    const int positions = positions_of(value, lengths);
    check.that(positions * lengths.rows == value.rows, "the rows are not the same number of positions for every sequence");
    return check.that(prefix >= 0 && (positions >= prefix || lengths.rows == 0),
                      "a sequence has fewer positions than the prefix");
}

}  // namespace millrace::ops::cpu
