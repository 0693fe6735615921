#pragma once
// A chart of a page: an SVG that fills its card, with labels in HTML that keep their size.

#include <span>
#include <string>
#include <vector>

namespace millrace::plot {

/// From a value to its place along one side of a chart.
struct Axis {
    double low = 0, high = 1;  ///< low < high; above 0 when logarithmic
    bool is_log = false;
    std::string unit;  ///< behind each label; may be empty

    struct Tick {
        double share = 0;  ///< of the axis
        std::string label;
    };
    /// 0 at `low`, 1 at `high`; what is beyond is at the end.
    [[nodiscard]] double share(double value) const;
    /// Round values inside of the axis, few enough to read.
    [[nodiscard]] std::vector<Tick> ticks() const;
};

/// An axis with round ends over all finite values. Logarithmic only when all are above 0. 0 to 1 when there are none.
Axis axis_over(std::span<const double> values, bool is_log = false);

/// From 0 to `seconds`, in seconds, minutes or hours.
Axis time_axis(double seconds);

/// Of a chart's SVG, which is stretched to its place: strokes do not scale.
constexpr double kChartWidth = 1000, kChartHeight = 100;

struct Chart {
    std::string title;
    std::string keys;   ///< HTML: the legend
    std::string drawn;  ///< SVG in kChartWidth x kChartHeight
    std::string said;   ///< for those who do not see it
    Axis x, y;
    std::string x_label = "";  ///< below; may be empty
};

/// The chart as a figure. All texts are escaped, `keys` and `drawn` are not.
std::string html_chart(const Chart& chart);

}  // namespace millrace::plot
