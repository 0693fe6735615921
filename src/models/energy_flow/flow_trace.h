#pragma once
// One sample followed through a cube of energy flows: what the model hands to the code that draws it. Positions are in [-1, 1]^3,
// the middle plane is z = 0, the outer planes z = 1 (above) and z = -1 (below). Grids are [height, width], row by row; cell (i,
// j) is around x = -1 + 2 i / (width - 1), y = -1 + 2 j / (height - 1).
// The pictures are self-contained SVG for light and dark pages.
// Colours for energies: a diverging scale from blue (negative) to orange (positive), the same for all that one picture shows, as
// classes of a style sheet for light and dark pages.

#include <cstdint>
#include <string>
#include <vector>

#include "models/capabilities.h"
#include "models/energy_flow/config.h"

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

/// `tables`: T + 1 flow tables [N,8], `moves`: what the T steps between them did, [N,8] (ops/flow.h), of a program without
/// noise. Rows that were never used have no path.
std::vector<FlowPath> flow_paths(const EnergyFlowConfig& config, const std::vector<std::vector<double>>& tables,
                                 const std::vector<std::vector<double>>& moves);

/// Scatters the energies of `paths` on the planes where they ended, both [S], as flow_scatter does on one surface.
void scatter_by_plane(const EnergyFlowConfig& config, const std::vector<FlowPath>& paths, std::vector<double>& above,
                      std::vector<double>& below);

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

class EnergyScale {
public:
    static constexpr int kSide = 15;  ///< levels on each side of zero

    /// Reaches so far that one in a hundred of the finite values lies beyond it, rounded up; 1 when all are zero or none is
    /// finite.
    explicit EnergyScale(const std::vector<const std::vector<double>*>& values);

    [[nodiscard]] double limit() const { return limit_; }
    /// From 0 (-limit or less) over kSide (zero) to 2 kSide; -1 when `energy` is not finite.
    [[nodiscard]] int level(double energy) const;
    /// "f7" for lines and dots, which are never as pale as the paper; "bad" when `energy` is not finite.
    [[nodiscard]] std::string line_class(double energy) const;
    /// A bar of the colours with its ends and zero named, and, below, how many values lie beyond the ends or are not finite.
    /// `kind` is "e" or "f".
    [[nodiscard]] std::string legend(double x, double y, double width, const char* kind, const std::string& title) const;

private:
    double limit_ = 1;
    std::int64_t values_ = 0, beyond_ = 0, not_finite_ = 0;
};

/// Rules for the classes above, to stand in a <style>; `dark` for those of dark pages.
std::string energy_rules(bool dark);

/// A grid [height, width] as squares of side 1: cell (i, j) from (i, j) to (i + 1, j + 1). `inner` leaves out the half of the
/// outermost cells that lies beyond their middle, where the cube has its walls.
std::string energy_cells(const EnergyScale& scale, const std::vector<double>& cells, std::int32_t width, std::int32_t height,
                         bool inner);

}  // namespace millrace::models
