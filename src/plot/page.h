#pragma once
// The shell of a report in one file: style and script are inside, nothing is loaded, and a policy of the page forbids it.

#include <string>
#include <string_view>

namespace millrace::plot {

struct PageScript {
    std::string_view text;
    std::string_view sha256;  ///< of `text`, in base 64: the one script that the page's policy lets run
};

/// The look that all pages share: light and dark, wide and narrow, screen and paper. Cards, tiles, tables, chips, charts.
std::string_view page_style();

/// A whole document. `title` is text; `style` is CSS beside page_style(); `body` is HTML whose foreign parts are escaped
/// (xml_text).
std::string html_page(std::string_view title, std::string_view style, const PageScript& script, std::string_view body);

}  // namespace millrace::plot
