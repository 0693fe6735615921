#include "report/source_quote.h"

#include <algorithm>

#include "diagnose/reading/source_file.h"
#include "plot/svg.h"

namespace millrace::report {
namespace {

constexpr std::size_t kMostLine = 200;

}  // namespace

std::vector<SourceLine> quote_source(const diagnose::Frame& where, int around) {
    if (where.line <= 0 || where.native) return {};
    const auto text = diagnose::read_source(where.file);
    if (!text) return {};
    std::vector<SourceLine> lines;
    int number = 1;
    bool seen = false;
    for (std::size_t at = 0; at < text->size() && number - around <= where.line; ++number) {
        const std::size_t end = std::min(text->find('\n', at), text->size());
        if (number >= where.line - around) {
            std::string line = text->substr(at, end - at);
            if (line.ends_with('\r')) line.pop_back();
            lines.push_back({number, plot::shortened(line, kMostLine), number == where.line});
            seen = seen || number == where.line;
        }
        at = end + 1;
    }
    if (!seen) return {};
    const auto blank = [](const SourceLine& line) { return line.text.find_first_not_of(" \t") == std::string::npos; };
    while (!lines.front().hit && blank(lines.front())) lines.erase(lines.begin());
    while (!lines.back().hit && blank(lines.back())) lines.pop_back();
    return lines;
}

}  // namespace millrace::report
