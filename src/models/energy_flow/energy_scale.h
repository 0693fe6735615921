#pragma once
// Colours for energies: a diverging scale from blue (negative) to orange (positive), the same for all that one picture shows, as
// classes of a style sheet for light and dark pages.

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::models {

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
