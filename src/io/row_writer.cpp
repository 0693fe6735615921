#include "io/row_writer.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "io/csv.h"

namespace millrace::io {
namespace {

std::string json_text(const std::string& text) { return base::json_text(nlohmann::json(text)); }

/// As many digits as tell any two numbers of f32 apart.
std::string text_of(const Cell& cell, bool json) {
    if (const auto* text = std::get_if<std::string>(&cell)) return json ? json_text(*text) : csv_field(*text);
    if (const auto* whole = std::get_if<std::int64_t>(&cell)) return fmt::format("{}", *whole);
    if (const auto* number = std::get_if<double>(&cell); number != nullptr && std::isfinite(*number))
        return fmt::format("{:.9g}", *number);
    return json ? "null" : "";
}

/// The first bytes of a .npy file of little-endian f32, a multiple of 64 of them.
std::string npy_header(std::uint64_t rows, std::uint64_t values) {
    const std::string extents = values == 0 ? fmt::format("({},)", rows) : fmt::format("({}, {})", rows, values);
    std::string text = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': {}, }}", extents);
    constexpr std::size_t kPrefix = 10, kAlign = 64;
    text.resize((kPrefix + text.size() + 1 + kAlign - 1) / kAlign * kAlign - kPrefix - 1, ' ');
    text += '\n';
    std::string header("\x93NUMPY\x01\x00", 8);
    header += static_cast<char>(text.size() & 0xff);
    header += static_cast<char>(text.size() >> 8);
    return header + text;
}

}  // namespace

Result<RowForm> row_form_of(const Path& path) {
    const std::string ending = path.extension().string();
    if (ending == ".csv") return RowForm::csv;
    if (ending == ".jsonl") return RowForm::json_lines;
    if (ending == ".npy") return RowForm::numpy;
    return Error{"a name that ends in .csv, .jsonl (JSON lines) or .npy would be right", path.string()};
}

Status RowWriter::begin(std::vector<std::string> columns, std::uint64_t rows, std::uint64_t values) {
    columns_ = std::move(columns);
    if (form_ == RowForm::csv) return to_.write(bytes_of(csv_line(columns_)));
    if (form_ == RowForm::numpy) return to_.write(bytes_of(npy_header(rows, values)));
    for (std::string& column : columns_) column = json_text(column) + ": ";
    return base::ok();
}

Status RowWriter::add(const std::vector<Cell>& cells, std::span<const float> values) {
    if (form_ == RowForm::numpy) return to_.write(std::as_bytes(values));
    MILLRACE_ASSERT(cells.size() == columns_.size(), "a cell for each column");
    const bool json = form_ == RowForm::json_lines;
    std::string line = json ? "{" : "";
    for (std::size_t i = 0; i < cells.size(); ++i) {
        if (i > 0) line += json ? ", " : ",";
        if (json) line += columns_[i];
        line += text_of(cells[i], json);
    }
    line += json ? "}\n" : "\n";
    return to_.write(bytes_of(line));
}

}  // namespace millrace::io
