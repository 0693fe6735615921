#pragma once
// Sums of groups that stand side by side: a value that several layers read, the mean of what they answer.

#include <string>
#include <vector>

#include "models/k1/ops/mix.h"
#include "tape/builder.h"

namespace millrace::models {

/// y [K,1,B,groups*cols] from x [K,1,B,N*cols]: group m is the sum of weight * group n of x over the terms {m, n, weight}, which
/// are in ascending order of m.
tape::Value mix_groups(tape::Builder& builder, const tape::Value& x, std::int32_t cols, std::int32_t groups,
                       const std::vector<ops::MixTerm>& terms, const std::string& name);

}  // namespace millrace::models
