#pragma once
// The energy flow model: a mapper lays a sentence vector on the middle plane as energy, the cube carries it to the surface, and
// the surface is compared with the answer's vector, mapped there by a frozen isometry.

#include "models/energy_flow/cube.h"
#include "models/model.h"
#include "nn/dense.h"

namespace millrace::models {

/// The frozen map from the teacher's space to the surface, [S, E] row-major: an isometry (an orthogonal projection when S < E)
/// times surface_scale * sqrt(S). Depends on the sizes and the seed alone.
std::vector<float> target_map(const EnergyFlowConfig& config, std::uint64_t seed);

/// The largest cosine a surface can reach: sqrt(min(S, E) / E) of a vector in general position.
double cosine_ceiling(const EnergyFlowConfig& config);

class EnergyFlow final : public Model {
public:
    /// `config` must be valid.
    explicit EnergyFlow(const EnergyFlowConfig& config) : config_(config) {}

    base::Status declare(tape::Store& store) override;
    /// The source gives vectors [rows, E] and, as what they are compared with, surfaces stat [K,1,rows,S].
    void build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) override;
    [[nodiscard]] bool single_member_only() const override { return true; }

    std::string spare_memory() override;

    [[nodiscard]] const EnergyFlowConfig& config() const { return config_; }
    [[nodiscard]] const Cube& cube() const { return cube_; }
    /// Of the last build: what the mapper laid on the middle plane, [K,1,rows,S].
    [[nodiscard]] const tape::Value& energies() const { return energies_; }

private:
    EnergyFlowConfig config_;
    nn::Dense mapper_;
    Cube cube_;
    tape::Value energies_;
};

}  // namespace millrace::models
