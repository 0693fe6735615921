#pragma once
// Tables that are written row by row: CSV, JSON lines or NumPy's .npy.

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "io/file.h"

namespace millrace::io {

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
