#pragma once
// A diagnosis as Markdown, for a pull request or a wiki.

#include <string>

#include "diagnose/answer/diagnosis.h"

namespace millrace::report {

/// Tables as GitHub draws them. Nothing of the recording becomes markup.
std::string diagnosis_markdown(const diagnose::Diagnosis& diagnosis);

/// Text inside a paragraph or a cell: no markup, no HTML, no line breaks.
std::string markdown_text(std::string_view text);
/// The same as code.
std::string markdown_code(std::string_view text);

}  // namespace millrace::report
