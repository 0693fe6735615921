#pragma once
// From the flow tables of one sample to the ways its flows took and what they deposited where.

#include <vector>

#include "models/energy_flow/config.h"
#include "models/energy_flow/flow_trace.h"

namespace millrace::models {

/// `tables`: T + 1 flow tables [N,8], `moves`: what the T steps between them did, [N,8] (ops/flow.h), of a program without
/// noise. Rows that were never used have no path.
std::vector<FlowPath> flow_paths(const EnergyFlowConfig& config, const std::vector<std::vector<double>>& tables,
                                 const std::vector<std::vector<double>>& moves);

/// Scatters the energies of `paths` on the planes where they ended, both [S], as flow_scatter does on one surface.
void scatter_by_plane(const EnergyFlowConfig& config, const std::vector<FlowPath>& paths, std::vector<double>& above,
                      std::vector<double>& below);

}  // namespace millrace::models
