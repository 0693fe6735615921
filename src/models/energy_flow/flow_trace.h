#pragma once
// One sample followed through a cube of energy flows: what the model hands to the code that draws it. Positions are in [-1, 1]^3,
// the middle plane is z = 0, the outer planes z = 1 (above) and z = -1 (below). Grids are [height, width], row by row; cell (i,
// j) is around x = -1 + 2 i / (width - 1), y = -1 + 2 j / (height - 1).

#include <cstdint>
#include <string>
#include <vector>

#include "models/capabilities.h"

namespace millrace::models {

struct FlowPoint {
    double x = 0, y = 0, z = 0;
    double energy = 0;       ///< carried from here on
    std::int32_t walls = 0;  ///< that sent the flow back here; two in a corner
};

struct FlowPath {
    std::vector<FlowPoint> points;  ///< from where it began to where it stopped, points at walls included; never empty
    std::int32_t row = 0;           ///< of the flow table; a flow that started in a cell has that cell's number
    std::int32_t parent = -1;       ///< row of the flow that spawned it; -1: it started on the middle plane
    bool arrived = false;           ///< else it is projected from its last point
    bool above = true;              ///< the plane its energy was scattered to
    double deposited = 0;           ///< energy left there
};

struct FlowTrace : SampleInfo {
    std::int32_t width = 0, height = 0, depth = 0;
    std::int32_t steps = 0, steps_used = 0;
    std::vector<double> input;           ///< energies as the mapper put them on the middle plane
    std::vector<double> output, target;  ///< the surface, and what it is compared with
    std::vector<double> above, below;    ///< the surface's two parts, by the plane the flows ended on
    std::vector<FlowPath> paths;         ///< in row order
    double loss = 0;                     ///< mean squared difference between output and target
    /// Cosines in the teacher's space with the answer's vector: of the output and the input read back, and of the target read
    /// back, which is the most a surface of so many cells could reach.
    double output_cosine = 0, input_cosine = 0, target_cosine = 0;
    std::string input_text, target_text;  ///< empty where the data has none
};

}  // namespace millrace::models
