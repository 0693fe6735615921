#include "io/line_splitter.h"

#include <unistd.h>

#include <cerrno>
#include <vector>

namespace millrace::io {
namespace {

constexpr std::size_t kLinePiece = std::size_t{256} << 10;

}  // namespace

void LineSplitter::feed(std::string_view bytes) {
    while (!bytes.empty()) {
        const std::size_t end = bytes.find('\n');
        const std::string_view part = bytes.substr(0, end);
        if (!too_long_now_ && pending_.size() + part.size() > cap_) {
            too_long_now_ = true;
            pending_.clear();
        }
        if (end == std::string_view::npos) {
            if (!too_long_now_) pending_ += part;
            return;
        }
        if (too_long_now_) {
            ++too_long_;
        } else if (pending_.empty()) {
            receiver_(part);
        } else {
            pending_ += part;
            receiver_(pending_);
        }
        pending_.clear();
        too_long_now_ = false;
        bytes.remove_prefix(end + 1);
    }
}

Result<LineCounts> read_lines(const Path& path, const LineSplitter::Receiver& receiver, std::size_t cap) {
    MILLRACE_LET(opened, open_regular(path));
    const auto& [file, size] = opened;
    LineSplitter splitter(cap, receiver);
    std::vector<char> piece(kLinePiece);
    // Up to where the file ended when it was opened: a writer that is quicker than us must not keep us here for ever.
    for (auto left = size; left > 0;) {
        const ssize_t got = ::read(file.get(), piece.data(), std::min<std::uint64_t>(left, piece.size()));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return system_error("cannot read", path, errno);
        if (got == 0) break;
        splitter.feed({piece.data(), static_cast<std::size_t>(got)});
        left -= static_cast<std::uint64_t>(got);
    }
    return LineCounts{splitter.too_long(), splitter.torn()};
}

}  // namespace millrace::io
