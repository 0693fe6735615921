#pragma once
// Linear layer with what usually follows it: y = dropout(act(norm(x w^T + bias))), for G layers of equal shape at once.
//
// Values between layers are [K,1,B,width]; G groups lie side by side as columns [K,1,B,G*width]. A layer with `shared_input`
// reads one x for all groups, so its G weights are one wide product; otherwise group g reads columns [g*in, (g+1)*in) of x.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/activation.h"
#include "tape/builder.h"

namespace millrace::nn {

/// Columns [begin, begin + width).
struct Columns {
    std::int32_t begin = 0, width = 0;
};

struct DenseOptions {
    std::int32_t in = 1, out = 1;
    bool bias = true;
    bool batch_norm = false;
    ops::Activation activation = ops::Activation::none;
    float dropout = 0;
    bool shared_input = false;
    float eps = 1e-5f, momentum = 0.1f;                    ///< of the norm
    std::optional<tape::Init> weight_init = std::nullopt;  ///< N(0, 2 / in) unless given
    tape::Init bias_init = tape::Init::value(0);
    tape::ParameterGroupNames parameter_groups = {};  ///< of what is trained: one for all, or one for each of the G layers
};

/// A plain layer that starts uniform within 1 / sqrt(in), as PyTorch's does, unless `init` says otherwise; biases start at 0.
DenseOptions linear(std::int32_t in, std::int32_t out, ops::Activation activation = ops::Activation::none,
                    std::optional<tape::Init> init = std::nullopt);

/// Where a forward call reads and writes when it is not the plain case.
struct DensePlacement {
    /// Write y here instead of into a new activation: [K,1,B,G*out], or [K,G,B,out] with any stride between groups.
    std::optional<tape::Value> into = std::nullopt;
    /// Only these columns of a group's input get a gradient (the rest is data).
    std::optional<Columns> gradient_columns = std::nullopt;
};

class Dense {
public:
    Dense() = default;
    /// Declares `<linear>.weight`, `<linear>.bias` for each of the G names in `linear`, and `<norm>.weight`, `.bias`,
    /// `.running_mean`,
    /// `.running_var` for each in `norm` (empty without batch_norm, else G names too).
    Dense(tape::Store& store, const std::vector<std::string>& linear, const std::vector<std::string>& norm,
          const DenseOptions& options);

    /// x [K,1,B,in] (shared input) or [K,1,B,G*in]. Appends the forward record and registers the backward rule; gives y
    /// [K,1,B,G*out] (or `into` as it came). The backward rule appends: dense_backward, the weight gradient, the input gradient.
    tape::Value forward(tape::Builder& builder, const tape::Value& x, const DensePlacement& placement = {}) const;

    [[nodiscard]] const DenseOptions& options() const { return options_; }
    [[nodiscard]] std::int32_t groups() const { return groups_; }
    [[nodiscard]] tape::ParameterId weight() const { return weight_; }
    [[nodiscard]] tape::ParameterId bias() const { return bias_; }

private:
    struct Call;
    [[nodiscard]] tensor::View matrix(const tensor::View& groups) const;
    [[nodiscard]] tensor::View vector(const tensor::View& groups) const;
    [[nodiscard]] tensor::View vector_of(const tape::Store& store, tape::ParameterId id) const;  ///< absent without one
    void backward(tape::Builder& builder, const Call& call, const tensor::View& dy) const;
    tensor::View append_dense_backward(tape::Builder& builder, const Call& call, const tensor::View& dy) const;

    DenseOptions options_;
    std::int32_t groups_ = 1;
    std::string label_;
    tape::ParameterId weight_ = tape::kNoParameter, bias_ = tape::kNoParameter;
    tape::ParameterId gamma_ = tape::kNoParameter, beta_ = tape::kNoParameter;
    tape::ParameterId mean_ = tape::kNoParameter, variance_ = tape::kNoParameter;
};

}  // namespace millrace::nn
