#pragma once
// A set of files that appears as a whole: written into a hidden folder inside its place, moved out of it at the end.

#include <string>

#include "io/file.h"

namespace millrace::io {

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
