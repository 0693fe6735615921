#pragma once
// Pieces of pictures: self-contained SVG for light and dark pages.

#include <string>
#include <string_view>

namespace millrace::plot {

/// The document's start: its title, its style and its paper. `rules` and `dark_rules` are CSS beside the common rules for text
/// (classes "head", "title", "axis") and paper. "</svg>" ends the document.
std::string svg_begin(std::string_view title, double width, double height, std::string_view rules, std::string_view dark_rules);

/// A line of text as an element; `text` is escaped.
std::string text_at(double x, double y, const char* css_class, const char* anchor, std::string_view text);
/// A coordinate with one decimal at most.
std::string short_number(double value);

/// Text for XML: escaped, without the control characters XML forbids, bytes that are no UTF-8 replaced by "?".
std::string xml_text(std::string_view text);

/// The first `most` bytes at most, whole characters, and "..." where something was left out.
std::string shortened(const std::string& text, std::size_t most);

/// Steps of 1, 2 or 5 times a power of ten: the smallest that covers `high` in at most five.
double axis_step(double high);

}  // namespace millrace::plot
