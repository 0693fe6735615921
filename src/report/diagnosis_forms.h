#pragma once
// The forms of a diagnosis, for people and for programs.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "diagnose/answer/diagnosis.h"
#include "diagnose/timeline/timeline.h"

namespace millrace::report {

struct TextOptions {
    bool colour = false;
    bool utf8 = true;  ///< bars of blocks; else of '#'
    bool all = false;  ///< every finding with evidence and stack, every remark; else what fits
    std::size_t width = 80, height = 24;
};

/// On a terminal: how busy the GPU was, where the rest of a step went, what to change first. Lines no wider than `width`; without
/// `all` at most `height` - 1 of them, so that the prompt fits too.
std::string diagnosis_text(const diagnose::Diagnosis& diagnosis, const TextOptions& options);

/// As Markdown, for a pull request or a wiki: tables as GitHub draws them. Nothing of the recording becomes markup.
std::string diagnosis_markdown(const diagnose::Diagnosis& diagnosis);

/// Text inside a paragraph or a cell: no markup, no HTML, no line breaks.
std::string markdown_text(std::string_view text);
/// The same as code.
std::string markdown_code(std::string_view text);

/// One file that explains to a reader who has never seen a profiler what share of the time the GPU worked, where the rest went,
/// and which line to change. It loads nothing. What comes from the recording is text in it, never markup. `timeline` adds what
/// ran in the typical and the worst step and the curves of the machine; an empty one leaves them out.
std::string diagnosis_html(const diagnose::Diagnosis& diagnosis, const diagnose::Timeline& timeline);

constexpr int kDiagnosisSchema = 1;

using Json = nlohmann::ordered_json;
/// null where there is no value or none that is finite.
Json number(const std::optional<double>& value);

/// The stable form for programs: keys are added, never renamed; docs/doctor-reports.md lists them. One object, indented, with a
/// newline at its end. What was not measured is null, never 0.
std::string diagnosis_json(const diagnose::Diagnosis& diagnosis);

}  // namespace millrace::report
