#include "io/line_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

namespace millrace::io {
namespace {

constexpr std::size_t kFlushAt = std::size_t{64} << 10;
constexpr std::size_t kMostKeptBytes = std::size_t{16} << 20;  // four hours of rows of 1 KiB, one per second

constexpr std::size_t kLinePiece = std::size_t{256} << 10;

}  // namespace

Status append_whole(const FileDescriptor& file, Bytes bytes, std::uint64_t size, const Path& place) {
    const int failed = write_bytes(file, bytes, size);
    if (failed == 0) return base::ok();
    // If even this fails the next append overwrites what is torn, and readers stop before it.
    [[maybe_unused]] const int ignored = ::ftruncate(file.get(), static_cast<off_t>(size));
    return system_error("cannot append", place, failed);
}

Result<AppendStream> AppendStream::open(const Path& path) {
    MILLRACE_LET(file, open_file(path, O_RDWR | O_CREAT));
    struct stat about {};
    if (::fstat(file.get(), &about) != 0) return system_error("cannot look at", path, errno);
    if (!S_ISREG(about.st_mode)) return Error{"is not a regular file", path.string()};
    const auto size = static_cast<std::uint64_t>(about.st_size);
    AppendStream stream(std::move(file), path, size);
    if (size > 0) {
        std::byte last{};
        MILLRACE_TRY(read_exactly(stream.file_, {&last, 1}, size - 1, path));
        if (last != std::byte{'\n'}) MILLRACE_TRY(stream.append_line({}));
    }
    return stream;
}

Status AppendStream::append_line(std::string_view line) {
    MILLRACE_ASSERT(line.find('\n') == std::string_view::npos, "a line of a stream holds a newline");
    // The newest lines are the ones to lose: offsets that checkpoints stored stay ends of lines.
    if (buffer_.size() + line.size() >= kMostKeptBytes) {
        if (Status flushed = flush(); !flushed.ok()) {
            ++lost_;
            return flushed;
        }
    }
    buffer_.append(line);
    buffer_.push_back('\n');
    return buffer_.size() >= kFlushAt ? flush() : base::ok();
}

Status AppendStream::flush() {
    MILLRACE_TRY(append_whole(file_, bytes_of(buffer_), written_, path_));
    written_ += buffer_.size();
    buffer_.clear();
    return base::ok();
}

Status AppendStream::sync() {
    MILLRACE_TRY(flush());
    if (::fdatasync(file_.get()) != 0) return system_error("cannot sync", path_, errno);
    return base::ok();
}

Status AppendStream::truncate_to(std::uint64_t offset) {
    MILLRACE_TRY(flush());
    if (offset > written_)
        return Error{
            fmt::format("has {} bytes but the checkpoint expects at least {}: the stream belongs to another run or was cut",
                        written_, offset),
            path_.string()};
    std::byte last{'\n'};
    if (offset > 0) MILLRACE_TRY(read_exactly(file_, {&last, 1}, offset - 1, path_));
    if (last != std::byte{'\n'})
        return Error{fmt::format("byte {} is inside of a line, where the checkpoint expects an end of one", offset),
                     path_.string()};
    if (::ftruncate(file_.get(), static_cast<off_t>(offset)) != 0) return system_error("cannot truncate", path_, errno);
    written_ = offset;
    return base::ok();
}

Result<LineFile> LineFile::create(const Path& path) {
    if (path == "-") {
        FileDescriptor copy(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
        if (!copy.valid()) return system_error("cannot write to", "standard output", errno);
        return LineFile(std::move(copy), "standard output", false);
    }
    MILLRACE_LET(file, open_file(path, O_WRONLY | O_CREAT | O_TRUNC));
    struct stat about {};
    const bool regular = ::fstat(file.get(), &about) == 0 && S_ISREG(about.st_mode);
    return LineFile(std::move(file), path, regular);
}

Status LineFile::write(std::string_view text) {
    if (const int failed = write_bytes(file_, bytes_of(text)); failed != 0) {
        if (regular_) [[maybe_unused]]
            const int ignored = ::ftruncate(file_.get(), static_cast<off_t>(written_));
        return system_error("cannot write", path_, failed);
    }
    written_ += text.size();
    return base::ok();
}

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
