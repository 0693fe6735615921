#pragma once
#include "io/file.h"

namespace millrace::io {

/// A free name beside `path` for a file that is to be renamed to it.
Path temporary_name(const Path& path);

/// Before long work whose result goes to `path`: an error where a file cannot take its place or a small one cannot be written
/// beside it, such as on a full disk. Leaves nothing behind.
Status check_writable(const Path& path);

/// A file that a foreign library writes under a temporary name beside `path`. commit() makes it `path`; without that it is
/// removed at the end of its life.
class PendingFile {
public:
    /// Creates nothing yet. Fails where `path` leads to something that a file must not replace.
    static Result<PendingFile> begin(const Path& path);
    PendingFile(PendingFile&& other) noexcept;
    PendingFile& operator=(PendingFile&& other) noexcept;
    ~PendingFile();

    [[nodiscard]] const Path& path() const { return path_; }
    [[nodiscard]] const Path& temporary() const { return temporary_; }
    /// Syncs the temporary file, renames it and syncs the folder. After an error `path` is what it was and the temporary file is
    /// gone.
    Status commit();
    /// Removes the temporary file.
    void discard();

private:
    PendingFile(Path path, Path temporary) : path_(std::move(path)), temporary_(std::move(temporary)) {}

    Path path_, temporary_;  ///< temporary: empty once it is gone
};

}  // namespace millrace::io
