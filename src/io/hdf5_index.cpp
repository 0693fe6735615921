#include <fmt/format.h>

#include <algorithm>

#include "io/hdf5_walk.h"

namespace millrace::io {
namespace {

/// Deflate packs at most 1032 bytes into one.
constexpr std::uint64_t kDeflateRatio = 1032;

}  // namespace

Hdf5Walk::Hdf5Walk(const Hdf5Bytes& file, const Hdf5Geometry& geometry)
    : file_(file), geometry_(geometry), budget_(file.size), grid_(geometry.dims.size()) {
    for (std::size_t axis = 0; axis < grid_.size(); ++axis)
        grid_[axis] = geometry.dims[axis] / geometry.chunk[axis] + (geometry.dims[axis] % geometry.chunk[axis] != 0 ? 1 : 0);
}

Error Hdf5Walk::damaged(std::string_view what) const {
    return Error{fmt::format("data set '{}': {}: truncated or damaged", geometry_.name, what), file_.place.string()};
}

Result<std::vector<std::byte>> Hdf5Walk::take(std::uint64_t address, std::uint64_t length, std::string_view what) {
    if (length > budget_)
        return damaged(fmt::format("{} at byte {} makes the index larger than the file, or leads in a circle", what, address));
    budget_ -= length;
    // Before the bytes are allocated.
    if (address > file_.size || length > file_.size - address)
        return damaged(fmt::format("{} lies at byte {} with {} bytes, but the file has {}", what, address, length, file_.size));
    std::vector<std::byte> bytes(length);
    MILLRACE_TRY(file_.read(address, bytes, fmt::format("data set '{}': {}", geometry_.name, what)));
    return bytes;
}

Status Hdf5Walk::add(const std::uint64_t* origin, Hdf5Chunk chunk) {
    chunk.number = 0;
    bool is_beyond = false;
    for (std::size_t axis = 0; axis < grid_.size(); ++axis) {
        if (origin[axis] % geometry_.chunk[axis] != 0)
            return damaged(
                fmt::format("a chunk begins at {} along axis {}, no multiple of {}", origin[axis], axis, geometry_.chunk[axis]));
        const std::uint64_t scaled = origin[axis] / geometry_.chunk[axis];
        is_beyond = is_beyond || scaled >= grid_[axis];
        chunk.number = chunk.number * grid_[axis] + scaled;
    }
    if (is_beyond) return base::ok();
    const std::uint64_t whole = geometry_.chunk_bytes();
    const auto is_gzip = [&](std::size_t i) {
        return geometry_.filters[i] == Hdf5Filter::kGzip && (chunk.skipped >> i & 1u) == 0;
    };
    bool packed = false;
    for (std::size_t i = 0; i < geometry_.filters.size(); ++i) packed = packed || is_gzip(i);
    std::uint64_t end = 0;
    if (__builtin_add_overflow(chunk.address, chunk.bytes, &end) || end > file_.size - std::min(file_.base, file_.size))
        return damaged(fmt::format("chunk {} lies at byte {} with {} bytes, but the file has {}", chunk.number, chunk.address,
                                   chunk.bytes, file_.size));
    if (!packed && chunk.bytes != whole)
        return damaged(
            fmt::format("chunk {} is not compressed and has {} bytes instead of {}", chunk.number, chunk.bytes, whole));
    // So that a lie about the size costs no memory.
    if (packed && (chunk.bytes == 0 || whole / chunk.bytes > kDeflateRatio))
        return damaged(fmt::format("chunk {} cannot unpack {} bytes to {}", chunk.number, chunk.bytes, whole));
    index.chunks.push_back(chunk);
    return base::ok();
}

Status Hdf5Walk::finish() {
    std::ranges::sort(index.chunks, {}, &Hdf5Chunk::address);
    for (std::size_t i = 1; i < index.chunks.size(); ++i)
        if (index.chunks[i].address < index.chunks[i - 1].address + index.chunks[i - 1].bytes)
            return damaged(fmt::format("chunks {} and {} overlap at byte {}", index.chunks[i - 1].number, index.chunks[i].number,
                                       index.chunks[i].address));
    std::ranges::sort(index.chunks, {}, &Hdf5Chunk::number);
    const auto twice = std::ranges::adjacent_find(index.chunks, {}, &Hdf5Chunk::number);
    if (twice != index.chunks.end()) return damaged(fmt::format("chunk {} is there twice", twice->number));
    return base::ok();
}

Result<std::optional<Hdf5Index>> index_chunks(const Hdf5Bytes& file, std::uint64_t header, const Hdf5Geometry& geometry) {
    MILLRACE_TRY(geometry.check(file.place));
    Hdf5Walk walk(file, geometry);
    MILLRACE_LET(tree, find_tree(walk, header));
    if (!tree) return std::optional<Hdf5Index>{};
    if (*tree != kHdf5Nowhere) MILLRACE_TRY(walk_tree(walk, *tree));
    MILLRACE_TRY(walk.finish());
    return std::optional(std::move(walk.index));
}

}  // namespace millrace::io
