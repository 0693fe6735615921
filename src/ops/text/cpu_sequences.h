#pragma once
// How many places of a sequence are filled, and the checks that all operators of the text bridge share (ops/text/text.h).

#include <algorithm>

#include "ops/cpu/kernel.h"

namespace millrace::ops::cpu {

/// Tokens of one sequence, at most `most`.
inline int tokens_of(const tensor::Operand& lengths, int member, int sequence, int most) {
    return std::clamp(*lengths.at<std::int32_t>(member, 0, sequence), 0, most);
}

/// Places of one sequence in a value over the places of all of them.
inline int places_of(const tensor::Operand& value, const tensor::Operand& lengths) {
    return lengths.rows == 0 ? 0 : value.rows / lengths.rows;
}

/// One length per sequence, and `value` has whole sequences with room for the prefix.
inline Checker& require_places(Checker& check, int slot, const tensor::Operand& lengths, const tensor::Operand& value,
                               int prefix) {
    check.require(slot, tensor::DType::i32, value.k, 1, lengths.rows, 1);
    const int places = places_of(value, lengths);
    check.that(places * lengths.rows == value.rows, "the rows are not the same number of places for every sequence");
    return check.that(prefix >= 0 && (places >= prefix || lengths.rows == 0), "a sequence has fewer places than the prefix");
}

}  // namespace millrace::ops::cpu
