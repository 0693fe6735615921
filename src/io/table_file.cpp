#include "io/table_file.h"

#include <fmt/format.h>

#include <set>

#include "io/byte_source.h"

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

}  // namespace millrace::io
