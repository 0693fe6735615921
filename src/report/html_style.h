#pragma once
// The look of the report: light and dark, wide and narrow, screen and paper.

#include <string_view>

namespace millrace::report {

std::string_view html_style();

}  // namespace millrace::report
