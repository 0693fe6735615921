#pragma once
// A folder to read from while others write into it: a name below it never leads outside, whatever is renamed or linked meanwhile.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"

namespace millrace::io {

/// A regular file below a held folder.
struct HeldFile {
    FileDescriptor file;
    std::uint64_t size = 0;     ///< bytes, when it was opened
    std::int64_t modified = 0;  ///< nanoseconds since 1970, when it was opened
};

/// Names are relative ("a/b.txt", "" is the folder itself). One with "", "." or ".." between its slashes is refused, and so is
/// any link on the way: a name leads to what lies in the folder or to nothing.
class HeldFolder {
public:
    /// Links that lead to the folder itself are followed.
    static Result<HeldFolder> open(const Path& folder);
    /// A folder in it.
    [[nodiscard]] Result<HeldFolder> folder(std::string_view name) const;

    /// Refuses anything but a regular file, without waiting for a writer where it is a pipe.
    [[nodiscard]] Result<HeldFile> open_file(std::string_view name) const;
    /// The whole file; refuses anything above `cap` bytes before it allocates.
    [[nodiscard]] Result<std::string> read_text(std::string_view name, std::size_t cap = kDocumentCap) const;

    struct Entry {
        std::string name;
        bool is_folder = false;
    };
    /// Regular files and folders in the folder `name`, by name; the first `most` that the system gives.
    [[nodiscard]] Result<std::vector<Entry>> list(std::string_view name, std::size_t most) const;
    /// Whether a process has the lock of the file `name`, or of the folder itself (io::is_locked).
    [[nodiscard]] bool is_locked(std::string_view name) const;

    [[nodiscard]] const Path& path() const { return path_; }

private:
    HeldFolder(FileDescriptor folder, Path path) : folder_(std::move(folder)), path_(std::move(path)) {}
    /// The last part of `name` opened with `flags`.
    [[nodiscard]] Result<FileDescriptor> descend(std::string_view name, int flags) const;

    FileDescriptor folder_;
    Path path_;
};

/// Up to `most` bytes from `offset` on; less only where the file ends.
Result<std::string> read_piece(const HeldFile& file, std::uint64_t offset, std::size_t most, const Path& place);

/// A folder that is held open: path() leads to this very folder wherever it is moved, and never to what took its place.
class KeptFolder {
public:
    /// `folder` must be there. `name` is what people call it; empty: `folder`.
    static Result<KeptFolder> open(const Path& folder, Path name = {});

    /// For every file that is written, read or removed inside. Valid while this object lives, in this process alone.
    [[nodiscard]] const Path& path() const { return path_; }
    /// For people: the name it was given while that leads to it, else where it is now.
    [[nodiscard]] Path name() const;
    /// Nothing can be written into it any more.
    [[nodiscard]] bool was_removed() const;
    /// The error with name() where it and its causes have path().
    [[nodiscard]] Error named(const Error& error) const;
    /// Locks it for as long as this object lives. False: another process has the lock. A file system that cannot lock a folder
    /// gives the lock to all.
    Result<bool> try_lock();

private:
    KeptFolder(FileDescriptor folder, Path path, Path name)
        : folder_(std::move(folder)), path_(std::move(path)), name_(std::move(name)) {}

    FileDescriptor folder_;
    Path path_, name_;
};

}  // namespace millrace::io
