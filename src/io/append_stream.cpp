#include "io/append_stream.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace millrace::io {
namespace {

constexpr std::size_t kFlushAt = std::size_t{64} << 10;
constexpr std::size_t kMostKeptBytes = std::size_t{16} << 20;  // four hours of rows of 1 KiB, one per second

}  // namespace

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
    std::size_t done = 0;
    while (done < buffer_.size()) {
        const ssize_t put =
            ::pwrite(file_.get(), buffer_.data() + done, buffer_.size() - done, static_cast<off_t>(written_ + done));
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) {
            const Error error = system_error("cannot append", path_, put < 0 ? errno : ENOSPC);
            // Lines written before this flush stay; the torn rest goes, and if even that fails readers skip it.
            [[maybe_unused]] const int ignored = ::ftruncate(file_.get(), static_cast<off_t>(written_));
            return error;
        }
        done += static_cast<std::size_t>(put);
    }
    written_ += done;
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

}  // namespace millrace::io
