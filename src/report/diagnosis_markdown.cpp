#include "report/diagnosis_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "plot/svg.h"
#include "report/doctor_words.h"

namespace millrace::report {
namespace {

/// Text with code where it has backticks.
std::string markdown_phrase(std::string_view text) {
    std::string out;
    for (const PhrasePart& part : phrase_parts(text)) out += part.code ? markdown_code(part.text) : markdown_text(part.text);
    return out;
}

std::string markdown_breakdown(const diagnose::Diagnosis& diagnosis) {
    const double sum = diagnose::sum_of(diagnosis.breakdown_ms);
    std::string text = "\n## Where a step goes\n\n| | ms per step | share |\n|---|---:|---:|\n";
    for (const diagnose::Owner owner : owners_by_time(diagnosis.breakdown_ms)) {
        const double ms = diagnosis.breakdown_ms[index_of(owner)];
        text += fmt::format("| {} | {:.3f} | {:.1f} % |\n", words_of(owner).label, ms, 100 * ms / sum);
    }
    return text;
}

std::string markdown_kernels(const diagnose::KernelTable& table) {
    constexpr std::size_t kMost = 10;
    if (table.rows.empty()) return {};
    std::string text = fmt::format("\n## What the GPU computed\n\nKernels that were recorded, {}.\n\n", tensor_text(table));
    text += "| kernel | share | calls | type | tensor cores | waves | line |\n|---|---:|---:|---|---|---:|---|\n";
    for (std::size_t at = 0; at < std::min(kMost, table.rows.size()); ++at) {
        const KernelCells cells = cells_of(table, table.rows[at]);
        text += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", markdown_code(cells.name), cells.share, cells.calls,
                            cells.type, cells.tensor, cells.waves, markdown_text(cells.place));
    }
    for (std::size_t at = 0; at < std::min(kMost, table.chains.size()); ++at)
        text += (at == 0 ? "\nCould be fused:\n\n- " : "- ") + markdown_text(chain_text(table, table.chains[at])) + "\n";
    return text;
}

std::string finding(std::size_t rank, const diagnose::Finding& finding, double share) {
    std::string text =
        fmt::format("\n### {}. {}\n\n`{}`, {}, at {}", rank, title_of(finding.kind), name_of(finding.kind),
                    name_of(finding.severity), finding.where ? markdown_code(place_text(finding)) : place_text(finding));
    if (finding.lost_ms_per_step > 0) {
        text += fmt::format("\n\n**Loses {} per step", milliseconds_text(finding.lost_ms_per_step));
        text += share > 0 ? fmt::format(" ({:.1f} %)**", 100 * share) : "**";
    } else {
        text += "\n\n";
    }
    if (const std::string gain = gain_text(finding); !gain.empty())
        text += (finding.lost_ms_per_step > 0 ? "; " : "") + markdown_phrase(gain);
    text += fmt::format("; confidence {:.0f} %.\n", 100 * finding.confidence);
    if (!finding.what.empty()) text += "\n" + markdown_phrase(finding.what) + "\n";
    if (!finding.fix.empty()) text += "\n**Do:** " + markdown_phrase(finding.fix) + "\n";
    if (!finding.evidence.empty()) text += "\nEvidence: " + markdown_phrase(finding.evidence) + "\n";
    for (std::size_t at = 0; at < finding.stack.size(); ++at)
        text += (at == 0 ? "\n- " : "- ") + markdown_code(place_text(finding.stack[at])) + "\n";
    return text;
}

}  // namespace

std::string markdown_text(std::string_view text) {
    constexpr std::string_view kAlways = "\\`*_[]#|~$@", kAtTheStart = "+-=0123456789";
    const std::string escaped = plot::xml_text(text);
    std::string out;
    // A number or a dash makes a list only where a paragraph begins; elsewhere it is left as people write it.
    if (!escaped.empty() && kAtTheStart.find(escaped.front()) != std::string_view::npos) out += "&#8203;";
    for (std::size_t at = 0; at < escaped.size(); ++at) {
        const bool entity = escaped[at] == '#' && at > 0 && escaped[at - 1] == '&';
        if (!entity && kAlways.find(escaped[at]) != std::string_view::npos) out += '\\';
        out += escaped[at];
    }
    return out;
}

std::string markdown_code(std::string_view text) {
    // As HTML: a code span of backticks cannot hold every name, nor stand in every cell.
    std::string out = "<code>";
    for (const char byte : plot::xml_text(text)) {
        if (std::string_view("\\`*_[]|~$@").find(byte) != std::string_view::npos)
            out += fmt::format("&#{};", static_cast<int>(byte));
        else
            out += byte;
    }
    return out + "</code>";
}

std::string diagnosis_markdown(const diagnose::Diagnosis& diagnosis) {
    std::string text = "# What the GPU did\n\n";
    if (!diagnosis.title.empty()) text += markdown_code(diagnosis.title);
    if (!diagnosis.device_name.empty()) text += (diagnosis.title.empty() ? "" : " on ") + markdown_text(diagnosis.device_name);
    if (!diagnosis.title.empty() || !diagnosis.device_name.empty()) text += "\n\n";
    if (diagnosis.steps == 0) {
        text += "No training steps on a GPU were found, so there is nothing to say about them.\n";
    } else {
        text += "**" + worked_text(diagnosis) + "**: " + steps_text(diagnosis, step_text(diagnosis));
        const auto busy = unrecorded_busy_text(diagnosis), step = unrecorded_text(diagnosis);
        if (step)
            text += fmt::format(" ({}{} while nothing was recorded)", busy ? fmt::format("{} of the time, ", *busy) : "", *step);
        if (const std::string evaluation = evaluation_text(diagnosis); !evaluation.empty())
            text += fmt::format(". {}: {} steps per second", evaluation, base::print_figures(1000 / whole_step_ms(diagnosis), 3));
        text += ".\n" + (diagnose::sum_of(diagnosis.breakdown_ms) > 0 ? markdown_breakdown(diagnosis) : "");
    }
    if (!diagnosis.findings.empty()) text += "\n## What to change\n";
    for (std::size_t at = 0; at < diagnosis.findings.size(); ++at)
        text += finding(at + 1, diagnosis.findings[at], lost_share(diagnosis, diagnosis.findings[at]));
    if (diagnosis.healthy && diagnosis.findings.empty()) text += "\nNothing here is worth changing: a clean bill.\n";
    text += markdown_kernels(diagnosis.kernels);
    text += fmt::format("\n## How it was measured\n\n- {}\n- {}\n", overhead_text(diagnosis), dropped_text(diagnosis));
    if (const std::string run = run_text(diagnosis.run); !run.empty()) text += "- " + run + "\n";
    for (const std::string& remark : diagnosis.remarks) text += "- " + markdown_text(remark) + "\n";
    return text;
}

}  // namespace millrace::report
