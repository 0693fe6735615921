#include "report/diagnosis_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "base/version.h"
#include "plot/svg.h"
#include "report/doctor_words.h"
#include "report/html_page.h"
#include "report/html_sections.h"

namespace millrace::report {
namespace {

using diagnose::Diagnosis;
using diagnose::Owner;
using diagnose::Timeline;

std::string ring(double share) {
    constexpr double kRadius = 84, kRound = 2 * 3.14159265358979 * kRadius;
    const char* tone = share >= 0.9 ? "" : share >= 0.6 ? " middling" : " poor";
    return fmt::format(
        "<svg class=\"ring\" viewBox=\"0 0 200 200\" role=\"img\" aria-label=\"The GPU worked {0:.0f} percent of the "
        "time\"><circle class=\"way\" cx=\"100\" cy=\"100\" r=\"{1}\"/><circle class=\"part{2}\" cx=\"100\" cy=\"100\" r=\"{1}\" "
        "transform=\"rotate(-90 100 100)\" stroke-dasharray=\"{3:.2f} 1000\"/><text x=\"100\" y=\"108\" font-size=\"46\">{0:.0f} "
        "%</text><text class=\"small\" x=\"100\" y=\"132\" font-size=\"14\">GPU at work</text></svg>",
        100 * share, kRadius, tone, kRound * std::clamp(share, 0.0, 1.0));
}

/// What comes first, with what it would return.
std::string first_advice(const Diagnosis& diagnosis) {
    if (diagnosis.findings.empty())
        return diagnosis.healthy ? "<span class=\"first fine\"><b>A clean bill.</b> Nothing here is worth changing.</span>" : "";
    const diagnose::Finding& first = diagnosis.findings.front();
    std::string text = "<span class=\"first\"><b>Change this first:</b> <a href=\"#finding-1\">";
    text +=
        first.where && !first.where->file.empty() && !first.where->native
            ? plot::xml_text(first.where->line > 0 ? fmt::format("{} line {}", file_name(first.where->file), first.where->line)
                                                   : file_name(first.where->file))
            : plot::xml_text(title_of(first.kind));
    text += "</a>. ";
    const double speed = whole_step_ms(diagnosis), lost = first.lost_ms_per_step;
    if (lost > 0 && lost < speed)
        text += fmt::format("Up to {} of every step would come back: {} steps per second instead of {}.", milliseconds_text(lost),
                            base::print_figures(1000 / (speed - lost), 3), base::print_figures(1000 / speed, 3));
    return text + "</span>";
}

std::string hero(const Diagnosis& diagnosis) {
    if (diagnosis.steps == 0)
        return "<section class=\"card\"><h1>No training steps on a GPU were found</h1><p class=\"lead\">The recording holds no "
               "work on a GPU that returns step by step, so there is nothing to say about it.</p></section>\n";
    const double sum = diagnose::sum_of(diagnosis.breakdown_ms),
                 waits = std::max(0.0, sum - diagnose::busy_of(diagnosis.breakdown_ms));
    if (!std::isfinite(diagnosis.busy_share))
        return fmt::format(
            "<section class=\"card\"><h1>A training step takes {}.</h1><p class=\"lead\">How busy a GPU was is not "
            "measured.</p>{}</section>\n",
            step_text(diagnosis), first_advice(diagnosis));
    std::string text = "<section class=\"card hero\">" + ring(diagnosis.busy_share);
    text += fmt::format("<div><h1>{}.</h1><p class=\"lead\">A training {} takes {}{}. ", worked_text(diagnosis),
                        html_term("step", "step"), step_text(diagnosis), recorded_aside(diagnosis));
    if (waits > 0.01 * sum)
        text += fmt::format("During {} of it the GPU had nothing to do.", milliseconds_text(waits));
    else
        text += "The GPU has hardly a moment without work.";
    if (const auto busy = unrecorded_busy_text(diagnosis))
        text += fmt::format(" While nothing was recorded it worked about {} of the time.", *busy);
    if (const std::string evaluation = evaluation_text(diagnosis); !evaluation.empty()) text += " " + evaluation + ".";
    return text + "</p>" + first_advice(diagnosis) + "</div></section>\n";
}

std::string tile(const std::string& name, const std::string& value, const std::string& more) {
    return fmt::format("<div><dt>{}</dt><dd>{}{}</dd></div>\n", name, value, more.empty() ? "" : "<small>" + more + "</small>");
}

std::string tiles(const Diagnosis& diagnosis) {
    std::string text = "<dl class=\"tiles\">\n";
    const double step = diagnosis.undisturbed_step_ms.value_or(diagnosis.step_ms);
    if (diagnosis.steps > 0 && step > 0)
        text += tile("Speed", base::print_figures(1000 / whole_step_ms(diagnosis), 4),
                     diagnose::has_evaluation(diagnosis)                          ? "steps per second with evaluation"
                     : diagnosis.undisturbed_step_ms && diagnosis.step_ms != step ? "steps per second while nothing was recorded"
                                                                                  : "steps per second");
    if (diagnosis.steps > 0)
        text += tile("Looked at", base::print_count(diagnosis.steps), diagnosis.steps == 1 ? "step" : "steps");
    text += tile(
        "Recording cost", diagnosis.overhead_share ? fmt::format("{:.1f} %", 100 * *diagnosis.overhead_share) : "not measured",
        diagnosis.window_overhead_share ? fmt::format("of the run; {:.1f} % inside {}", 100 * *diagnosis.window_overhead_share,
                                                      html_term("window", "windows"))
        : diagnosis.overhead_share      ? "of the run"
                                        : "");
    text += tile("Lost records", base::print_count(diagnosis.dropped_records),
                 diagnosis.dropped_records == 0 ? "nothing is missing" : "the picture may be incomplete");
    return text + "</dl>\n";
}

std::string braces(double busy, double sum) {
    constexpr double kRoomForWords = 0.12;
    const auto brace = [](const char* name, double share, double ms) {
        if (share < 0.001) return std::string();
        return fmt::format("<span class=\"{}\" style=\"flex:{:.4f} 1 0\">{}</span>", name, share,
                           share < kRoomForWords ? "&nbsp;" : fmt::format("{} {}", name, milliseconds_text(ms)));
    };
    return "<div class=\"braces\" aria-hidden=\"true\">" + brace("works", busy / sum, busy) +
           brace("waits", 1 - busy / sum, sum - busy) + "</div>";
}

std::string breakdown(const Diagnosis& diagnosis) {
    const double sum = diagnose::sum_of(diagnosis.breakdown_ms);
    if (diagnosis.steps == 0 || !(sum > 0)) return {};
    constexpr double kShown = 0.0005;  // what is less rounds to 0.0 %
    std::string bar, rows;
    double x = 0;
    for (const Owner owner : owners_by_time(diagnosis.breakdown_ms, kShown * sum)) {
        const std::size_t at = index_of(owner);
        const double ms = diagnosis.breakdown_ms[at], width = 10'000 * ms / sum;
        const OwnerWords words = words_of(owner);
        bar += fmt::format(
            "<rect class=\"o{}\" x=\"{:.2f}\" width=\"{:.2f}\" height=\"10\"><title>{}: {}, {:.1f} %</title></rect>\n", at, x,
            width, words.label, milliseconds_text(ms), 100 * ms / sum);
        rows += fmt::format(
            "<tr><td class=\"owner\"><svg class=\"swatch\" aria-hidden=\"true\"><rect class=\"o{}\" width=\"14\" "
            "height=\"14\"/></svg><b>{}</b><small>{}</small></td><td class=\"num\">{}</td><td class=\"num\">{:.1f} %</td></tr>\n",
            at, words.label, words.meaning, milliseconds_text(ms), 100 * ms / sum);
        x += width;
    }
    return fmt::format(
        "<section aria-labelledby=\"where\"><h2 id=\"where\">Where a step goes</h2>\n<p class=\"soft\">An average {} of {}, from "
        "left to right: first what the {} did, then why it waited.</p>\n<div class=\"card\">{}<svg class=\"fill bar\" "
        "viewBox=\"0 0 10000 10\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"The table below as one "
        "bar\">{}</svg>\n<table><thead><tr><th scope=\"col\">What happened</th><th scope=\"col\" class=\"num\">Time</th><th "
        "scope=\"col\" class=\"num\">Share</th></tr></thead><tbody>\n{}</tbody></table></div></section>\n",
        html_term("step", "step"), milliseconds_text(sum), html_term("busy", "GPU"),
        braces(diagnose::busy_of(diagnosis.breakdown_ms), sum), bar, rows);
}

std::string kernels(const diagnose::KernelTable& table) {
    constexpr std::size_t kMost = 15;
    if (table.rows.empty()) return {};
    std::string text = fmt::format(
        "<section aria-labelledby=\"kernels\"><h2 id=\"kernels\">What the GPU computed</h2>\n<p class=\"soft\">{} by share of "
        "the GPU time that was recorded: {}. Waves are how often a launch fills the GPU.</p>\n<div "
        "class=\"card\"><table><thead><tr>",
        html_term("kernel", "Kernels"), tensor_text(table));
    for (const char* head : {"Kernel", "Line", "Type", "Tensor cores", "Waves", "Calls", "Share"})
        text += fmt::format("<th scope=\"col\"{}>{}</th>",
                            std::string_view("WCS").find(*head) != std::string_view::npos ? " class=\"num\"" : "", head);
    text += "</tr></thead><tbody>\n";
    for (std::size_t at = 0; at < std::min(kMost, table.rows.size()); ++at) {
        const KernelCells cells = cells_of(table, table.rows[at]);
        text += fmt::format(
            "<tr><td><code>{}</code></td><td>{}</td><td>{}</td><td>{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td><td "
            "class=\"num\">{}</td></tr>\n",
            plot::xml_text(plot::shortened(cells.name, 100)), plot::xml_text(cells.place), cells.type, cells.tensor, cells.waves,
            cells.calls, cells.share);
    }
    text += "</tbody></table>";
    for (std::size_t at = 0; at < std::min(kMost, table.chains.size()); ++at)
        text += (at == 0 ? "<p>Could be fused, as each reads and writes all elements anew:</p><ul class=\"remarks\">\n<li>"
                         : "<li>") +
                plot::xml_text(chain_text(table, table.chains[at])) + "</li>\n";
    return text + (table.chains.empty() ? "" : "</ul>") + "</div></section>\n";
}

/// What the worst step spent most of its surplus on.
std::string why_worse(const Diagnosis& diagnosis) {
    if (!diagnosis.typical || !diagnosis.worst) return {};
    std::size_t most = 0;
    const auto surplus = [&](std::size_t at) { return diagnosis.worst->ms[at] - diagnosis.typical->ms[at]; };
    for (std::size_t at = 1; at < diagnose::kOwners; ++at)
        if (surplus(at) > surplus(most)) most = at;
    if (!(surplus(most) > 0)) return {};
    return fmt::format(", {} more for: {}", milliseconds_text(surplus(most)), words_of(static_cast<Owner>(most)).label);
}

std::string steps(const Diagnosis& diagnosis, const Timeline& timeline) {
    if (!diagnosis.typical && !diagnosis.worst) return {};
    const auto length = [](const diagnose::StepView& step) { return milliseconds_text(diagnose::ms_of(step.end - step.begin)); };
    std::string text = fmt::format(
        "<section aria-labelledby=\"lens\"><h2 id=\"lens\">One step under the lens</h2>\n<p class=\"soft\">Time runs from left "
        "to right. The upper lane shows what ran on the GPU ({}, copies), the middle one what it waited for, the lower ones what "
        "the program asked for meanwhile, one for each thread: {} are purple, and where it is red the program itself waited for "
        "the GPU. Point at anything to read what it is. Drag to zoom in; or use the buttons, or the keys + &minus; 0 and the "
        "arrows.</p>\n<div class=\"steps\">\n",
        html_term("kernel", "kernels"), html_term("launch", "launches"));
    if (diagnosis.typical)
        text += html_step(*diagnosis.typical, timeline, "typical", "A typical step: " + length(*diagnosis.typical));
    if (diagnosis.worst)
        text +=
            html_step(*diagnosis.worst, timeline, "worst", "The worst step: " + length(*diagnosis.worst) + why_worse(diagnosis));
    return text + "</div></section>\n";
}

std::string ending(const Diagnosis& diagnosis) {
    const auto phrase = [](std::string text) {
        text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
        return text + ".";
    };
    std::string text = fmt::format(
        "<section aria-labelledby=\"measured\"><h2 id=\"measured\">How this was measured</h2>\n<div class=\"card\"><p>Everything "
        "is recorded in {}; in between only the speed is measured. What a cause costs is found by replaying the recording "
        "without it. {} {}</p>",
        html_term("window", "short windows"), phrase(overhead_text(diagnosis)), phrase(dropped_text(diagnosis)));
    if (const std::string run = run_text(diagnosis.run); !run.empty()) text += "<p>" + run + ".</p>";
    if (!diagnosis.remarks.empty()) {
        text += "<p>What the doctor could not tell, or wants you to know:</p><ul class=\"remarks\">\n";
        for (const std::string& remark : diagnosis.remarks) text += "<li>" + plot::xml_text(remark) + "</li>\n";
        text += "</ul>";
    }
    text += "</div></section>\n<section aria-labelledby=\"words\"><h2 id=\"words\">Words</h2>\n<dl class=\"glossary card\">\n";
    for (const GlossaryEntry& entry : glossary())
        text += fmt::format("<dt>{}</dt><dd id=\"g-{}\">{}</dd>\n", entry.term, entry.key, plot::xml_text(entry.meaning));
    return text + "</dl></section>\n";
}

}  // namespace

std::string diagnosis_html(const Diagnosis& diagnosis, const Timeline& timeline) {
    std::string body = "<a class=\"skip\" href=\"#main\">Skip to the report</a>\n";
    body += "<header class=\"top\"><b>Millrace doctor</b>";
    if (!diagnosis.title.empty()) body += "<code>" + plot::xml_text(plot::shortened(diagnosis.title, 300)) + "</code>";
    if (!diagnosis.device_name.empty()) body += "<span>" + plot::xml_text(diagnosis.device_name) + "</span>";
    body += "</header>\n<main id=\"main\">\n" + hero(diagnosis) + tiles(diagnosis) + html_findings(diagnosis) +
            breakdown(diagnosis) + kernels(diagnosis.kernels) + steps(diagnosis, timeline) + html_curves(timeline) +
            ending(diagnosis) + "</main>\n";
    body += fmt::format("<footer>Made by millrace {} from a recording. This file loads nothing from the network.</footer>\n",
                        plot::xml_text(base::version()));
    return html_page(diagnosis.title.empty() ? "Millrace doctor" : "Millrace doctor: " + plot::shortened(diagnosis.title, 80),
                     body);
}

}  // namespace millrace::report
