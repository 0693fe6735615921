#include "io/pending_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <vector>

namespace millrace::io {
namespace {

namespace fs = std::filesystem;
constexpr const char* kInside = ".building";
constexpr const char* kPublishing = ".publishing";  // kInside once it is whole
constexpr const char* kLock = ".building.lock";

/// The entries of `from`, `last` behind the others. An error when `place` has one of that name.
Result<std::vector<Path>> names_to_move(const Path& from, const Path& place, const std::string& last) {
    MILLRACE_LET(names, list_folder(from));
    for (Path& name : names) name = name.filename();
    std::ranges::sort(names, [&](const Path& a, const Path& b) { return std::pair(a == last, a) < std::pair(b == last, b); });
    std::error_code ignored;
    for (const Path& name : names)
        if (fs::exists(fs::symlink_status(place / name, ignored)))
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

Path temporary_name(const Path& path) {
    static std::atomic<unsigned> counter{0};
    Path name;
    // Steps over what a killed process left: in a container every process may have the number 1.
    do {
        name = path.parent_path() / fmt::format(".{}.tmp-{}-{}", path.filename().string(), ::getpid(), counter.fetch_add(1));
    } while (std::filesystem::exists(std::filesystem::symlink_status(name)));
    return name;
}

Status check_writable(const Path& path) {
    constexpr std::size_t kProbe = std::size_t{64} << 10;
    const Path folder = path.parent_path();
    if (std::error_code ignored; !folder.empty() && !std::filesystem::is_directory(folder, ignored))
        return Error{"there is no such folder to write into", folder.string()};
    MILLRACE_LET(probe, PendingFile::begin(path));
    const std::vector<std::byte> bytes(kProbe);
    const auto written = write_new_file(probe.temporary(), [&](FileWriter& writer) { return writer.write(bytes); });
    if (written.ok()) return base::ok();
    return Error{"cannot be written", path.string(), written.error().exit_status}.because(written.error());
}

Result<PendingFile> PendingFile::begin(const Path& path) {
    MILLRACE_TRY(check_replaceable(path));
    return PendingFile(path, temporary_name(path));
}

PendingFile::PendingFile(PendingFile&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, Path{})) {}

PendingFile& PendingFile::operator=(PendingFile&& other) noexcept {
    if (this != &other) {
        discard();
        path_ = std::move(other.path_);
        temporary_ = std::exchange(other.temporary_, Path{});
    }
    return *this;
}

PendingFile::~PendingFile() { discard(); }

void PendingFile::discard() {
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
    temporary_.clear();
}

Status PendingFile::commit() {
    MILLRACE_ASSERT(!temporary_.empty(), "committed twice");
    const auto failed = [this](const char* what, int reason) {
        discard();
        return system_error(what, path_, reason);
    };
    {
        auto file = open_file(temporary_, O_RDONLY);
        if (!file.ok()) {
            discard();
            return file.error();
        }
        if (::fsync(file->get()) != 0) return failed("cannot sync", errno);
    }
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) return failed("cannot rename into place", errno);
    temporary_.clear();
    const Path folder = path_.parent_path();
    return sync_folder(folder.empty() ? Path(".") : folder);
}

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
    MILLRACE_TRY(make_folder(place));
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
