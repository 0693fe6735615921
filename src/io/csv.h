#pragma once
// Fields of CSV files.

#include <string>
#include <string_view>
#include <vector>

namespace millrace::io {

/// RFC 4180: quotes around what holds a comma, a quote or a line break, quotes doubled.
inline std::string csv_field(std::string_view field) {
    if (field.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(field);
    std::string out = "\"";
    for (const char letter : field) {
        if (letter == '"') out += '"';
        out += letter;
    }
    return out + '"';
}

/// A line with its end.
inline std::string csv_line(const std::vector<std::string>& fields) {
    std::string line;
    for (std::size_t i = 0; i < fields.size(); ++i) line += (i == 0 ? "" : ",") + csv_field(fields[i]);
    return line + "\n";
}

}  // namespace millrace::io
