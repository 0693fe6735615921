#pragma once
// The pages' own files (src/ui/page/) and Debian's dygraphs, which CMake puts into the program (cmake/embed.cmake).

#include <string_view>

namespace millrace::ui {

/// Whether the library that draws curves was there when the program was built.
bool has_charts();

/// The library and the scripts of the live page; of a report.
std::string_view live_script();
std::string_view report_script();
/// SHA-256 of report_script() in hexadecimal digits: what a report's policy lets run.
std::string_view report_script_sum();

std::string_view page_look();  ///< CSS beside plot::page_style()
std::string_view live_page();  ///< HTML

}  // namespace millrace::ui
