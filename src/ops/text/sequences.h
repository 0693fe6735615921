#pragma once
// How many positions of a sequence are filled (ops/text/text.h), on the host.

#include <algorithm>

#include "ops/op.h"

namespace millrace::ops {

/// Tokens of one sequence, at most `most`.
inline int tokens_of(const tensor::Operand& lengths, int member, int sequence, int most) {
    return std::clamp(*lengths.at<std::int32_t>(member, 0, sequence), 0, most);
}

/// Positions of one sequence in a value over the positions of all of them.
inline int positions_of(const tensor::Operand& value, const tensor::Operand& lengths) {
    return lengths.rows == 0 ? 0 : value.rows / lengths.rows;
}

}  // namespace millrace::ops
