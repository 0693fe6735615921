#include "io/hdf5_format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

namespace millrace::io {

Result<Hdf5Bytes> Hdf5Bytes::open(const Path& path) {
    MILLRACE_LET(opened, open_regular(path));
    struct stat about {};
    if (::fstat(opened.file.get(), &about) != 0) return system_error("cannot look at", path, errno);
    Hdf5Bytes bytes;
    bytes.file = std::move(opened.file);
    bytes.place = path;
    bytes.size = static_cast<std::uint64_t>(about.st_size);
    bytes.device = about.st_dev;
    bytes.number = about.st_ino;
    bytes.seconds = about.st_mtim.tv_sec;
    bytes.nanoseconds = about.st_mtim.tv_nsec;
    return bytes;
}

Status Hdf5Bytes::unchanged() const {
    struct stat now {};
    if (::fstat(file.get(), &now) != 0) return system_error("cannot look at", place, errno);
    if (now.st_nlink == 0) return Error{"was deleted or replaced while it was read; open it again", place.string(), 1};
    const auto length = static_cast<std::uint64_t>(now.st_size);
    if (length != size)
        return Error{fmt::format("changed while it was read: it had {} bytes and has {}", size, length), place.string(), 1};
    if (now.st_mtim.tv_sec != seconds || now.st_mtim.tv_nsec != nanoseconds)
        return Error{"was written to while it was read; open it again when its writer is done", place.string(), 1};
    return base::ok();
}

Status Hdf5Bytes::still_at_place() const {
    struct stat now {};
    if (::stat(place.c_str(), &now) != 0) return system_error("cannot look at", place, errno);
    if (now.st_dev != device || now.st_ino != number)
        return Error{"was replaced while it was opened; open it again", place.string(), 1};
    return base::ok();
}

Status Hdf5Bytes::read(std::uint64_t address, std::span<std::byte> into, std::string_view what) const {
    std::uint64_t at = 0;
    if (__builtin_add_overflow(address, base, &at) || at > size || into.size() > size - at)
        return Error{fmt::format("{} lies at byte {} with {} bytes, but the file has {}: truncated or damaged", what, address,
                                 into.size(), size),
                     place.string()};
    return read_exactly(file, into, at, place);
}

std::uint64_t Hdf5Geometry::row_bytes() const {
    std::uint64_t bytes = element;
    for (std::size_t axis = 1; axis < dims.size(); ++axis) bytes *= dims[axis];
    return bytes;
}

std::uint64_t Hdf5Geometry::chunk_bytes() const {
    std::uint64_t bytes = element;
    for (const std::uint64_t extent : chunk) bytes *= extent;
    return bytes;
}

Status Hdf5Geometry::check(const Path& place) const {
    constexpr std::uint64_t kLargestChunk = 0xffffffffu;  // the format's limit
    const auto refuse = [&](std::string_view what) {
        return Error{fmt::format("data set '{}' of shape [{}] {}", name, fmt::join(dims, ", "), what), place.string()};
    };
    if (dims.empty() || dims.size() > 32) return refuse("needs 1 to 32 axes");
    std::uint64_t bytes = element;
    for (const std::uint64_t extent : dims)
        // An empty set is not larger than its other axes.
        if (__builtin_mul_overflow(bytes, std::max<std::uint64_t>(extent, 1), &bytes) || bytes >> 62 != 0)
            return refuse("is larger than any file");
    if (chunk.empty()) return base::ok();
    if (chunk.size() != dims.size()) return refuse(fmt::format("has chunks of {} axes", chunk.size()));
    bytes = element;
    for (const std::uint64_t extent : chunk)
        if (extent == 0 || __builtin_mul_overflow(bytes, extent, &bytes) || bytes > kLargestChunk)
            return refuse(fmt::format("has chunks of [{}]; they must have 1 byte to 4 GiB", fmt::join(chunk, ", ")));
    return base::ok();
}

}  // namespace millrace::io
