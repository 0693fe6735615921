#pragma once
// The ways flows took through their cube, as a picture: self-contained SVG for light and dark pages.

#include <string>

#include "models/energy_flow/flow_trace.h"

namespace millrace::models {

/// The cube with what lies on its three planes and the paths of `flows` of the flows (all when there are fewer), seen from above
/// the front, from the front (x, z) and from the side (y, z). The flows are chosen evenly over the cells where they start; what a
/// chosen flow spawned comes with it.
std::string flows_svg(const FlowTrace& trace, std::int32_t flows);

}  // namespace millrace::models
