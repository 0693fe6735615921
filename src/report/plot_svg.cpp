#include "report/plot_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "plot/svg.h"
#include "report/svg_panel.h"

namespace millrace::report {
namespace {

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
