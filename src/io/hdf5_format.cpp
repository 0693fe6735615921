// Rows out of raw bytes and packed chunks.
#include "io/hdf5_format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <libdeflate.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>

namespace millrace::io {
namespace {

constexpr std::size_t kKeptBytes = std::size_t{64} << 20;  // that a thread keeps for its next chunk

/// What a thread needs to unpack chunks; it keeps it from call to call.
struct Unpacker {
    struct Free {
        void operator()(libdeflate_decompressor* inflater) const { ::libdeflate_free_decompressor(inflater); }
    };
    std::unique_ptr<libdeflate_decompressor, Free> inflater{::libdeflate_alloc_decompressor()};
    Hdf5Chunk chunk;
    std::vector<std::byte> whole, shuffled;

    void trim() {
        for (std::vector<std::byte>* buffer : {&chunk.stored, &whole, &shuffled})
            if (buffer->capacity() > kKeptBytes) std::vector<std::byte>().swap(*buffer);
    }
};

Unpacker& unpacker() {
    thread_local Unpacker mine;
    return mine;
}

template <std::size_t Width>
void unshuffle_by(const std::byte* from, std::size_t count, std::byte* to) {
    for (std::size_t i = 0; i < count; ++i)
        for (std::size_t rank = 0; rank < Width; ++rank) to[i * Width + rank] = from[rank * count + i];
}

/// Bytes of equal rank lie side by side in `from`; `to` has the elements. A size of 1, 2, 4 or 8.
void unshuffle(Bytes from, std::size_t element, std::byte* to) {
    const std::size_t count = from.size() / element;
    switch (element) {
        case 2: return unshuffle_by<2>(from.data(), count, to);
        case 4: return unshuffle_by<4>(from.data(), count, to);
        case 8: return unshuffle_by<8>(from.data(), count, to);
        default: std::memcpy(to, from.data(), from.size());
    }
}

/// Repeats one element.
void fill_elements(const Hdf5Geometry& geometry, std::byte* to, std::size_t bytes) {
    const std::byte* const fill = geometry.fill.data();
    if (std::all_of(fill, fill + geometry.element, [](std::byte byte) { return byte == std::byte{0}; })) {
        std::memset(to, 0, bytes);
        return;
    }
    for (std::size_t at = 0; at < bytes; at += geometry.element) std::memcpy(to + at, fill, geometry.element);
}

/// Undoes the filters of the thread's chunk; `to` has the chunk's whole size.
Status unpack_chunk(const Path& place, const Hdf5Geometry& geometry, std::span<std::byte> to) {
    Unpacker& tools = unpacker();
    const Hdf5Chunk& chunk = tools.chunk;
    const auto damaged = [&](std::string_view what) {
        return Error{fmt::format("data set '{}': chunk {} {}: damaged", geometry.name, chunk.number, what), place.string()};
    };
    bool packed = false, is_shuffled = false;
    for (std::size_t i = 0; i < geometry.filters.size(); ++i) {
        if ((chunk.skipped >> i & 1u) != 0) continue;
        (geometry.filters[i] == Hdf5Filter::kGzip ? packed : is_shuffled) = true;
    }
    is_shuffled = is_shuffled && geometry.element > 1;
    std::span<std::byte> plain = to;
    if (is_shuffled) {
        tools.shuffled.resize(to.size());
        plain = tools.shuffled;
    }
    if (packed) {
        const libdeflate_result done = ::libdeflate_zlib_decompress(tools.inflater.get(), chunk.stored.data(),
                                                                    chunk.stored.size(), plain.data(), plain.size(), nullptr);
        if (done == LIBDEFLATE_BAD_DATA) return damaged("does not unpack");
        if (done != LIBDEFLATE_SUCCESS) return damaged(fmt::format("does not unpack to its {} bytes", plain.size()));
    } else {
        if (chunk.stored.size() != plain.size())
            return damaged(fmt::format("has {} bytes instead of {}", chunk.stored.size(), plain.size()));
        std::ranges::copy(chunk.stored, plain.begin());
    }
    if (is_shuffled) unshuffle(plain, geometry.element, to.data());
    return base::ok();
}

/// The part of one chunk that lies in the wanted rows, along each axis of the chunk.
struct Window {
    std::size_t axes = 0;
    std::array<std::uint64_t, 32> begin{}, extent{};  // inside the chunk
    std::uint64_t target = 0;                         // byte in the output of its first element
    bool whole = false;                               // the chunk is one piece of the output
};

/// Calls `piece(byte in the chunk, byte in the output, bytes)` for each run of a window.
template <class Piece>
void for_each_run(const Hdf5Geometry& geometry, const Window& window, Piece piece) {
    // Axes that are whole in chunk and output are one run with the axis before them.
    std::size_t last = window.axes - 1;
    std::uint64_t unit = geometry.element;
    while (last > 0 && geometry.chunk[last] == geometry.dims[last]) unit *= geometry.dims[last--];
    std::array<std::uint64_t, 32> from_stride{}, to_stride{}, at{};
    std::uint64_t from = unit, to = unit;
    for (std::size_t axis = last + 1; axis-- > 0;) {
        from_stride[axis] = from;
        to_stride[axis] = to;
        from *= geometry.chunk[axis];
        to *= geometry.dims[axis];
    }
    std::uint64_t source = 0, target = window.target;
    for (std::size_t axis = 0; axis <= last; ++axis) source += window.begin[axis] * from_stride[axis];
    for (;;) {
        piece(source, target, window.extent[last] * unit);
        std::size_t axis = last;
        for (;;) {
            if (axis == 0) return;
            --axis;
            source += from_stride[axis];
            target += to_stride[axis];
            if (++at[axis] < window.extent[axis]) break;
            source -= at[axis] * from_stride[axis];
            target -= at[axis] * to_stride[axis];
            at[axis] = 0;
        }
    }
}

Window window_of(const Hdf5Geometry& geometry, const std::array<std::uint64_t, 32>& scaled, std::uint64_t first,
                 std::uint64_t count) {
    Window window;
    window.axes = geometry.dims.size();
    window.whole = true;
    std::uint64_t stride = geometry.element;
    for (std::size_t axis = window.axes; axis-- > 0;) {
        const std::uint64_t origin = scaled[axis] * geometry.chunk[axis];
        const std::uint64_t low = axis == 0 ? std::max(origin, first) : origin;
        const std::uint64_t limit = axis == 0 ? first + count : geometry.dims[axis];
        const std::uint64_t high = std::min(limit, origin + geometry.chunk[axis]);
        window.begin[axis] = low - origin;
        window.extent[axis] = high - low;
        window.target += (axis == 0 ? low - first : low) * stride;
        window.whole = window.whole && window.extent[axis] == geometry.chunk[axis] &&
                       (axis == 0 || geometry.chunk[axis] == geometry.dims[axis]);
        stride *= geometry.dims[axis];
    }
    return window;
}

/// Copies the window of the thread's chunk to its part of `out`.
Status copy_chunk(const Path& place, const Hdf5Geometry& geometry, const Window& window, std::byte* out) {
    if (unpacker().chunk.stored.empty()) {
        for_each_run(geometry, window,
                     [&](std::uint64_t, std::uint64_t to, std::uint64_t bytes) { fill_elements(geometry, out + to, bytes); });
        return base::ok();
    }
    constexpr std::uint64_t kMostPacked = 1032;  // bytes that gzip packs into one: a forged size asks for no memory
    const std::uint64_t bytes = geometry.chunk_bytes();
    if (bytes / kMostPacked > unpacker().chunk.stored.size())
        return Error{fmt::format("data set '{}': {} bytes cannot be a chunk of {}: damaged", geometry.name,
                                 unpacker().chunk.stored.size(), bytes),
                     place.string()};
    if (window.whole) return unpack_chunk(place, geometry, {out + window.target, bytes});
    std::vector<std::byte>& whole = unpacker().whole;
    whole.resize(bytes);
    MILLRACE_TRY(unpack_chunk(place, geometry, whole));
    for_each_run(geometry, window, [&](std::uint64_t from, std::uint64_t to, std::uint64_t run) {
        std::memcpy(out + to, whole.data() + from, run);
    });
    return base::ok();
}

}  // namespace

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

Status read_contiguous_rows(const Hdf5Bytes& file, const Hdf5Geometry& geometry, std::uint64_t address, std::uint64_t first,
                            std::uint64_t count, std::span<std::byte> out) {
    if (count == 0 || out.empty()) return base::ok();
    if (address == kHdf5Nowhere) {
        fill_elements(geometry, out.data(), out.size());
        return base::ok();
    }
    const std::uint64_t begin = first * geometry.row_bytes();
    std::uint64_t at = 0;
    if (__builtin_add_overflow(address, begin, &at)) at = kHdf5Nowhere;
    return file.read(at, out, fmt::format("data set '{}'", geometry.name));
}

Status read_chunked_rows(const Path& place, const Hdf5Geometry& geometry, const Hdf5Fetch& fetch, std::uint64_t first,
                         std::uint64_t count, std::span<std::byte> out) {
    if (count == 0 || out.empty()) return base::ok();
    if (unpacker().inflater == nullptr) return Error{"not enough memory to unpack chunks", place.string(), 1};
    const std::size_t axes = geometry.dims.size();
    std::array<std::uint64_t, 32> grid{}, scaled{}, origin{};
    for (std::size_t axis = 0; axis < axes; ++axis) grid[axis] = (geometry.dims[axis] - 1) / geometry.chunk[axis] + 1;
    scaled[0] = first / geometry.chunk[0];
    const std::uint64_t end = (first + count - 1) / geometry.chunk[0] + 1;
    try {
        while (scaled[0] < end) {
            Hdf5Chunk& chunk = unpacker().chunk;
            chunk.number = 0;
            for (std::size_t axis = 0; axis < axes; ++axis) {
                chunk.number = chunk.number * grid[axis] + scaled[axis];
                origin[axis] = scaled[axis] * geometry.chunk[axis];
            }
            MILLRACE_TRY(fetch(origin.data(), chunk));
            MILLRACE_TRY(copy_chunk(place, geometry, window_of(geometry, scaled, first, count), out.data()));
            std::size_t axis = axes - 1;
            while (axis > 0 && ++scaled[axis] == grid[axis]) scaled[axis--] = 0;
            if (axis == 0) ++scaled[0];
        }
    } catch (const std::bad_alloc&) {
        return Error{
            fmt::format("data set '{}': not enough memory for a chunk of {} bytes", geometry.name, geometry.chunk_bytes()),
            place.string(), 1};
    }
    unpacker().trim();
    return base::ok();
}

}  // namespace millrace::io
