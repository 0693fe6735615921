#include "io/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <new>

#include "io/pending_file.h"

namespace millrace::io {
namespace {

constexpr std::size_t kBufferSize = std::size_t{256} << 10;
constexpr int kMostLockAttempts = 100;  // where other processes lock and remove the file all the time

int open_again(const char* path, int flags, unsigned mode) {
    int descriptor = -1;
    do {
        descriptor = ::open(path, flags | O_CLOEXEC, mode);
    } while (descriptor < 0 && errno == EINTR);
    return descriptor;
}

Path folder_of(const Path& path) {
    Path folder = path.parent_path();
    return folder.empty() ? Path(".") : folder;
}

}  // namespace

Error system_error(std::string_view what, const Path& place, int error_number) {
    const std::string reason = std::strerror(error_number);
    const auto full = [&](std::string text) {
        Error error{std::move(text), place.string(), 1};
        error.disk_full = true;
        return error;
    };
    switch (error_number) {
        case ENOENT:
        case ENOTDIR:
        case EISDIR:
        case EEXIST:
        case ENOTEMPTY:
        case ELOOP:
        case ENAMETOOLONG:
        case EINVAL: return Error{fmt::format("{}: {}", what, reason), place.string()};
        case ENOSPC: return full(fmt::format("{}: the disk is full ({})", what, reason));
        case EDQUOT: return full(fmt::format("{}: the disk quota is used up ({})", what, reason));
        case EFBIG:  // however much room there is
            return Error{fmt::format("{}: the disk is full up to the file size limit ({})", what, reason), place.string(), 1};
        default: return Error{fmt::format("{}: {}", what, reason), place.string(), 1};
    }
}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
        reset();
        descriptor_ = std::exchange(other.descriptor_, -1);
    }
    return *this;
}

void FileDescriptor::reset() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
}

Result<FileDescriptor> open_file(const Path& path, int flags, unsigned mode) {
    const int descriptor = open_again(path.c_str(), flags, mode);
    if (descriptor < 0) return system_error("cannot open", path, errno);
    return FileDescriptor(descriptor);
}

