#pragma once
// Transformer layers over sequences (nn/text.h): attention, then two linear layers, each with a residual and a layer norm.
//   norms first:  h = x + attention(norm1(x)),   y = h + linear2(gelu(linear1(norm2(h))))
//   norms behind: h = norm1(x + attention(x)),   y = norm2(h + linear2(gelu(linear1(h))))
// With norms first a stack of layers wants one more nn::LayerNorm behind it. G layers of equal shape stand side by side, each
// with columns of its own.

#include <string>
#include <vector>

#include "nn/dense.h"
#include "nn/layer_norm.h"
#include "nn/text.h"

namespace millrace::nn {

struct TransformerOptions {
    std::int32_t width = 256, heads = 8, inner = 512;  ///< width is a multiple of heads
    bool causal = false;                               ///< a position sees itself, those before it and the prefix
    float dropout = 0;                                 ///< of what the attention and the two linear layers add, in training
    bool norm_first = true;
    tape::ParameterGroupNames parameter_groups = {};  ///< of what is trained: one for all, or one for each of the G layers
};

class TransformerLayer {
public:
    TransformerLayer() = default;
    /// Declares `<name>.norm1`, `.self_attn.in_proj` [3 width, width] (queries, keys, values), `.self_attn.out_proj`, `.norm2`,
    /// `.linear1` [inner, width], `.linear2`, each with `.weight` and `.bias`, for each of the G names: PyTorch's
    /// nn.TransformerEncoderLayer but for the dot in `in_proj.weight`. Weights are drawn from U(+-1 / sqrt(in)).
    TransformerLayer(tape::Store& store, const std::vector<std::string>& names, const TransformerOptions& options);
    TransformerLayer(tape::Store& store, const std::string& name, const TransformerOptions& options)
        : TransformerLayer(store, std::vector{name}, options) {}

    /// x [K,1,B*N,G*width] -> y of the same shape. Positions that are not filled hold finite numbers that reach nothing.
    tape::Value forward(tape::Builder& builder, const tape::Value& x, const Sequences& sequences) const;

    [[nodiscard]] const TransformerOptions& options() const { return options_; }

private:
    [[nodiscard]] tape::Value attend(tape::Builder& builder, const tape::Value& qkv, const Sequences& sequences) const;

    std::string label_;
    std::int32_t groups_ = 1;
    TransformerOptions options_;
    LayerNorm norm1_, norm2_;
    Dense in_, out_, widen_, narrow_;
};

}  // namespace millrace::nn
