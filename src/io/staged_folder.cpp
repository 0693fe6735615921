#include "io/staged_folder.h"

#include <algorithm>
#include <vector>

namespace millrace::io {
namespace {

namespace fs = std::filesystem;
constexpr const char* kInside = ".building";
constexpr const char* kPublishing = ".publishing";  // kInside once it is whole
constexpr const char* kLock = ".building.lock";

/// The entries of `from`, `last` behind the others. An error when `place` has one of that name.
Result<std::vector<Path>> names_to_move(const Path& from, const Path& place, const std::string& last) {
    std::error_code failure;
    std::vector<Path> names;
    for (fs::directory_iterator at(from, failure), end; !failure && at != end; at.increment(failure))
        names.push_back(at->path().filename());
    if (failure) return system_error("cannot list the folder", from, failure.value());
    std::ranges::sort(names, [&](const Path& a, const Path& b) { return std::pair(a == last, a) < std::pair(b == last, b); });
    for (const Path& name : names)
        if (fs::exists(fs::symlink_status(place / name, failure)))
            return Error{"is there already; give another --out, or remove it first", (place / name).string()};
    return names;
}

/// Moves those entries of kPublishing to `place`.
Status move_published(const Path& place, const std::vector<Path>& names) {
    std::error_code failure;
    for (const Path& name : names) {
        fs::rename(place / kPublishing / name, place / name, failure);
        if (failure) return system_error("cannot be moved to its place", place / name, failure.value());
    }
    fs::remove(place / kPublishing, failure);
    return sync_folder(place);
}

}  // namespace

Status StagedFolder::finish_publishing(const Path& place, const std::string& last) {
    std::error_code failure;
    if (!fs::is_directory(place / kPublishing, failure)) return base::ok();
    MILLRACE_LET(lock, try_lock(place / kLock));
    if (!lock) return base::ok();
    const StagedFolder folder(place, false, std::move(*lock));
    if (!fs::is_directory(place / kPublishing, failure)) return base::ok();  // another process was faster
    MILLRACE_LET(names, names_to_move(place / kPublishing, place, last));
    return move_published(place, names);
}

Result<StagedFolder> StagedFolder::begin(const Path& place) {
    std::error_code failure;
    const bool made = !fs::exists(place, failure);
    fs::create_directories(place, failure);
    if (failure) return system_error("cannot create the folder", place, failure.value());
    MILLRACE_LET(lock, try_lock(place / kLock));
    if (!lock) return Error{"is being written by another process; wait for it, or give another --out", place.string()};
    StagedFolder folder(place, made, std::move(*lock));
    fs::remove_all(folder.inside(), failure);
    if (!failure) fs::create_directory(folder.inside(), failure);
    if (failure) return system_error("cannot make a new folder there", folder.inside(), failure.value());
    return folder;
}

StagedFolder::StagedFolder(StagedFolder&& other) noexcept
    : place_(std::exchange(other.place_, {})), made_(other.made_), lock_(std::move(other.lock_)) {}

StagedFolder::~StagedFolder() {
    if (place_.empty()) return;
    std::error_code ignored;
    fs::remove_all(inside(), ignored);
    fs::remove(place_ / kLock, ignored);
    if (made_) fs::remove(place_, ignored);  // only while it is empty
}

Path StagedFolder::inside() const { return place_ / kInside; }

Status StagedFolder::publish(const std::string& last) {
    MILLRACE_LET(names, names_to_move(inside(), place_, last));
    MILLRACE_TRY(sync_folder(inside()));
    std::error_code failure;
    fs::rename(inside(), place_ / kPublishing, failure);
    if (failure) return system_error("cannot be made there", place_ / kPublishing, failure.value());
    made_ = false;
    return move_published(place_, names);
}

}  // namespace millrace::io
