#pragma once
// Convolution of maps with what usually follows it: y = dropout(relu(pool(conv(x) + bias))). A map of height x width positions
// with C channels is a row of a value [K,1,B,height*width*C], channels last.

#include <cstdint>
#include <optional>
#include <string>

#include "ops/conv/conv.h"
#include "tape/builder.h"

namespace millrace::nn {

struct ConvOptions {
    std::int32_t height = 1, width = 1, in = 1, out = 1;
    std::int32_t kernel_h = 3, kernel_w = 3;  ///< odd; the map is padded with zeros, so that it keeps its size
    std::int32_t pool_h = 1, pool_w = 1;      ///< of windows without overlap, of which the largest value is taken
    bool bias = true, relu = true;
    bool channels_first = false;  ///< of y, as PyTorch flattens a map for a linear layer
    float dropout = 0;
    std::optional<tape::Init> weight_init = std::nullopt;  ///< N(0, 2 / (kernel_h * kernel_w * out)) unless given
};

class Conv {
public:
    Conv() = default;
    /// Declares `<name>.weight` [out, in, kernel_h, kernel_w] and `<name>.bias`.
    Conv(tape::Store& store, std::string name, const ConvOptions& options);

    /// x [K,1,B,height*width*in] to y [K,1,B,pooled positions*out]. Registers the backward rule.
    tape::Value forward(tape::Builder& builder, const tape::Value& x) const;

private:
    ConvOptions options_;
    std::string name_;
    tape::ParameterId weight_ = tape::kNoParameter, bias_ = tape::kNoParameter;
};

}  // namespace millrace::nn
