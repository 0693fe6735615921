#include "report/html_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/units.h"
#include "diagnose/reading/machine_rows.h"
#include "plot/chart.h"
#include "plot/svg.h"
#include "report/trace.h"

namespace millrace::report {
namespace {

using diagnose::MachineSample;
using diagnose::Timeline;
using Read = std::function<std::optional<double>(const MachineSample&)>;

constexpr std::size_t kColumns = 400;

struct Curve {
    std::string label;
    Trace trace;
};

struct Span {
    diagnose::Time begin = 0, end = 0;
    [[nodiscard]] double seconds() const { return static_cast<double>(end - begin) * 1e-9; }
};

using Samples = std::span<const MachineSample>;

/// A tick of a curve is a column.
Curve curve_of(const std::string& label, Samples samples, const Span& span, std::size_t columns, const Read& read) {
    Curve curve{label, {}};
    const double length = std::max(1.0, static_cast<double>(span.end - span.begin));
    for (const MachineSample& sample : samples) {
        const double share = static_cast<double>(sample.time - span.begin) / length;
        const long at = std::lround(std::clamp(share, 0.0, 1.0) * static_cast<double>(columns - 1));
        curve.trace.add(static_cast<std::uint64_t>(at), read(sample));
    }
    return curve;
}

std::string paths(const Trace& trace, std::size_t count, std::size_t colour, double high) {
    const auto columns = trace.columns();
    const auto x = [&](std::size_t at) { return plot::kChartWidth * static_cast<double>(at) / static_cast<double>(count - 1); };
    const auto y = [&](double value) { return plot::kChartHeight * (1 - std::clamp(value / high, 0.0, 1.0)); };
    std::string line, area;
    std::vector<std::size_t> run;
    const auto finish = [&] {
        if (run.empty()) return;
        for (std::size_t i = 0; i < run.size(); ++i)
            line += fmt::format("{}{:.1f} {:.2f}", i == 0 ? "M" : "L", x(run[i]), y(columns[run[i]].mean()));
        if (run.size() == 1) line += "h1";
        for (std::size_t i = 0; i < run.size(); ++i)
            area += fmt::format("{}{:.1f} {:.2f}", i == 0 ? "M" : "L", x(run[i]), y(columns[run[i]].high));
        for (std::size_t i = run.size(); i > 0; --i)
            area += fmt::format("L{:.1f} {:.2f}", x(run[i - 1]), y(columns[run[i - 1]].low));
        area += "Z";
        run.clear();
    };
    // A hole of a few columns is the sampler's jitter, a longer one is a gap.
    constexpr std::size_t kReach = 4;
    for (std::size_t at = 0; at < columns.size(); ++at) {
        if (columns[at].count == 0) continue;
        if (!run.empty() && at - run.back() > kReach) finish();
        run.push_back(at);
    }
    finish();
    return fmt::format("<path class=\"area c{0}\" d=\"{1}\"/><path class=\"curve c{0}\" d=\"{2}\"/>", colour, area, line);
}

/// `high` 0: as high as the curves go.
std::string chart(const std::string& title, const std::string& unit, std::vector<Curve> curves, double high, std::size_t columns,
                  double seconds) {
    std::erase_if(curves, [](const Curve& curve) { return curve.trace.empty(); });
    if (curves.empty()) return {};
    for (const Curve& curve : curves) high = std::max(high, curve.trace.high());
    const double step = plot::axis_step(high);
    high = std::max(step * std::ceil(high / step - 1e-9), 1e-9);
    std::string keys = "<ul class=\"keys\">", drawn, said = title + ":";
    for (std::size_t at = 0; at < curves.size(); ++at) {
        drawn += paths(curves[at].trace, columns, at, high);
        keys += fmt::format("<li class=\"c{}\"><i></i><span>{}: {:.3g} {} on average</span></li>", at, curves[at].label,
                            curves[at].trace.mean(), unit);
        said += fmt::format(" {} {:.3g} {} on average, at most {:.3g}.", curves[at].label, curves[at].trace.mean(), unit,
                            curves[at].trace.high());
    }
    return plot::html_chart({title, keys + "</ul>", drawn, said, plot::time_axis(seconds), {0, high, false, unit}});
}

}  // namespace

std::string html_curves(const Timeline& timeline) {
    const Samples samples = diagnose::since_recorded(timeline);
    if (samples.empty()) return {};
    const Span span{samples.front().time, samples.back().time};
    const std::size_t columns = std::clamp<std::size_t>(samples.size(), 2, kColumns);
    const auto curve = [&](const char* label, const Read& read) { return curve_of(label, samples, span, columns, read); };
    const auto percent = [&](const char* label, std::optional<double> MachineSample::*member) {
        return curve(label, [member](const MachineSample& sample) {
            return sample.*member ? std::optional(100 * *(sample.*member)) : std::nullopt;
        });
    };
    std::string charts;
    charts += chart("How busy", "%",
                    {percent("a kernel was there", &MachineSample::gpu_utilization),
                     percent("multiprocessors at work", &MachineSample::sm_active),
                     percent("tensor cores at work", &MachineSample::tensor_active),
                     percent("processor (CPU)", &MachineSample::cpu_utilization)},
                    100, columns, span.seconds());
    const auto gibibytes = [](const std::optional<double>& bytes) {
        return bytes ? std::optional(*bytes / base::kGiB) : std::nullopt;
    };
    double total = 0;
    for (const MachineSample& sample : samples) total = std::max(total, gibibytes(sample.memory_total_bytes).value_or(0));
    charts +=
        chart("GPU memory", "GiB", {curve("in use", [&](const MachineSample& s) { return gibibytes(s.memory_used_bytes); })},
              total, columns, span.seconds());
    charts += chart("GPU power", "W", {curve("drawn", [](const MachineSample& s) { return s.power_watts; })}, 0, columns,
                    span.seconds());
    if (charts.empty()) return {};
    return "<section aria-labelledby=\"machine\"><h2 id=\"machine\">The machine while the program ran</h2>\n<p class=\"soft\">A "
           "kernel being there does not mean that the chip is full: compare it with the multiprocessors at work.</p>\n<div "
           "class=\"charts\">" +
           charts + "</div></section>\n";
}

}  // namespace millrace::report
