#pragma once
// One sample in its cube as pictures: self-contained SVG for light and dark pages.

#include <string>

#include "models/energy_flow/flow_trace.h"

namespace millrace::models {

/// The cube with what lies on its three planes and the paths of `flows` of the flows (all when there are fewer), seen from above
/// the front, from the front (x, z) and from the side (y, z). The flows are chosen evenly over the cells where they start; what a
/// chosen flow spawned comes with it.
std::string flows_svg(const FlowTrace& trace, std::int32_t flows);

/// The input energies of the mapper, the surface the flows made of them, and the target, side by side on one scale.
std::string surface_svg(const FlowTrace& trace);

/// What the pictures of a sample begin with: the document's start with its style, a headline, and which sample of which model it
/// is, with its texts. Their height is kSampleHeader.
std::string sample_svg_begin(const FlowTrace& trace, const std::string& headline, double width, double height);
constexpr double kSampleHeader = 92;

}  // namespace millrace::models
