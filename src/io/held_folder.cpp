#include "io/held_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

namespace millrace::io {
namespace {

int open_below(int folder, const char* name, int flags) {
    int descriptor = -1;
    do {
        descriptor = ::openat(folder, name, flags | O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    } while (descriptor < 0 && errno == EINTR);
    return descriptor;
}

struct CloseFolder {
    void operator()(DIR* folder) const { ::closedir(folder); }
};

bool leads_to(const Path& path, const FileDescriptor& folder) {
    struct stat held {
    }, named{};
    return ::fstat(folder.get(), &held) == 0 && ::stat(path.c_str(), &named) == 0 && held.st_dev == named.st_dev &&
           held.st_ino == named.st_ino;
}

}  // namespace

Result<HeldFolder> HeldFolder::open(const Path& folder) {
    MILLRACE_LET(handle, io::open_file(folder, O_RDONLY | O_DIRECTORY));
    return HeldFolder(std::move(handle), folder);
}

Result<HeldFolder> HeldFolder::folder(std::string_view name) const {
    MILLRACE_LET(handle, descend(name, O_DIRECTORY));
    return HeldFolder(std::move(handle), name.empty() ? path_ : path_ / name);
}

Result<FileDescriptor> HeldFolder::descend(std::string_view name, int flags) const {
    FileDescriptor at;
    if (name.empty()) at = FileDescriptor(open_below(folder_.get(), ".", O_DIRECTORY));
    if (name.empty() && !at.valid()) return system_error("cannot open", path_, errno);
    const Path place = path_ / name;
    while (!name.empty()) {
        const std::size_t end = name.find('/');
        const std::string part(name.substr(0, end));
        const bool is_last = end == std::string_view::npos;
        if (part.empty() || part == "." || part == ".." || part.find('\0') != std::string::npos ||
            (!is_last && end + 1 == name.size()))
            return Error{"is no name of something in the folder", place.string()};
        FileDescriptor below(open_below(at.valid() ? at.get() : folder_.get(), part.c_str(), is_last ? flags : O_DIRECTORY));
        if (!below.valid()) return system_error("cannot open", place, errno);
        at = std::move(below);
        name.remove_prefix(is_last ? name.size() : end + 1);
    }
    return at;
}

Result<HeldFile> HeldFolder::open_file(std::string_view name) const {
    MILLRACE_LET(file, descend(name, 0));
    struct stat about {};
    if (::fstat(file.get(), &about) != 0) return system_error("cannot look at", path_ / name, errno);
    if (!S_ISREG(about.st_mode)) return Error{"is no regular file", (path_ / name).string()};
    return HeldFile{std::move(file), static_cast<std::uint64_t>(about.st_size),
                    std::int64_t{about.st_mtim.tv_sec} * 1'000'000'000 + about.st_mtim.tv_nsec};
}

Result<std::string> HeldFolder::read_text(std::string_view name, std::size_t cap) const {
    MILLRACE_LET(file, open_file(name));
    if (file.size > cap)
        return Error{fmt::format("has {} bytes; at most {} are accepted here", file.size, cap), (path_ / name).string()};
    return read_piece(file, 0, static_cast<std::size_t>(file.size), path_ / name);
}

Result<std::vector<HeldFolder::Entry>> HeldFolder::list(std::string_view name, std::size_t most) const {
    MILLRACE_LET(handle, descend(name, O_DIRECTORY));
    const std::unique_ptr<DIR, CloseFolder> folder(::fdopendir(::fcntl(handle.get(), F_DUPFD_CLOEXEC, 0)));
    if (!folder) return system_error("cannot list", path_ / name, errno);
    std::vector<Entry> found;
    while (found.size() < most) {
        const dirent* entry = ::readdir(folder.get());
        if (entry == nullptr) break;
        const std::string_view own(entry->d_name);
        if (own == "." || own == "..") continue;
        auto type = entry->d_type;
        struct stat about {};
        if (type == DT_UNKNOWN && ::fstatat(handle.get(), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) == 0)
            type = S_ISDIR(about.st_mode) ? DT_DIR : S_ISREG(about.st_mode) ? DT_REG : DT_LNK;
        if (type == DT_DIR || type == DT_REG) found.push_back({std::string(own), type == DT_DIR});
    }
    std::ranges::sort(found, {}, &Entry::name);
    return found;
}

bool HeldFolder::is_locked(std::string_view name) const {
    const auto lock = descend(name, 0);
    return lock.ok() && ::flock(lock->get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

Result<std::string> read_piece(const HeldFile& file, std::uint64_t offset, std::size_t most, const Path& place) {
    std::string piece;
    if (offset >= file.size || most == 0) return piece;
    piece.resize(static_cast<std::size_t>(std::min<std::uint64_t>(most, file.size - offset)));
    std::size_t got = 0;
    while (got < piece.size()) {
        const ssize_t read = ::pread(file.file.get(), piece.data() + got, piece.size() - got, static_cast<off_t>(offset + got));
        if (read < 0 && errno == EINTR) continue;
        if (read < 0) return system_error("cannot read", place, errno);
        if (read == 0) break;  // cut since it was opened
        got += static_cast<std::size_t>(read);
    }
    piece.resize(got);
    return piece;
}

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
