#pragma once
// What one sample left on the surface of its cube, as a picture: self-contained SVG for light and dark pages.

#include <string>

#include "models/energy_flow/flow_trace.h"

namespace millrace::models {

/// The input energies of the mapper, the surface the flows made of them, and the target, side by side on one scale.
std::string surface_svg(const FlowTrace& trace);

/// What the pictures of a sample begin with: the document's start with its style, a headline, and which sample of which model it
/// is, with its texts. Their height is kSampleHeader.
std::string sample_svg_begin(const FlowTrace& trace, const std::string& headline, double width, double height);
constexpr double kSampleHeader = 92;

}  // namespace millrace::models
