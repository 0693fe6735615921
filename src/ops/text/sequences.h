#pragma once
// How many places of a sequence are filled (ops/text/text.h).

#include <algorithm>

#include "ops/op.h"

namespace millrace::ops::ref {

/// Tokens of sequence `b`, at most `most`.
inline int tokens_of(const tensor::Operand& lengths, int member, int b, int most) {
    return std::clamp(*lengths.at<std::int32_t>(member, 0, b), 0, most);
}

/// Places of one sequence in a value over places of all of them.
inline int places_of(const tensor::Operand& value, const tensor::Operand& lengths) {
    return lengths.rows == 0 ? 0 : value.rows / lengths.rows;
}

}  // namespace millrace::ops::ref
