#pragma once
// Tables of text: CSV (RFC 4180) and TSV, with a line of names first.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "io/file.h"

namespace millrace::io {

struct TextTable {
    std::unique_ptr<std::string> text;    ///< what the cells point into, which moves with them
    std::vector<std::string> names;       ///< of the columns
    std::vector<std::string_view> cells;  ///< row by row, as many in each as there are names; without their quotes

    [[nodiscard]] std::size_t rows() const { return names.empty() ? 0 : cells.size() / names.size(); }
    [[nodiscard]] std::string_view at(std::size_t row, std::size_t column) const { return cells[row * names.size() + column]; }
};

/// Cells end at `delimiter` or a line's end; those in quotes may hold both, and quotes doubled. Lines without a character are
/// left out, as is a byte order mark. Refuses an empty table, a name that is there twice or not at all, a line with another
/// number of cells and quotes that do not end, with the line's number. `place` names the text in errors.
Result<TextTable> parse_table(std::string text, char delimiter, const Path& place);

/// A file, which may be packed by gzip. Cells end at tabs where its name without ".gz" ends in ".tsv", else at commas; at
/// semicolons where the line of names has some and no comma.
Result<TextTable> read_table(const Path& path);

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

enum class RowForm : std::uint8_t { csv, json_lines, numpy };
/// By the ending: .csv, .jsonl or .npy. Refuses others.
Result<RowForm> row_form_of(const Path& path);

/// Nothing, a text, a whole number or another number; one that is not finite is nothing.
using Cell = std::variant<std::monostate, std::string, std::int64_t, double>;

class RowWriter {
public:
    RowWriter(FileWriter& to, RowForm form) : to_(to), form_(form) {}
    /// Writes what stands before the rows. Once. `rows`: all that will be written. `values`: numbers of a row for .npy; 0: one,
    /// and the array has one dimension.
    Status begin(std::vector<std::string> columns, std::uint64_t rows, std::uint64_t values);
    /// A row: as many cells as there are columns, and the numbers, which are all that .npy has.
    Status add(const std::vector<Cell>& cells, std::span<const float> values);

private:
    FileWriter& to_;
    RowForm form_;
    std::vector<std::string> columns_;
};

}  // namespace millrace::io
