#pragma once
// Tables of text: CSV (RFC 4180) and TSV, with a line of names first.

#include <memory>
#include <string>
#include <string_view>
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

}  // namespace millrace::io
