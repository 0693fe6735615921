#pragma once
#include <cstdint>
#include <string_view>
#include <utility>

#include "io/file.h"

namespace millrace::io {

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

}  // namespace millrace::io
