#include "report/html_sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/units.h"
#include "diagnose/reading/machine_rows.h"
#include "diagnose/reading/source_file.h"
#include "plot/chart.h"
#include "plot/svg.h"
#include "report/doctor_words.h"
#include "report/html_page.h"
#include "report/trace.h"

namespace millrace::report {
namespace {

constexpr int kLinesAround = 3;

/// What all lines are indented by says nothing, and narrow screens have no room for it.
void take_margin_off(std::vector<SourceLine>& lines) {
    std::size_t margin = std::string::npos;
    for (const SourceLine& line : lines) margin = std::min(margin, line.text.find_first_not_of(' '));
    for (SourceLine& line : lines) line.text.erase(0, std::min(margin, line.text.size()));
}

std::string quote(const diagnose::Frame& where) {
    std::vector<SourceLine> lines = quote_source(where, kLinesAround);
    if (lines.empty()) return {};
    take_margin_off(lines);
    std::string text =
        fmt::format("<div class=\"quote\" tabindex=\"0\" role=\"region\" aria-label=\"Source around line {}\"><pre>", where.line);
    for (const SourceLine& line : lines)
        text += fmt::format("<span class=\"row{}\"><span class=\"n\">{}</span>{}\n</span>", line.hit ? " hit" : "", line.number,
                            plot::xml_text(line.text));
    return text + "</pre></div>\n";
}

/// Text with code where it has backticks.
std::string html_phrase(std::string_view text) {
    std::string out;
    for (const PhrasePart& part : phrase_parts(text))
        out += part.code ? "<code>" + plot::xml_text(part.text) + "</code>" : plot::xml_text(part.text);
    return out;
}

std::string stack(const diagnose::Stack& frames) {
    if (frames.empty()) return {};
    std::string text = "<details><summary>How the program came there</summary><ol class=\"stack\">\n";
    for (const diagnose::Frame& frame : frames) text += "<li><code>" + plot::xml_text(place_text(frame)) + "</code></li>\n";
    return text + "</ol></details>\n";
}

/// "almost certain" and the like: what a share of certainty means to people.
std::string_view confidence_words(double confidence) {
    return confidence >= 0.9 ? "almost certain" : confidence >= 0.7 ? "likely" : confidence >= 0.5 ? "probable" : "a guess";
}

std::string facts(const diagnose::Finding& finding) {
    std::string text = "<div class=\"facts\">";
    if (finding.gain_upper_bound) {
        text += fmt::format("<span>{} at most <b>{:.1f} %</b> of a step", html_term("gain", "Possible gain"),
                            100 * *finding.gain_upper_bound);
        if (!finding.assumption.empty()) text += ", if " + html_phrase(finding.assumption);
        text += "</span>";
    }
    return text + fmt::format("<span>{} <b>{:.0f} %</b> ({})</span></div>\n", html_term("confidence", "Confidence"),
                              100 * finding.confidence, confidence_words(finding.confidence));
}

std::string lost(const diagnose::Finding& finding, double share) {
    if (!(finding.lost_ms_per_step > 0)) return "<div></div>";
    std::string text = fmt::format("<div class=\"lost\"><b>{}</b><span>{} per step", milliseconds_text(finding.lost_ms_per_step),
                                   html_term("lost", "lost"));
    if (share > 0) text += fmt::format(", {:.1f} %", 100 * share);
    return text + "</span></div>";
}

std::string card(std::size_t rank, const diagnose::Finding& finding, double share) {
    std::string text = fmt::format(
        "<article class=\"card finding {}\" id=\"finding-{}\">\n<header><span class=\"rank\" "
        "aria-hidden=\"true\">{}</span><div><h3>{}</h3><div class=\"chips\"><span class=\"chip severity\">{}</span><span "
        "class=\"chip\">{}</span>",
        name_of(finding.severity), rank, rank, title_of(finding.kind), name_of(finding.severity), name_of(finding.kind));
    text += "<code class=\"where\">" + plot::xml_text(place_text(finding)) + "</code></div></div>" + lost(finding, share) +
            "</header>\n<div class=\"inside\">\n";
    if (!finding.what.empty()) text += "<p>" + html_phrase(finding.what) + "</p>\n";
    if (finding.where) text += quote(*finding.where);
    if (!finding.fix.empty()) text += "<div class=\"fix\"><b>What to do</b>" + html_phrase(finding.fix) + "</div>\n";
    text += facts(finding);
    if (!finding.evidence.empty())
        text += "<details><summary>What this rests on</summary><p>" + html_phrase(finding.evidence) + "</p></details>\n";
    return text + stack(finding.stack) + "</div>\n</article>\n";
}

constexpr std::size_t kMostLine = 200;

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
    constexpr std::size_t kReach = 4;  // a hole of a few columns is the sampler's jitter
    for (const std::vector<std::size_t>& run : trace.stretches(kReach)) {
        for (std::size_t i = 0; i < run.size(); ++i)
            line += fmt::format("{}{:.1f} {:.2f}", i == 0 ? "M" : "L", x(run[i]), y(columns[run[i]].mean()));
        if (run.size() == 1) line += "h1";
        for (std::size_t i = 0; i < run.size(); ++i)
            area += fmt::format("{}{:.1f} {:.2f}", i == 0 ? "M" : "L", x(run[i]), y(columns[run[i]].high));
        for (std::size_t i = run.size(); i > 0; --i)
            area += fmt::format("L{:.1f} {:.2f}", x(run[i - 1]), y(columns[run[i - 1]].low));
        area += "Z";
    }
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

std::string html_findings(const diagnose::Diagnosis& diagnosis) {
    if (diagnosis.findings.empty()) return {};
    std::string text = fmt::format(
        "<section aria-labelledby=\"change\"><h2 id=\"change\">What to change</h2>\n<p class=\"soft\">{}</p>\n",
        diagnosis.findings.size() == 1 ? "One thing is worth changing."
                                       : fmt::format("{} things are worth changing; the one that returns most time comes first.",
                                                     diagnosis.findings.size()));
    for (std::size_t at = 0; at < diagnosis.findings.size(); ++at)
        text += card(at + 1, diagnosis.findings[at], lost_share(diagnosis, diagnosis.findings[at]));
    return text + "</section>\n";
}

std::vector<SourceLine> quote_source(const diagnose::Frame& where, int around) {
    if (where.line <= 0 || where.native) return {};
    const auto text = diagnose::read_source(where.file);
    if (!text) return {};
    std::vector<SourceLine> lines;
    int number = 1;
    bool seen = false;
    for (std::size_t at = 0; at < text->size() && number - around <= where.line; ++number) {
        const std::size_t end = std::min(text->find('\n', at), text->size());
        if (number >= where.line - around) {
            std::string line = text->substr(at, end - at);
            if (line.ends_with('\r')) line.pop_back();
            lines.push_back({number, plot::shortened(line, kMostLine), number == where.line});
            seen = seen || number == where.line;
        }
        at = end + 1;
    }
    if (!seen) return {};
    const auto blank = [](const SourceLine& line) { return line.text.find_first_not_of(" \t") == std::string::npos; };
    while (!lines.front().hit && blank(lines.front())) lines.erase(lines.begin());
    while (!lines.back().hit && blank(lines.back())) lines.pop_back();
    return lines;
}

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
