#pragma once
// Normalises each row of x [K,1,B,C] over its columns, then scales and shifts.

#include <string>

#include "tape/builder.h"

namespace millrace::nn {

class LayerNorm {
public:
    LayerNorm() = default;
    /// Declares `<name>.weight` (ones) and `<name>.bias` (zeros), each [C].
    LayerNorm(tape::Store& store, std::string name, std::int32_t cols, float eps = 1e-5f);
    tape::Value forward(tape::Builder& builder, const tape::Value& x) const;

private:
    std::string name_;
    float eps_ = 1e-5f;
    tape::ParameterId gamma_ = tape::kNoParameter, beta_ = tape::kNoParameter;
};

}  // namespace millrace::nn
