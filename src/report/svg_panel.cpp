#include "report/svg_panel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plot/svg.h"

namespace millrace::report {
namespace {

constexpr double kTitleRoom = 38, kLetterWidth = 6.5, kKeyRoom = 30;  ///< of the legend's font, a guess that need not be right

/// Maps ticks and values to the drawing.
struct Frame {
    double top = 0;  ///< of the plot's area
    double ticks = 1;
    double high = 100;

    [[nodiscard]] double x(double tick) const { return kPlotLeft + kPlotWidth * std::clamp(tick / ticks, 0.0, 1.0); }
    [[nodiscard]] double y(double value) const { return top + kPanelPlotHeight * (1 - std::clamp(value / high, 0.0, 1.0)); }
};

std::string point(double x, double y) { return fmt::format("{:.1f},{:.1f} ", x, y); }

/// Columns that hold values and belong together: the range of each as a band, their means as a line.
std::string run_of(const Trace& trace, const std::vector<std::size_t>& run, const Frame& frame) {
    const auto columns = trace.columns();
    const auto width = static_cast<double>(trace.ticks_per_column());
    const auto middle = [&](std::size_t at) { return frame.x((static_cast<double>(at) + 0.5) * width - 0.5); };
    const Trace::Column& first = columns[run.front()];
    if (run.size() == 1 && first.low == first.high)
        return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"1.6\"/>", middle(run.front()), frame.y(first.mean()));
    std::string text;
    if (std::any_of(run.begin(), run.end(), [&](std::size_t at) { return columns[at].high > columns[at].low; })) {
        text += "<polygon points=\"";
        for (const std::size_t at : run) text += point(middle(at), frame.y(columns[at].high));
        if (run.size() == 1) text += point(middle(run.front()) + 1, frame.y(first.high));
        for (auto at = run.rbegin(); at != run.rend(); ++at) text += point(middle(*at), frame.y(columns[*at].low));
        text += "\"/>";
    }
    text += "<polyline points=\"";
    for (const std::size_t at : run) text += point(middle(at), frame.y(columns[at].mean()));
    if (run.size() == 1) text += point(middle(run.front()) + 1, frame.y(first.mean()));
    return text + "\"/>";
}

std::string trace_elements(const PanelSeries& series, const TimeAxis& time, const Frame& frame) {
    const Trace& trace = *series.trace;
    const auto columns = trace.columns();
    const auto period = static_cast<std::uint64_t>(std::max<std::int64_t>(time.interval.count(), 1)) * trace.ticks_per_column();
    const auto reach = 1 + static_cast<std::size_t>(static_cast<std::uint64_t>(series.every.count()) / period);
    std::string text;
    std::vector<std::size_t> run;
    for (std::size_t at = 0; at < columns.size(); ++at) {
        if (columns[at].count == 0) continue;
        if (!run.empty() && at - run.back() > reach) {
            text += run_of(trace, run, frame);
            run.clear();
        }
        run.push_back(at);
    }
    return run.empty() ? text : text + run_of(trace, run, frame);
}

std::string value_axis(double high, const std::string& unit, double x, const char* anchor, const Frame& frame, bool grid) {
    std::string text;
    const double step = plot::axis_step(high);
    for (int at = 0; at * step <= high * 1.0001; ++at) {
        const double value = at * step, y = frame.y(value);
        if (grid) text += fmt::format("<path class=\"grid\" d=\"M{} {:.1f}h{}\"/>", kPlotLeft, y, kPlotWidth);
        text += plot::text_at(x, y + 3.5, "axis", anchor, fmt::format("{:g}", value));
    }
    return text + plot::text_at(x, frame.top - 8, "axis", anchor, unit);
}

/// Steps people count time in.
double time_step(double seconds) {
    for (const double step : {0.01, 0.02,  0.05,  0.1,   0.2,   0.5,    1.0,    2.0,    5.0,     10.0,    15.0,    30.0,
                              60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0, 21600.0, 43200.0, 86400.0})
        if (seconds / step <= 10) return step;
    return 86400 * std::ceil(seconds / 864000);
}

std::string time_text(double seconds, double step) {
    if (step >= 3600) return fmt::format("{:g} h", seconds / 3600);
    if (step >= 60) return fmt::format("{:g} min", seconds / 60);
    return fmt::format("{:g} s", seconds);
}

std::string time_axis(const TimeAxis& time, const Frame& frame, bool labels) {
    std::string text;
    const double seconds = time.seconds();
    if (!(seconds > 0))
        return labels ? plot::text_at(kPlotLeft, frame.top + kPanelPlotHeight + 16, "axis", "middle", "0 s") : text;
    const double step = time_step(seconds);
    for (int at = 0; at * step <= seconds * 1.0001; ++at) {
        const double x = kPlotLeft + kPlotWidth * std::min(at * step / seconds, 1.0);
        text += fmt::format("<path class=\"grid\" d=\"M{:.1f} {:.1f}v{}\"/>", x, frame.top, kPanelPlotHeight);
        if (labels) text += plot::text_at(x, frame.top + kPanelPlotHeight + 16, "axis", "middle", time_text(at * step, step));
    }
    return text;
}

/// Of the whole legend, keys and spaces included.
double legend_width(const std::vector<std::string>& labels) {
    double width = 0;
    for (const std::string& label : labels) width += kLetterWidth * static_cast<double>(label.size()) + kKeyRoom;
    return width;
}

std::string legend(const Panel& panel, double y) {
    std::vector<std::string> labels, names;
    for (const PanelSeries& series : panel.series) {
        const std::string& unit = series.right ? panel.right_unit : panel.left_unit;
        names.push_back(series.label);
        labels.push_back(series.trace->empty() ? series.label + ": no reading"
                                               : fmt::format("{} (mean {:.1f} {})", series.label, series.trace->mean(), unit));
    }
    if (legend_width(labels) > kPlotWidth + 40 - 8 * static_cast<double>(panel.title.size())) labels = names;
    std::string text;
    double x = kPlotLeft + kPlotWidth - legend_width(labels);
    for (std::size_t at = 0; at < labels.size(); ++at) {
        text += fmt::format("<g class=\"{}\"><path class=\"key\" d=\"M{:.1f} {:.1f}h14\"/></g>", panel.series[at].css_class, x,
                            y - 4);
        text += plot::text_at(x + 18, y, "legend", "start", labels[at]);
        x += kLetterWidth * static_cast<double>(labels[at].size()) + kKeyRoom;
    }
    return text;
}

}  // namespace

double TimeAxis::seconds() const {
    return ticks < 2 ? 0 : static_cast<double>(ticks - 1) * std::chrono::duration<double>(interval).count();
}

std::string svg_panel(const Panel& panel, const TimeAxis& time, double top, bool last) {
    Frame frame{top + kTitleRoom, std::max(1.0, static_cast<double>(time.ticks) - 1), panel.left_high};
    std::string text = plot::text_at(kPlotLeft - 40, top + 14, "title", "start", panel.title) + legend(panel, top + 14);
    text += time_axis(time, frame, last);
    text += value_axis(panel.left_high, panel.left_unit, kPlotLeft - 6, "end", frame, true);
    Frame right = frame;
    right.high = panel.right_high;
    if (!panel.right_unit.empty())
        text += value_axis(panel.right_high, panel.right_unit, kPlotLeft + kPlotWidth + 6, "start", right, false);
    for (const PanelSeries& series : panel.series)
        text +=
            fmt::format("<g class=\"{}\">{}</g>\n", series.css_class, trace_elements(series, time, series.right ? right : frame));
    return text;
}

}  // namespace millrace::report
