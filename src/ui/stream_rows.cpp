#include "ui/stream_rows.h"

#include <fmt/format.h>

namespace millrace::ui {
namespace {

constexpr std::size_t kRowsPiece = std::size_t{1} << 20;
constexpr std::uint64_t kNewest = std::uint64_t{16} << 20;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_shown(std::string_view key) {
    return !key.starts_with("member_") && !(key.size() > 3 && key.starts_with("cpu") && is_digit(key[3]));
}

}  // namespace

StreamPiece read_rows(const io::HeldFolder& folder, const std::string& name, std::int64_t offset,
                      const std::function<void(const record::MetricsRow&)>& take) {
    StreamPiece out;
    const auto file = folder.open_file(name);
    if (!file.ok()) return out;
    const std::uint64_t first = file->size > kNewest ? file->size - kNewest : 0;
    out.anew = offset < 0 || static_cast<std::uint64_t>(offset) > file->size;
    out.offset = out.anew ? first : static_cast<std::uint64_t>(offset);
    const auto piece = io::read_piece(*file, out.offset, kRowsPiece, folder.path() / name);
    if (!piece.ok()) return out;
    out.more = piece->size() == kRowsPiece;
    std::string_view rest(*piece);
    for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
        auto row = record::parse_row(rest.substr(0, end));
        rest.remove_prefix(end + 1);
        if (!row) continue;
        std::erase_if(row->values, [](const record::Metric& value) { return !is_shown(value.first); });
        take(*row);
    }
    // What is left is being written, or a line longer than any of ours.
    out.offset += rest.size() == kRowsPiece ? kRowsPiece : piece->size() - rest.size();
    return out;
}

std::string stream_json(const io::HeldFolder& folder, const std::string& name, std::int64_t offset) {
    std::string rows;
    const StreamPiece piece = read_rows(folder, name, offset, [&](const record::MetricsRow& row) {
        rows += rows.empty() ? "" : ",\n";
        rows += record::row_text(row.values);
    });
    return fmt::format(R"({{"offset":{},"more":{},"anew":{},"rows":[{}]}})", piece.offset, piece.more, piece.anew, rows);
}

}  // namespace millrace::ui
