#pragma once
// How well surfaces say what the teacher says: cosine and retrieval in the teacher's space, beside what the mapper alone would
// have reached, and what the flows did meanwhile.

#include <array>
#include <cstdint>

#include "models/energy_flow/config.h"
#include "models/energy_flow/ops/flow.h"
#include "models/scoring.h"

namespace millrace::models {

/// Share of the rows of `found` [n, width] that no target but their own (row i of `targets` [n, width]) is nearer to by cosine.
/// Equal targets count as one; a row that is zero or not finite has found nothing. `targets` of length 1.
double retrieval_at_1(const std::vector<float>& found, const std::vector<float>& targets, std::size_t width);
/// Mean over the rows of the cosine between row i of both, [n, width]; rows of length 0 count as 0.
double mean_cosine(const std::vector<float>& found, const std::vector<float>& targets, std::size_t width);

class SurfaceScoring final : public Scoring {
public:
    /// Order of the tensors of a batch: [B,E] vectors read back from the surface and from the mapper's energies, [B,E] targets,
    /// [B,S] surface, energies and goals, [1,kFlowCounters] counters.
    enum Tensor { found, mapper_found, targets, surface, energies, goals, counters, tensors };

    explicit SurfaceScoring(const EnergyFlowConfig& config) : config_(config) {}
    void add(const std::vector<std::vector<double>>& batch) override;
    [[nodiscard]] Scored finish() const override;

private:
    EnergyFlowConfig config_;
    std::vector<float> found_, mapper_found_, targets_;  ///< [n, E]
    double mapper_loss_ = 0;                             ///< sum over rows
    double steps_ = 0;                                   ///< steps used, weighted by the batch's rows
    std::int64_t covered_ = 0, cells_ = 0;
    std::array<std::int64_t, ops::kFlowCounters> counters_{};
};

}  // namespace millrace::models
