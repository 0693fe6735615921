#pragma once
// Normalises each row of x over its columns, then scales and shifts: x [K,1,B,C], or G of them side by side, [K,1,B,G*C], each
// with a norm of its own.

#include <string>
#include <vector>

#include "tape/builder.h"

namespace millrace::nn {

class LayerNorm {
public:
    LayerNorm() = default;
    /// Declares `<name>.weight` (ones) and `<name>.bias` (zeros), each [C], for each of the G names.
    LayerNorm(tape::Store& store, const std::vector<std::string>& names, std::int32_t cols,
              const tape::ParameterGroupNames& parameter_groups = {}, float eps = 1e-5f);
    LayerNorm(tape::Store& store, const std::string& name, std::int32_t cols) : LayerNorm(store, std::vector{name}, cols) {}
    /// Of x, or of x + residual.
    tape::Value forward(tape::Builder& builder, const tape::Value& x, const tape::Value& residual = {}) const;

private:
    std::string label_;
    std::int32_t groups_ = 1;
    float eps_ = 1e-5f;
    tape::ParameterId gamma_ = tape::kNoParameter, beta_ = tape::kNoParameter;
};

}  // namespace millrace::nn
