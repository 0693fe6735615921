#pragma once
// A table of V rows of width C; index i32 [K,1,B,1] picks rows: y [K,1,B,C].

#include <string>

#include "tape/builder.h"

namespace millrace::nn {

class Embedding {
public:
    Embedding() = default;
    /// Declares `<name>.weight` [V, C], drawn from N(0, 1) as PyTorch does unless told otherwise.
    Embedding(tape::Store& store, std::string name, std::int32_t vocabulary, std::int32_t cols,
              tape::Init init = tape::Init::normal(1));
    /// An index outside [0, V) reads zeros and drops the step (state.nonfinite).
    tape::Value forward(tape::Builder& builder, const tensor::View& index) const;

private:
    std::string name_;
    std::int32_t cols_ = 0;
    tape::ParameterId table_ = tape::kNoParameter;
};

}  // namespace millrace::nn
