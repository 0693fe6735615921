#include "models/energy_flow/mapper.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "nn/pointwise.h"
#include "ops/activation.h"

namespace millrace::models {
namespace {

constexpr double kStart = 0.02;                 // energies of a new mapper
constexpr std::int32_t kNarrowestMapper = 384;  // of the deep mapper's first hidden layer

nn::DenseOptions normal(std::int32_t in, std::int32_t out, ops::Activation activation, double deviation) {
    return nn::linear(in, out, activation, tape::Init::normal(deviation));
}

}  // namespace

Mapper::Mapper(tape::Store& store, const EnergyFlowConfig& config) {
    const std::int64_t before = store.trainable_count();
    const std::int32_t cells = config.cells();
    if (config.mapper == MapperKind::compact) {
        last_ = nn::Dense(store, {"mapper"}, {}, normal(config.embedding, cells, ops::Activation::tanh, kStart));
    } else {
        const std::int32_t widths[] = {std::max(kNarrowestMapper, 2 * cells), 2 * cells};
        const float dropouts[] = {0.1f, 0.05f};
        std::int32_t in = config.embedding;
        // The names of a PyTorch Sequential: linear, GELU, norm, dropout.
        for (int i = 0; i < 2; ++i) {
            Stage stage;
            stage.linear = nn::Dense(store, {fmt::format("mapper.{}", 4 * i)}, {},
                                     normal(in, widths[i], ops::Activation::gelu, 1 / std::sqrt(3.0 * in)));
            stage.norm = nn::LayerNorm(store, fmt::format("mapper.{}", 4 * i + 2), widths[i]);
            stage.dropout = dropouts[i];
            stages_.push_back(stage);
            in = widths[i];
        }
        // Its input has length sqrt(in), a sentence vector length 1.
        last_ = nn::Dense(store, {"mapper.8"}, {},
                          normal(in, cells, ops::Activation::tanh, kStart / std::sqrt(static_cast<double>(in))));
    }
    parameters_ = store.trainable_count() - before;
}

tape::Value Mapper::forward(tape::Builder& builder, const tape::Value& vectors) const {
    tape::Value x = vectors;
    for (const Stage& stage : stages_) {
        x = stage.norm.forward(builder, stage.linear.forward(builder, x));
        if (builder.training()) x = nn::pointwise(builder, x, {ops::Activation::none, stage.dropout}, "mapper dropout");
    }
    return last_.forward(builder, x);
}

}  // namespace millrace::models
