#include "models/energy_flow/energy_flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/orthonormal.h"
#include "nn/losses.h"

namespace millrace::models {
namespace {

constexpr std::uint32_t kMapStream = 0x6d617073;  // of the random numbers behind the isometry

double map_scale(const EnergyFlowConfig& config) { return config.surface_scale * std::sqrt(static_cast<double>(config.cells())); }

}  // namespace

std::vector<float> target_map(const EnergyFlowConfig& config, std::uint64_t seed) {
    std::vector<float> map = base::random_orthonormal(config.cells(), config.embedding, seed, kMapStream);
    const auto scale = static_cast<float>(map_scale(config));
    for (float& value : map) value *= scale;
    return map;
}

double cosine_ceiling(const EnergyFlowConfig& config) {
    return std::sqrt(static_cast<double>(std::min(config.cells(), config.embedding)) / config.embedding);
}

base::Status EnergyFlow::declare(tape::Store& store) {
    MILLRACE_TRY(validate(config_));
    nn::DenseOptions options;
    options.in = config_.embedding;
    options.out = config_.cells();
    options.activation = ops::Activation::tanh;
    options.weight_init = tape::Init::normal(0.02);
    mapper_ = nn::Dense(store, {"mapper"}, {}, options);
    cube_ = Cube(store, config_);
    return base::ok();
}

std::string EnergyFlow::spare_memory() {
    if (config_.recompute == Recompute::step) return {};
    config_.recompute = config_.recompute == Recompute::none ? Recompute::gates : Recompute::step;
    cube_.set_recompute(config_.recompute);
    return fmt::format("model.recompute = \"{}\"", name_of(config_.recompute));
}

void EnergyFlow::build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) {
    const tape::Value x = builder.activation(rows, config_.embedding, "vectors", false);
    const tensor::View goals = source.gather(builder, part, x.view);
    energies_ = mapper_.forward(builder, x);
    logits_ = cube_.forward(builder, energies_);
    nn::mse(builder, logits_, goals);
    if (builder.training()) builder.backward();
}

}  // namespace millrace::models
