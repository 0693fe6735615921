#pragma once
// Layers without parameters: activation with dropout, and the sum of two values.

#include <string>

#include "ops/activation.h"
#include "tape/builder.h"

namespace millrace::nn {

struct PointwiseOptions {
    ops::Activation activation = ops::Activation::none;
    float dropout = 0;  ///< in training only
};

/// y = dropout(act(x)), shape of x ([K,1,B,C]).
tape::Value pointwise(tape::Builder& builder, const tape::Value& x, const PointwiseOptions& options, const std::string& name);

/// y = a + b, equal shapes [K,1,B,C]: the residual connection.
tape::Value add(tape::Builder& builder, const tape::Value& a, const tape::Value& b, const std::string& name);

}  // namespace millrace::nn
