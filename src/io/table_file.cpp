#include "io/table_file.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.h"
#include "io/packing.h"

namespace millrace::io {
namespace {

constexpr std::size_t kTableCap = std::size_t{8} << 30;
constexpr std::size_t kMostColumns = 1 << 16;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

/// Walks a text cell by cell. Quotes are taken away in place: what is left is never longer.
class CellReader {
public:
    CellReader(std::string& text, char delimiter) : text_(text), delimiter_(delimiter) {
        if (text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
    }

    [[nodiscard]] bool at_end() const { return at_ == text_.size(); }
    [[nodiscard]] std::size_t line() const { return line_; }
    [[nodiscard]] bool line_ended() const { return ended_; }
    /// Passes over lines without a character.
    void skip_empty() {
        while (!at_end() && (text_[at_] == '\n' || text_[at_] == '\r')) line_ += text_[at_++] == '\n' ? 1 : 0;
    }
    /// The next cell; line_ended() says whether it is the line's last. False when its quotes do not end.
    bool next(std::string_view& cell) {
        if (!at_end() && text_[at_] == '"') {
            if (!quoted(cell)) return false;
        } else {
            const std::size_t begin = at_;
            while (!at_end() && text_[at_] != delimiter_ && text_[at_] != '\n') ++at_;
            std::size_t end = at_;
            if (end > begin && text_[end - 1] == '\r' && (at_end() || text_[at_] == '\n')) --end;
            cell = std::string_view(text_).substr(begin, end - begin);
        }
        ended_ = at_end() || text_[at_] == '\n';
        if (!at_end()) line_ += text_[at_++] == '\n' ? 1 : 0;
        return true;
    }

private:
    bool quoted(std::string_view& cell) {
        const std::size_t begin = ++at_;
        std::size_t to = begin;
        for (;; ++at_) {
            if (at_end()) return false;
            if (text_[at_] == '"' && (at_ + 1 == text_.size() || text_[at_ + 1] != '"')) break;
            if (text_[at_] == '"') ++at_;
            line_ += text_[at_] == '\n' ? 1 : 0;
            text_[to++] = text_[at_];
        }
        ++at_;
        if (!at_end() && text_[at_] == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') ++at_;
        cell = std::string_view(text_).substr(begin, to - begin);
        return at_end() || text_[at_] == delimiter_ || text_[at_] == '\n';
    }

    std::string& text_;
    char delimiter_;
    std::size_t at_ = 0, line_ = 1;
    bool ended_ = false;
};

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

Result<TextTable> parse_table(std::string text, char delimiter, const Path& place) {
    TextTable table;
    table.text = std::make_unique<std::string>(std::move(text));
    const auto wrong = [&](const std::string& what, std::size_t line) {
        return Error{what, fmt::format("{}:{}", place.string(), line)};
    };
    CellReader reader(*table.text, delimiter);
    for (reader.skip_empty(); !reader.at_end(); reader.skip_empty()) {
        const std::size_t line = reader.line(), before = table.cells.size();
        do {
            std::string_view cell;
            if (!reader.next(cell)) return wrong("has a cell whose quotes do not end, or text behind them", line);
            table.cells.push_back(cell);
            if (table.cells.size() - before > kMostColumns)
                return wrong(fmt::format("has more than {} columns", kMostColumns), line);
        } while (!reader.line_ended());
        if (table.names.empty()) {
            table.names.assign(table.cells.begin(), table.cells.end());
            table.cells.clear();
            std::set<std::string_view> known;
            for (const std::string& name : table.names)
                if (name.empty() || !known.insert(name).second)
                    return wrong(name.empty() ? "has a column without a name; the first line must have one for each"
                                              : fmt::format("has two columns \"{}\"", name),
                                 line);
        } else if (table.cells.size() - before != table.names.size()) {
            return wrong(fmt::format("has {} cells; the table has {} columns", table.cells.size() - before, table.names.size()),
                         line);
        }
    }
    if (table.rows() == 0) return Error{"is a table without rows", place.string()};
    return table;
}

Result<TextTable> read_table(const Path& path) {
    MILLRACE_LET(bytes, read_unpacked(path, kTableCap));
    std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    bytes = {};
    const Path name = path.extension() == ".gz" ? path.stem() : path.filename();
    const std::string_view first = std::string_view(text).substr(0, text.find('\n'));
    const bool semicolons = first.find(',') == std::string_view::npos && first.find(';') != std::string_view::npos;
    return parse_table(std::move(text), name.extension() == ".tsv" ? '\t' : semicolons ? ';' : ',', path);
}

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
