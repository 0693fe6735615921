#pragma once
#include <string>

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

/// A set of files that appears as a whole: written into a hidden folder inside its place, moved out of it at the end.
/// While it lives, `place`/.building belongs to it, and a second one for the same place is refused. Without publish() nothing is
/// left behind, not even `place` where it was made for this. What a killed process left is removed by the next one, and published
/// where it had begun to be.
class StagedFolder {
public:
    /// Call first, before looking at what `place` holds: moves what a process was killed in the middle of publishing. `last` as
    /// of publish(). Does nothing where there is no such thing, or where another process is at work.
    static Status finish_publishing(const Path& place, const std::string& last);
    static Result<StagedFolder> begin(const Path& place);
    StagedFolder(StagedFolder&& other) noexcept;
    StagedFolder& operator=(StagedFolder&&) = delete;
    ~StagedFolder();

    /// Where to write.
    [[nodiscard]] Path inside() const;
    /// Moves every entry into the place, `last` (which says that the set is whole) behind the others. An error when a name is
    /// taken there: then nothing was moved.
    Status publish(const std::string& last);

private:
    StagedFolder(Path place, bool made, FileDescriptor lock) : place_(std::move(place)), made_(made), lock_(std::move(lock)) {}

    Path place_;
    bool made_ = false;  ///< the place did not exist
    FileDescriptor lock_;
};

}  // namespace millrace::io
