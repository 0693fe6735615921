#include "plot/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plot/svg.h"

namespace millrace::plot {
namespace {

std::string tick_text(double value, double step, const std::string& unit) {
    if (std::abs(value) < step * 1e-9) value = 0;
    // As many figures as tell one tick from the next.
    const double figures = value == 0 ? 1 : std::floor(std::log10(std::abs(value))) - std::floor(std::log10(step)) + 2;
    const std::string text = fmt::format("{:.{}g}", value, static_cast<int>(std::clamp(figures, 6.0, 15.0)));
    return unit.empty() ? text : text + " " + unit;
}

}  // namespace

double Axis::share(double value) const {
    // Quotients of far ends overflow, differences of logarithms do not.
    const double part = is_log ? (std::log(std::max(value, low)) - std::log(low)) / (std::log(high) - std::log(low))
                               : (value - low) / (high - low);
    return std::clamp(part, 0.0, 1.0);
}

std::vector<Axis::Tick> Axis::ticks() const {
    std::vector<Tick> out;
    if (is_log) {
        const double decades = std::log10(high) - std::log10(low);
        const int every = std::max(1, static_cast<int>(std::ceil(decades / 6)));
        for (int power = static_cast<int>(std::ceil(std::log10(low) - 1e-9)) - 1; power <= std::log10(high) + 1e-9; ++power)
            for (const double factor : {1.0, 2.0, 5.0}) {
                if (factor > 1 && decades > 2) continue;
                if (factor == 1 && decades > 6 && power % every != 0) continue;
                const double value = factor * std::pow(10, power);
                if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9))
                    out.push_back({share(value), tick_text(value, value, unit)});
            }
        return out;
    }
    const double step = axis_step(high - low), first = std::ceil(low / step - 1e-6);
    for (int at = 0; (first + at) * step <= high + step * 1e-6 && at < 20; ++at) {
        const double value = (first + at) * step;
        out.push_back({share(value), tick_text(value, step, unit)});
    }
    return out;
}

Axis axis_over(std::span<const double> values, bool is_log) {
    constexpr double kFar = 1e300;  // a span between such ends is still a number
    double low = HUGE_VAL, high = -HUGE_VAL;
    for (const double value : values)
        if (std::isfinite(value)) {
            low = std::min(low, std::clamp(value, -kFar, kFar));
            high = std::max(high, std::clamp(value, -kFar, kFar));
        }
    if (low > high) return {};
    if (is_log && low > 0) return high > low * (1 + 1e-9) ? Axis{low, high, true, ""} : Axis{low / 2, high * 2, true, ""};
    if (!(high - low > 1e-13 * std::max(std::abs(low), std::abs(high)))) {  // closer than round numbers can be told apart
        const double room = low == 0 ? 1 : std::abs(low) / 10;
        low -= room;
        high += room;
    }
    const double step = axis_step(high - low);
    return {step * std::floor(low / step + 1e-9), step * std::ceil(high / step - 1e-9), false, ""};
}

Axis time_axis(double seconds) {
    const double unit = seconds >= 7200 ? 3600 : seconds >= 300 ? 60 : 1;
    return {0, seconds > 0 ? seconds / unit : 1, false, unit == 3600 ? "h" : unit == 60 ? "min" : "s"};
}

std::string html_chart(const Chart& chart) {
    std::string grid, values, ticks;
    for (const Axis::Tick& tick : chart.y.ticks()) {
        const double y = kChartHeight * (1 - tick.share);
        grid += fmt::format("<path class=\"grid\" d=\"M0 {:.2f}h{}\"/>", y, kChartWidth);
        values += fmt::format("<span style=\"top:{:.2f}%\">{}</span>", 100 * y / kChartHeight, xml_text(tick.label));
    }
    for (const Axis::Tick& tick : chart.x.ticks())
        ticks += fmt::format("<span{} style=\"left:{:.3f}%\">{}</span>",
                             tick.share > 0.96   ? " class=\"end\""
                             : tick.share < 0.04 ? " class=\"begin\""
                                                 : "",
                             100 * tick.share, xml_text(tick.label));
    return fmt::format(
        "<figure class=\"card chart\"><figcaption><h3>{}</h3>{}</figcaption><div class=\"plot\"><div class=\"values\" "
        "aria-hidden=\"true\">{}</div><svg viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" role=\"img\" "
        "aria-label=\"{}\">{}{}</svg><div></div><div class=\"ticks\" aria-hidden=\"true\">{}</div>{}</div></figure>\n",
        xml_text(chart.title), chart.keys, values, kChartWidth, kChartHeight, xml_text(chart.said), grid, chart.drawn, ticks,
        chart.x_label.empty()
            ? ""
            : fmt::format("<div></div><div class=\"below\" aria-hidden=\"true\">{}</div>", xml_text(chart.x_label)));
}

}  // namespace millrace::plot
