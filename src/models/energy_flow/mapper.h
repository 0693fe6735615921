#pragma once
// From a sentence vector to energies on the middle plane, values in (-1, 1).

#include <vector>

#include "models/energy_flow/config.h"
#include "nn/dense.h"
#include "nn/layer_norm.h"

namespace millrace::models {

class Mapper {
public:
    Mapper() = default;
    /// compact: declares `mapper.*`, one linear layer and tanh. deep: `mapper.0` to `mapper.8`, three linear layers E -> 2S -> 2S
    /// -> S (at least 384 in between), GELU, LayerNorm and dropout behind the first two, tanh behind the last. Both start with
    /// energies of about 0.02: the carrier must not learn to cancel large ones before the mapper learns to aim.
    Mapper(tape::Store& store, const EnergyFlowConfig& config);

    /// vectors real [K,1,B,E] -> energies real [K,1,B,S].
    tape::Value forward(tape::Builder& builder, const tape::Value& vectors) const;
    [[nodiscard]] std::int64_t parameters() const { return parameters_; }

private:
    struct Stage {
        nn::Dense linear;
        nn::LayerNorm norm;
        float dropout = 0;
    };
    std::vector<Stage> stages_;  ///< before the last layer; none when compact
    nn::Dense last_;
    std::int64_t parameters_ = 0;
};

}  // namespace millrace::models
