#pragma once
// One panel of a plot: a title, a legend, axes with units and the traces, as SVG elements.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "report/trace.h"

namespace millrace::report {

/// When ticks are, from left to right.
struct TimeAxis {
    std::uint64_t ticks = 0;
    std::chrono::nanoseconds interval{};
    [[nodiscard]] double seconds() const;
};

struct PanelSeries {
    std::string label;      ///< "SM active"
    std::string css_class;  ///< colour
    const Trace* trace = nullptr;
    bool right = false;                ///< measured on the right axis
    std::chrono::nanoseconds every{};  ///< it is read no more often than this: shorter stretches without a value are no gaps
};

struct Panel {
    std::string title, left_unit, right_unit;  ///< no right axis when its unit is empty
    double left_high = 100, right_high = 100;  ///< the axes begin at 0
    std::vector<PanelSeries> series;
};

constexpr double kPlotLeft = 56, kPlotWidth = 800, kPlotRight = 56, kPanelPlotHeight = 120, kPanelHeight = 176;

/// The panel with its upper edge at `top`; `last` draws the labels of the time axis too.
std::string svg_panel(const Panel& panel, const TimeAxis& time, double top, bool last);

}  // namespace millrace::report
