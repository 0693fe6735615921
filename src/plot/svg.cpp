#include "plot/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace millrace::plot {
namespace {

constexpr const char* kCommonRules = R"(.paper{fill:#ffffff}
text{font-family:system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;font-size:11px;fill:#374151}
.head{font-size:15px;font-weight:600;fill:#111827}.title{font-size:12px;font-weight:600;fill:#111827}.axis{font-size:10px;fill:#6b7280})";
constexpr const char* kCommonDarkRules = ".paper{fill:#111827}text{fill:#d1d5db}.head,.title{fill:#f9fafb}.axis{fill:#9ca3af}";

/// Length of the well-formed UTF-8 sequence at `at`; 0 when there is none.
std::size_t sequence_length(std::string_view text, std::size_t at) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char first = byte(at);
    const std::size_t length = first < 0x80                    ? 1
                               : first >= 0xc2 && first < 0xe0 ? 2
                               : first >= 0xe0 && first < 0xf0 ? 3
                               : first >= 0xf0 && first < 0xf5 ? 4
                                                               : 0;
    if (length == 0 || at + length > text.size()) return 0;
    for (std::size_t i = at + 1; i < at + length; ++i)
        if ((byte(i) & 0xc0) != 0x80) return 0;
    if (length == 3 && ((first == 0xe0 && byte(at + 1) < 0xa0) || (first == 0xed && byte(at + 1) >= 0xa0))) return 0;
    if (length == 3 && first == 0xef && byte(at + 1) == 0xbf && byte(at + 2) >= 0xbe) return 0;  // U+FFFE, U+FFFF: not in XML
    if (length == 4 && ((first == 0xf0 && byte(at + 1) < 0x90) || (first == 0xf4 && byte(at + 1) >= 0x90))) return 0;
    return length;
}

}  // namespace

std::string svg_begin(std::string_view title, double width, double height, std::string_view rules, std::string_view dark_rules) {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\">\n"
        "<title>{2}</title>\n<style>\n{3}\n{4}\n@media (prefers-color-scheme:dark){{\n{5}\n{6}\n}}\n</style>\n"
        "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n",
        short_number(width), short_number(height), xml_text(title), kCommonRules, rules, kCommonDarkRules, dark_rules);
}

std::string short_number(double value) {
    std::string text = fmt::format("{:.1f}", value);
    if (text.ends_with(".0")) text.resize(text.size() - 2);
    return text == "-0" ? "0" : text;
}

std::string text_at(double x, double y, const char* css_class, const char* anchor, std::string_view text) {
    return fmt::format("<text x=\"{}\" y=\"{}\" class=\"{}\" text-anchor=\"{}\">{}</text>", short_number(x), short_number(y),
                       css_class, anchor, xml_text(text));
}

std::string xml_text(std::string_view text) {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t length = sequence_length(text, at);
        const char byte = text[at];
        if (length != 1)
            out += length == 0 ? "?" : std::string(text.substr(at, length));
        else if (byte == '&')
            out += "&amp;";
        else if (byte == '<')
            out += "&lt;";
        else if (byte == '>')
            out += "&gt;";
        else if (byte == '"')
            out += "&quot;";
        else if (byte == '\'')
            out += "&#39;";
        else
            out += static_cast<unsigned char>(byte) < 0x20 || byte == 0x7f ? ' ' : byte;
        at += std::max<std::size_t>(length, 1);
    }
    return out;
}

std::string shortened(const std::string& text, std::size_t most) {
    if (text.size() <= most) return text;
    std::size_t end = most;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
    return text.substr(0, end) + "...";
}

double axis_step(double high) {
    if (!(high > 0) || !std::isfinite(high)) return 1;
    const double least = high / 5, power = std::pow(10, std::floor(std::log10(least)));
    for (const double factor : {1.0, 2.0, 2.5, 5.0})
        if (factor * power >= least * 0.9999) return factor * power;
    return 10 * power;
}

}  // namespace millrace::plot
