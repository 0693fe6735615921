#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
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

/// A new text file, or a pipe or terminal, that lines are handed to one by one.
class LineFile {
public:
    /// Replaces `path`; "-" is the standard output.
    static Result<LineFile> create(const Path& path);

    /// `text` ends with a newline and may be several lines. A regular file is cut back to whole lines when that fails.
    Status write(std::string_view text);
    [[nodiscard]] const Path& path() const { return path_; }

private:
    LineFile(FileDescriptor file, Path path, bool regular) : file_(std::move(file)), path_(std::move(path)), regular_(regular) {}

    FileDescriptor file_;
    Path path_;
    bool regular_;
    std::uint64_t written_ = 0;
};

constexpr std::size_t kLineCap = std::size_t{1} << 20;  ///< bytes of a line; ours stay far below

/// Cuts bytes that come in pieces into lines, which may be huge, foreign or torn, in bounded memory. How they are cut into pieces
/// makes no difference.
class LineSplitter {
public:
    /// Gets each whole line without its newline. The text lasts for the call.
    using Receiver = std::function<void(std::string_view line)>;

    LineSplitter(std::size_t cap, Receiver receiver) : cap_(cap), receiver_(std::move(receiver)) {}

    void feed(std::string_view bytes);
    /// A last line without its newline may be half of what was meant, even when it happens to parse.
    [[nodiscard]] bool torn() const { return too_long_now_ || !pending_.empty(); }
    [[nodiscard]] std::uint64_t too_long() const { return too_long_; }  ///< whole lines above the cap, passed over

private:
    std::size_t cap_;
    Receiver receiver_;
    std::string pending_;
    bool too_long_now_ = false;
    std::uint64_t too_long_ = 0;
};

struct LineCounts {
    std::uint64_t too_long = 0;
    bool torn = false;
};

/// Reads `path`, a regular file, piece by piece from its beginning to where it ends now.
Result<LineCounts> read_lines(const Path& path, const LineSplitter::Receiver& receiver, std::size_t cap = kLineCap);

}  // namespace millrace::io
