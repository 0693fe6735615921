#pragma once
// What layers append to gradients.

#include <string>

#include "ops/dense/dense.h"
#include "tape/record.h"

namespace millrace::nn {

using tape::record_of;
using tape::Slot;

/// Adds the sums over the rows of `in` [K,G,B,C] to a gradient [K,G,1,C].
inline void append_column_sum(tape::Builder& builder, const tensor::View& in, const Slot& sums, const std::string& layer) {
    builder.append_weight_gradient(record_of(&ops::column_sum::kDef, ops::ColumnSumParams{}, layer, {in, sums}));
}

/// Adds dz^T x to a weight's gradient.
inline void append_weight_product(tape::Builder& builder, const tensor::View& dz, const tensor::View& x, const Slot& dw,
                                  const std::string& layer) {
    builder.append_weight_gradient(record_of(&ops::linear_wgrad::kDef, ops::LinearGradParams{}, layer, {dz, x, dw}));
}

/// Where a loss writes the gradient of `value`; a value has one loss. Left out in evaluation programs.
inline Slot only_loss_of(tape::Builder& builder, const tape::Value& value) {
    if (!builder.training()) return {};
    const tape::Builder::Target target = builder.gradient_target(value);
    MILLRACE_ASSERT(!target.accumulate, "a value has a second loss");
    return target;
}

}  // namespace millrace::nn