Status read_exactly(const FileDescriptor& file, std::span<std::byte> into, std::uint64_t offset, const Path& place) {
    while (!into.empty()) {
        const ssize_t got = ::pread(file.get(), into.data(), into.size(), static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return system_error("cannot read", place, errno);
        if (got == 0) return Error{fmt::format("the file ends at byte {}, {} bytes early", offset, into.size()), place.string()};
        into = into.subspan(static_cast<std::size_t>(got));
        offset += static_cast<std::uint64_t>(got);
    }
    return base::ok();
}

Result<RegularFile> open_regular(const Path& path) {
    MILLRACE_LET(file, open_file(path, O_RDONLY | O_NONBLOCK));
    struct stat about {};
    if (::fstat(file.get(), &about) != 0) return system_error("cannot look at", path, errno);
    if (!S_ISREG(about.st_mode)) return Error{"is no regular file", path.string()};
    return RegularFile{std::move(file), static_cast<std::uint64_t>(about.st_size)};
}

Status add_file(const FileDescriptor& file, std::uint64_t size, Checksum64& sum, const Path& place) {
    std::vector<std::byte> piece(std::min<std::uint64_t>(size, kBufferSize));
    for (std::uint64_t at = 0; at < size; at += piece.size()) {
        piece.resize(std::min<std::uint64_t>(piece.size(), size - at));
        MILLRACE_TRY(read_exactly(file, piece, at, place));
        sum.update(piece);
    }
    return base::ok();
}

Result<std::vector<std::byte>> read_file(const Path& path, std::size_t cap) {
    MILLRACE_LET(opened, open_regular(path));
    const auto& [file, size] = opened;
    if (size > cap) return Error{fmt::format("has {} bytes; at most {} are accepted here", size, cap), path.string()};
    std::vector<std::byte> bytes;
    try {
        bytes.resize(size);
    } catch (const std::bad_alloc&) {
        return Error{fmt::format("not enough memory to read {} bytes", size), path.string(), 1};
    }
    MILLRACE_TRY(read_exactly(file, bytes, 0, path));
    return bytes;
}

Result<std::string> read_text(const Path& path, std::size_t cap) {
    MILLRACE_LET(bytes, read_file(path, cap));
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

int write_bytes(const FileDescriptor& file, Bytes bytes, std::optional<std::uint64_t> offset) {
    while (!bytes.empty()) {
        const ssize_t put = offset ? ::pwrite(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(*offset))
                                   : ::write(file.get(), bytes.data(), bytes.size());
        if (put < 0 && errno == EINTR) continue;
        if (put < 0 && errno == EAGAIN) {
            pollfd ready{file.get(), POLLOUT, 0};
            ::poll(&ready, 1, -1);
            continue;
        }
        if (put <= 0) return put < 0 ? errno : ENOSPC;
        bytes = bytes.subspan(static_cast<std::size_t>(put));
        if (offset) *offset += static_cast<std::uint64_t>(put);
    }
    return 0;
}

FileWriter::FileWriter(const FileDescriptor& file, Path place) : file_(file), place_(std::move(place)) {
    buffer_.reserve(kBufferSize);
}

Status FileWriter::write(Bytes bytes) {
    if (failed_with_ != 0) return system_error("cannot write", place_, failed_with_);
    sum_.update(bytes);
    bytes_ += bytes.size();
    if (buffer_.size() + bytes.size() <= kBufferSize) {
        buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
        return base::ok();
    }
    MILLRACE_TRY(flush());
    if (bytes.size() >= kBufferSize) return write_through(bytes);
    buffer_.assign(bytes.begin(), bytes.end());
    return base::ok();
}

Status FileWriter::flush() {
    if (failed_with_ != 0) return system_error("cannot write", place_, failed_with_);
    MILLRACE_TRY(write_through(buffer_));
    buffer_.clear();
    return base::ok();
}

Status FileWriter::write_through(Bytes bytes) {
    failed_with_ = write_bytes(file_, bytes);
    return failed_with_ == 0 ? base::ok() : system_error("cannot write", place_, failed_with_);
}

Result<WrittenFile> write_new_file(const Path& path, const std::function<Status(FileWriter&)>& fill) {
    MILLRACE_LET(file, open_file(path, O_WRONLY | O_CREAT | O_EXCL));
    FileWriter writer(file, path);
    Status status = fill(writer);
    if (status.ok()) status = writer.flush();
    if (status.ok() && ::fsync(file.get()) != 0) status = system_error("cannot sync", path, errno);
    if (!status.ok()) {
        ::unlink(path.c_str());
        return status.error();
    }
    return WrittenFile{writer.bytes(), writer.checksum()};
}

Status check_replaceable(const Path& path) {
    std::error_code ignored;
    const std::filesystem::file_status target = std::filesystem::status(path, ignored);
    if (!std::filesystem::exists(target) || std::filesystem::is_regular_file(target)) return base::ok();
    return Error{std::filesystem::is_directory(target) ? "is a folder; the name of a file is needed"
                                                       : "is a device or pipe, which a file must not replace; name a file",
                 path.string()};
}

Status check_apart(std::span<const NamedFile> files) {
    std::map<Path, const char*> taken;
    for (const auto& [option, path] : files) {
        if (path.empty()) continue;
        // Absolute first: of a relative name that does not exist yet nothing would be resolved.
        std::error_code failed;
        const Path absolute = std::filesystem::absolute(path, failed).lexically_normal();
        const Path resolved = std::filesystem::weakly_canonical(absolute, failed);
        const Path& place = failed ? absolute : resolved;
        if (std::filesystem::exists(place, failed) && !std::filesystem::is_regular_file(place, failed)) continue;
        const auto [earlier, is_new] = taken.emplace(place, option);
        if (!is_new) return Error{fmt::format("{} and {} name the same file", earlier->second, option), std::string(path)};
    }
    return base::ok();
}

Result<WrittenFile> write_atomically(const Path& path, const std::function<Status(FileWriter&)>& fill) {
    MILLRACE_TRY(check_replaceable(path));
    const Path temporary = temporary_name(path);
    const bool had_old = std::filesystem::exists(std::filesystem::symlink_status(path));
    const auto failed = [&](const Error& reason) {
        return Error{
            had_old ? "could not be replaced; the old file is untouched" : "could not be written; nothing was left behind",
            path.string(), reason.exit_status}
            .because(reason);
    };
    auto written = write_new_file(temporary, fill);
    if (!written.ok()) return failed(written.error());
    if (::rename(temporary.c_str(), path.c_str()) != 0) {
        const int reason = errno;
        ::unlink(temporary.c_str());
        return failed(system_error("cannot rename into place", path, reason));
    }
    MILLRACE_TRY(sync_folder(folder_of(path)));
    return *written;
}

Result<WrittenFile> write_atomically(const Path& path, Bytes bytes) {
    return write_atomically(path, [bytes](FileWriter& writer) { return writer.write(bytes); });
}

Result<WrittenFile> write_atomically(const Path& path, std::string_view text) { return write_atomically(path, bytes_of(text)); }

Status overwrite_in_place(const Path& path, std::string_view text) {
    MILLRACE_LET(file, open_file(path, O_WRONLY));
    const auto size = static_cast<off_t>(text.size());
    if (const int failed = ::posix_fallocate(file.get(), 0, size); failed != 0) return system_error("cannot write", path, failed);
    FileWriter writer(file, path);
    MILLRACE_TRY(writer.write(bytes_of(text)));
    MILLRACE_TRY(writer.flush());
    if (::ftruncate(file.get(), size) != 0 || ::fsync(file.get()) != 0) return system_error("cannot write", path, errno);
    return base::ok();
}

Result<std::optional<FileDescriptor>> try_lock(const Path& path) {
    for (int attempt = 0; attempt < kMostLockAttempts; ++attempt) {
        MILLRACE_LET(lock, open_file(path, O_RDWR | O_CREAT));
        if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
            if (errno != EWOULDBLOCK) return system_error("cannot lock", path, errno);
            break;
        }
        // The file may have been removed between open() and the lock: such a lock excludes no process.
        struct stat locked {
        }, named{};
        if (::fstat(lock.get(), &locked) != 0) return system_error("cannot lock", path, errno);
        if (::stat(path.c_str(), &named) == 0 && named.st_dev == locked.st_dev && named.st_ino == locked.st_ino)
            return std::optional(std::move(lock));
    }
    return std::optional<FileDescriptor>{};
}

bool is_locked(const Path& path) {
    const auto lock = open_file(path, O_RDONLY | O_NONBLOCK);
    return lock.ok() && ::flock(lock->get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

Status make_folder(const Path& folder) {
    std::error_code failure;
    std::filesystem::create_directories(folder, failure);
    if (failure) return system_error("cannot create the folder", folder, failure.value());
    return base::ok();
}

Result<std::vector<Path>> list_folder(const Path& folder) {
    std::error_code failure;
    std::vector<Path> entries;
    for (std::filesystem::directory_iterator at(folder, failure), end; !failure && at != end; at.increment(failure))
        entries.push_back(at->path());
    if (failure) return system_error("cannot list the folder", folder, failure.value());
    std::ranges::sort(entries);
    return entries;
}

Status sync_folder(const Path& folder) {
    MILLRACE_LET(handle, open_file(folder, O_RDONLY | O_DIRECTORY));
    // Some network file systems cannot sync a folder; the rename itself is still atomic there.
    if (::fsync(handle.get()) != 0 && errno != EINVAL && errno != ENOTSUP) return system_error("cannot sync", folder, errno);
    return base::ok();
}

}  // namespace millrace::io
