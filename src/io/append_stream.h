#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "io/file.h"

namespace millrace::io {

/// Writes all of `bytes` behind the first `size` bytes of the file. After an error the file is cut back to them.
Status append_whole(const FileDescriptor& file, Bytes bytes, std::uint64_t size, const Path& place);

/// A text stream that only grows, one line at a time. A line reaches the file whole or, after an error or a crash, as a torn last
/// line that readers skip. Not synchronised: one thread appends.
class AppendStream {
public:
    /// Opens or creates `path` for appending. A torn last line left by a crash is closed off so that it cannot swallow the next.
    static Result<AppendStream> open(const Path& path);

    /// Adds `line` (which holds no newline) to the buffer; written out when the buffer is full and on flush. When writing fails
    /// the line is kept and tried again, unless 16 MiB are kept already: then it is lost, and counted.
    Status append_line(std::string_view line);
    /// Hands what is buffered to the system. When that fails the file is cut back to its last whole line and the buffer stays for
    /// the next call.
    Status flush();
    /// flush, and wait until the bytes are on the disk.
    Status sync();
    /// Bytes in the file once everything appended so far is flushed: what a checkpoint stores.
    [[nodiscard]] std::uint64_t offset() const { return written_ + buffer_.size(); }
    /// Lines for which there was no room, neither in the file nor in the buffer.
    [[nodiscard]] std::uint64_t lost() const { return lost_; }
    /// Forgets everything after `offset`, which must not lie beyond the end.
    Status truncate_to(std::uint64_t offset);

private:
    AppendStream(FileDescriptor file, Path path, std::uint64_t size)
        : file_(std::move(file)), path_(std::move(path)), written_(size) {}

    FileDescriptor file_;
    Path path_;
    std::uint64_t written_ = 0;
    std::string buffer_;
    std::uint64_t lost_ = 0;
};

}  // namespace millrace::io
