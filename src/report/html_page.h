#pragma once
// The frame of a report in one file: style and script are inside, nothing is loaded, and a policy of the page forbids it.
// The look of what the doctor's report has beside other pages (plot::page_style).

#include <string>
#include <string_view>

namespace millrace::report {

/// A whole document. `title` is text; `body` is HTML whose foreign parts are escaped (xml_text).
std::string html_page(std::string_view title, const std::string& body);

/// `text` as a term that explains itself when it is pointed at or focused; `key` is one of the glossary's.
std::string html_term(std::string_view key, std::string_view text);

/// What the page's policy lets run: the hash of html_script(), in base 64. A test compares it.
std::string_view html_script();
std::string_view html_script_hash();

std::string_view html_style();

}  // namespace millrace::report
