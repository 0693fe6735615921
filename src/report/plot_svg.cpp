#include "report/watch_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "plot/svg.h"

namespace millrace::report {
namespace {

/// When ticks are, from left to right.
struct TimeAxis {
    std::uint64_t ticks = 0;
    std::chrono::nanoseconds interval{};
    [[nodiscard]] double seconds() const {
        return ticks < 2 ? 0 : static_cast<double>(ticks - 1) * std::chrono::duration<double>(interval).count();
    }
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

constexpr double kTitleRoom = 38, kLetterWidth = 6.5, kKeyRoom = 30;  ///< of the legend's font, a guess that need not be right

/// Maps ticks and values to the drawing.
struct PlotArea {
    double top = 0;  ///< of the plot's area
    double ticks = 1;
    double high = 100;

    [[nodiscard]] double x(double tick) const { return kPlotLeft + kPlotWidth * std::clamp(tick / ticks, 0.0, 1.0); }
    [[nodiscard]] double y(double value) const { return top + kPanelPlotHeight * (1 - std::clamp(value / high, 0.0, 1.0)); }
};

std::string point(double x, double y) { return fmt::format("{:.1f},{:.1f} ", x, y); }

/// Columns that hold values and belong together: the range of each as a band, their means as a line.
std::string run_of(const Trace& trace, const std::vector<std::size_t>& run, const PlotArea& area) {
    const auto columns = trace.columns();
    const auto width = static_cast<double>(trace.ticks_per_column());
    const auto middle = [&](std::size_t at) { return area.x((static_cast<double>(at) + 0.5) * width - 0.5); };
    const Trace::Column& first = columns[run.front()];
    if (run.size() == 1 && first.low == first.high)
        return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"1.6\"/>", middle(run.front()), area.y(first.mean()));
    std::string text;
    if (std::any_of(run.begin(), run.end(), [&](std::size_t at) { return columns[at].high > columns[at].low; })) {
        text += "<polygon points=\"";
        for (const std::size_t at : run) text += point(middle(at), area.y(columns[at].high));
        if (run.size() == 1) text += point(middle(run.front()) + 1, area.y(first.high));
        for (auto at = run.rbegin(); at != run.rend(); ++at) text += point(middle(*at), area.y(columns[*at].low));
        text += "\"/>";
    }
    text += "<polyline points=\"";
    for (const std::size_t at : run) text += point(middle(at), area.y(columns[at].mean()));
    if (run.size() == 1) text += point(middle(run.front()) + 1, area.y(first.mean()));
    return text + "\"/>";
}

std::string trace_elements(const PanelSeries& series, const TimeAxis& time, const PlotArea& area) {
    const Trace& trace = *series.trace;
    const auto period = static_cast<std::uint64_t>(std::max<std::int64_t>(time.interval.count(), 1)) * trace.ticks_per_column();
    const auto reach = 1 + static_cast<std::size_t>(static_cast<std::uint64_t>(series.every.count()) / period);
    std::string text;
    for (const std::vector<std::size_t>& run : trace.stretches(reach)) text += run_of(trace, run, area);
    return text;
}

std::string value_axis(double high, const std::string& unit, double x, const char* anchor, const PlotArea& area, bool grid) {
    std::string text;
    const double step = plot::axis_step(high);
    for (int at = 0; at * step <= high * 1.0001; ++at) {
        const double value = at * step, y = area.y(value);
        if (grid) text += fmt::format("<path class=\"grid\" d=\"M{} {:.1f}h{}\"/>", kPlotLeft, y, kPlotWidth);
        text += plot::text_at(x, y + 3.5, "axis", anchor, fmt::format("{:g}", value));
    }
    return text + plot::text_at(x, area.top - 8, "axis", anchor, unit);
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

std::string time_axis(const TimeAxis& time, const PlotArea& area, bool labels) {
    std::string text;
    const double seconds = time.seconds();
    if (!(seconds > 0))
        return labels ? plot::text_at(kPlotLeft, area.top + kPanelPlotHeight + 16, "axis", "middle", "0 s") : text;
    const double step = time_step(seconds);
    for (int at = 0; at * step <= seconds * 1.0001; ++at) {
        const double x = kPlotLeft + kPlotWidth * std::min(at * step / seconds, 1.0);
        text += fmt::format("<path class=\"grid\" d=\"M{:.1f} {:.1f}v{}\"/>", x, area.top, kPanelPlotHeight);
        if (labels) text += plot::text_at(x, area.top + kPanelPlotHeight + 16, "axis", "middle", time_text(at * step, step));
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

/// The panel with its upper edge at `top`; `last` draws the labels of the time axis too.
std::string svg_panel(const Panel& panel, const TimeAxis& time, double top, bool last) {
    PlotArea area{top + kTitleRoom, std::max(1.0, static_cast<double>(time.ticks) - 1), panel.left_high};
    std::string text = plot::text_at(kPlotLeft - 40, top + 14, "title", "start", panel.title) + legend(panel, top + 14);
    text += time_axis(time, area, last);
    text += value_axis(panel.left_high, panel.left_unit, kPlotLeft - 6, "end", area, true);
    PlotArea right = area;
    right.high = panel.right_high;
    if (!panel.right_unit.empty())
        text += value_axis(panel.right_high, panel.right_unit, kPlotLeft + kPlotWidth + 6, "start", right, false);
    for (const PanelSeries& series : panel.series)
        text +=
            fmt::format("<g class=\"{}\">{}</g>\n", series.css_class, trace_elements(series, time, series.right ? right : area));
    return text;
}

constexpr std::size_t kLongestSubject = 80;
constexpr std::chrono::nanoseconds kActivityPeriod = std::chrono::milliseconds{100};  ///< the driver refreshes them that often
constexpr double kHeaderHeight = 72, kFooterHeight = 28;

constexpr const char* kPlotRules = R"(.grid{stroke:#e5e7eb;stroke-width:1;fill:none}.key{stroke-width:3}
polyline,.key{fill:none;stroke-linejoin:round}polyline{stroke-width:1.4}polygon{stroke:none;fill-opacity:.22}
.resident polyline,.resident .key,.other polyline,.other .key{stroke:#9ca3af}.resident polygon,.resident circle,.other polygon,.other circle{fill:#9ca3af}
.sm polyline,.sm .key,.cpu polyline,.cpu .key{stroke:#2563eb}.sm polygon,.sm circle,.cpu polygon,.cpu circle{fill:#2563eb}
.tensor polyline,.tensor .key,.heat polyline,.heat .key{stroke:#d97706}.tensor polygon,.tensor circle,.heat polygon,.heat circle{fill:#d97706}
.dram polyline,.dram .key,.tree polyline,.tree .key{stroke:#059669}.dram polygon,.dram circle,.tree polygon,.tree circle{fill:#059669}
.power polyline,.power .key,.ram polyline,.ram .key{stroke:#dc2626}.power polygon,.power circle,.ram polygon,.ram circle{fill:#dc2626}
)";
constexpr const char* kPlotDarkRules = R"(.grid{stroke:#2b3545}
.sm polyline,.sm .key,.cpu polyline,.cpu .key{stroke:#60a5fa}.sm polygon,.sm circle,.cpu polygon,.cpu circle{fill:#60a5fa}
.tensor polyline,.tensor .key,.heat polyline,.heat .key{stroke:#fbbf24}.tensor polygon,.tensor circle,.heat polygon,.heat circle{fill:#fbbf24}
.dram polyline,.dram .key,.tree polyline,.tree .key{stroke:#34d399}.dram polygon,.dram circle,.tree polygon,.tree circle{fill:#34d399}
.power polyline,.power .key,.ram polyline,.ram .key{stroke:#f87171}.power polygon,.power circle,.ram polygon,.ram circle{fill:#f87171})";

/// The first axis step at or above `high`.
double rounded_up(double high) {
    if (!(high > 0)) return 1;
    const double step = plot::axis_step(high);
    return step * std::ceil(high / step - 1e-9);
}

std::string gibibytes(const std::optional<double>& bytes) {
    return bytes ? fmt::format(" of {:.1f} GiB", *bytes / (1024.0 * 1024 * 1024)) : "";
}

Panel activity_panel(const std::string& name, const GpuTraces& traces, bool has_activity) {
    Panel panel{name + ": activity", "%", "", 100, 100, {{"kernel resident", "resident", &traces.utilization}}};
    if (!has_activity) return panel;
    panel.series.push_back({"DRAM", "dram", &traces.dram_active, false, kActivityPeriod});
    panel.series.push_back({"tensor", "tensor", &traces.tensor_active, false, kActivityPeriod});
    panel.series.push_back({"SM", "sm", &traces.sm_active, false, kActivityPeriod});
    return panel;
}

Panel power_panel(const std::string& name, const GpuTraces& traces, const sense::GpuFacts& facts) {
    const double limit = facts.power_limit_watts.value_or(0);
    const double most = traces.power_watts.empty() ? 0 : traces.power_watts.high();
    const double hottest = traces.temperature_celsius.empty() ? 0 : traces.temperature_celsius.high();
    return {name + ": power and temperature",
            "W",
            "\u00b0C",
            rounded_up(std::max({limit, most, 1.0})),
            std::max(100.0, rounded_up(hottest)),
            {{"power", "power", &traces.power_watts}, {"temperature", "heat", &traces.temperature_celsius, true}}};
}

Panel memory_panel(const WatchRecord& record) {
    const Traces& traces = record.traces();
    static constexpr const char* kColours[] = {"sm", "tensor", "dram", "other"};
    Panel panel{"Memory", "%", "", 100, 100, {}};
    for (std::size_t at = 0; at < traces.gpus.size(); ++at)
        panel.series.push_back(
            {traces.gpus.size() == 1 ? "VRAM" + gibibytes(record.facts().gpus[at].memory_total_bytes) : fmt::format("GPU {}", at),
             kColours[at % std::size(kColours)], &traces.gpus[at].memory});
    std::optional<double> total;
    if (const auto known = record.summary().of("ram/total_bytes")) total = known->maximum;
    panel.series.push_back({"RAM" + gibibytes(total), "ram", &traces.memory});
    return panel;
}

Panel cpu_panel(const WatchRecord& record) {
    const Traces& traces = record.traces();
    const int cores = record.facts().cores;
    Panel panel{fmt::format("CPU, {} core{}", cores, cores == 1 ? "" : "s"), "%", "", 100, 100, {}};
    panel.series.push_back({"busiest core", "other", &traces.busiest_core});
    panel.series.push_back({"all cores", "cpu", &traces.cpu});
    if (!traces.tree.empty()) panel.series.push_back({"watched processes", "tree", &traces.tree});
    return panel;
}

std::string shortened(const std::string& text) { return plot::shortened(text, kLongestSubject); }

std::string header(const WatchRecord& record, const std::string& subject) {
    const sense::MachineFacts& facts = record.facts();
    std::string second = fmt::format("{}{}{} samples every {}, {} missed", facts.host, facts.host.empty() ? "" : ", ",
                                     record.summary().samples(), base::exact_duration(record.interval()), record.missed());
    std::string third;
    for (const sense::GpuFacts& gpu : facts.gpus)
        third += fmt::format("{}GPU {} {}", third.empty() ? "" : ", ", gpu.index, gpu.name);
    if (facts.gpus.empty()) third = "no GPU: " + (facts.no_gpu.empty() ? "none is visible" : facts.no_gpu);
    return plot::text_at(16, 24, "head", "start", shortened(subject.empty() ? "The machine, watched" : subject)) +
           plot::text_at(16, 42, "", "start", shortened(second)) + plot::text_at(16, 58, "", "start", shortened(third)) + "\n";
}

}  // namespace

std::string plot_svg(const WatchRecord& record, const std::string& subject) {
    const Traces& traces = record.traces();
    std::vector<Panel> panels;
    for (std::size_t at = 0; at < traces.gpus.size(); ++at) {
        const sense::GpuFacts& facts = record.facts().gpus[at];
        const std::string number = fmt::format("GPU {}", at);
        panels.push_back(activity_panel(number, traces.gpus[at], facts.has_activity));
        panels.push_back(power_panel(number, traces.gpus[at], facts));
    }
    panels.push_back(memory_panel(record));
    panels.push_back(cpu_panel(record));

    const double width = kPlotLeft + kPlotWidth + kPlotRight;
    const double height = kHeaderHeight + kPanelHeight * static_cast<double>(panels.size()) + kFooterHeight;
    std::string svg = plot::svg_begin("millrace watch: " + shortened(subject), width, height, kPlotRules, kPlotDarkRules);
    svg += header(record, subject);
    const TimeAxis time{traces.ticks, record.interval()};
    for (std::size_t at = 0; at < panels.size(); ++at)
        svg += svg_panel(panels[at], time, kHeaderHeight + kPanelHeight * static_cast<double>(at), at + 1 == panels.size());
    return svg + "</svg>\n";
}

}  // namespace millrace::report
