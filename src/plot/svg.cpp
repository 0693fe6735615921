#include "plot/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/utf8.h"

namespace millrace::plot {
namespace {

constexpr const char* kCommonRules = R"(.paper{fill:#ffffff}
text{font-family:system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;font-size:11px;fill:#374151}
.head{font-size:15px;font-weight:600;fill:#111827}.title{font-size:12px;font-weight:600;fill:#111827}.axis{font-size:10px;fill:#6b7280})";
constexpr const char* kCommonDarkRules = ".paper{fill:#111827}text{fill:#d1d5db}.head,.title{fill:#f9fafb}.axis{fill:#9ca3af}";

/// Length of the character at `at`; 0 when it is not UTF-8 or XML forbids it (U+FFFE, U+FFFF).
std::size_t sequence_length(std::string_view text, std::size_t at) {
    const std::string_view three = text.substr(at, 3);
    return three == "\xef\xbf\xbe" || three == "\xef\xbf\xbf" ? 0 : base::utf8_length(text, at);
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
