#pragma once
// One transformer layer over sequences (nn/text.h), norms first: h = x + attention(norm1(x)), y = h +
// linear2(gelu(linear1(norm2(h)))). With norms first a stack of layers wants one more nn::LayerNorm behind it.

#include <string>

#include "nn/dense.h"
#include "nn/layer_norm.h"
#include "nn/text.h"

namespace millrace::nn {

struct TransformerOptions {
    std::int32_t width = 256, heads = 8, inner = 512;  ///< width is a multiple of heads
    bool causal = false;                               ///< a position sees itself, those before it and the prefix
    float dropout = 0;                                 ///< of what the attention and the two linear layers add, in training
};

class TransformerLayer {
public:
    TransformerLayer() = default;
    /// Declares `<name>.norm1`, `.self_attn.in_proj` [3 width, width] (queries, keys, values), `.self_attn.out_proj`, `.norm2`,
    /// `.linear1` [inner, width], `.linear2`, each with `.weight` and `.bias`: PyTorch's nn.TransformerEncoderLayer but for the
    /// dot in `in_proj.weight`. Weights are drawn from U(+-1 / sqrt(in)).
    TransformerLayer(tape::Store& store, const std::string& name, const TransformerOptions& options);

    /// x [K,1,B*N,width] -> y of the same shape. Positions that are not filled hold finite numbers that reach nothing.
    tape::Value forward(tape::Builder& builder, const tape::Value& x, const Sequences& sequences) const;

    [[nodiscard]] const TransformerOptions& options() const { return options_; }

private:
    [[nodiscard]] tape::Value attend(tape::Builder& builder, const tape::Value& qkv, const Sequences& sequences) const;

    std::string name_;
    TransformerOptions options_;
    LayerNorm norm1_, norm2_;
    Dense in_, out_, widen_, narrow_;
};

}  // namespace millrace::nn
