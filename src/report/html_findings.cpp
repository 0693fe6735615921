#include "report/html_findings.h"

#include <fmt/format.h>

#include <algorithm>

#include "plot/svg.h"
#include "report/doctor_words.h"
#include "report/html_page.h"
#include "report/source_quote.h"

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

}  // namespace

std::string file_name(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

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

}  // namespace millrace::report
