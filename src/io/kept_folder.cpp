#include "io/kept_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>

namespace millrace::io {
namespace {

bool leads_to(const Path& path, const FileDescriptor& folder) {
    struct stat held {
    }, named{};
    return ::fstat(folder.get(), &held) == 0 && ::stat(path.c_str(), &named) == 0 && held.st_dev == named.st_dev &&
           held.st_ino == named.st_ino;
}

}  // namespace

Result<KeptFolder> KeptFolder::open(const Path& folder, Path name) {
    MILLRACE_LET(handle, open_file(folder, O_RDONLY | O_DIRECTORY));
    Path path = fmt::format("/proc/self/fd/{}", handle.get());
    if (!leads_to(path, handle)) path = folder;  // without /proc
    return KeptFolder(std::move(handle), std::move(path), name.empty() ? folder : std::move(name));
}

Path KeptFolder::name() const {
    std::error_code unknown;
    if (was_removed() || leads_to(name_, folder_)) return name_;
    const Path now = std::filesystem::read_symlink(path_, unknown);
    return unknown ? name_ : now;
}

bool KeptFolder::was_removed() const {
    struct stat about {};
    return ::fstat(folder_.get(), &about) != 0 || about.st_nlink == 0;
}

Error KeptFolder::named(const Error& error) const {
    Error renamed = error;
    const std::string& inside = path_.native();
    if (renamed.place.starts_with(inside) && (renamed.place.size() == inside.size() || renamed.place[inside.size()] == '/'))
        renamed.place.replace(0, inside.size(), name().native());
    return error.cause != nullptr ? renamed.because(named(*error.cause)) : renamed;
}

Result<bool> KeptFolder::try_lock() {
    if (::flock(folder_.get(), LOCK_EX | LOCK_NB) == 0) return true;
    if (errno == EWOULDBLOCK) return false;
    // NFS locks only what is open for writing, which a folder cannot be.
    if (errno == EBADF || errno == EOPNOTSUPP || errno == ENOLCK || errno == EINVAL) return true;
    return system_error("cannot lock", name_, errno);
}

}  // namespace millrace::io
