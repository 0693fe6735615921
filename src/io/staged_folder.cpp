#include "io/staged_folder.h"

#include <algorithm>
#include <vector>

namespace millrace::io {
namespace {

namespace fs = std::filesystem;
constexpr const char* kInside = ".building";
constexpr const char* kLock = ".building.lock";

}  // namespace

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
    std::error_code failure;
    std::vector<Path> names;
    for (fs::directory_iterator at(inside(), failure), end; !failure && at != end; at.increment(failure))
        names.push_back(at->path().filename());
    if (failure) return system_error("cannot list the folder", inside(), failure.value());
    std::ranges::sort(names, [&](const Path& a, const Path& b) { return std::pair(a == last, a) < std::pair(b == last, b); });
    for (const Path& name : names)
        if (fs::exists(fs::symlink_status(place_ / name, failure)))
            return Error{"is there already; give another --out, or remove it first", (place_ / name).string()};
    MILLRACE_TRY(sync_folder(inside()));
    for (const Path& name : names) {
        fs::rename(inside() / name, place_ / name, failure);
        if (failure) return system_error("cannot be moved to its place", place_ / name, failure.value());
    }
    made_ = false;
    return sync_folder(place_);
}

}  // namespace millrace::io
