#pragma once
// The look of what the doctor's report has beside other pages (plot::page_style).

#include <string_view>

namespace millrace::report {

std::string_view html_style();

}  // namespace millrace::report
