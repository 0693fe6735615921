// The layout message of a data set's object header, in the versions that the library writes unless it is asked for newer ones.

#include <fmt/format.h>
#include <algorithm>

#include "io/hdf5_walk.h"

namespace millrace::io {
namespace {

constexpr std::uint64_t kLayoutMessage = 0x08, kContinuation = 0x10;
constexpr std::uint64_t kPrefix = 16, kMessageHead = 8;

/// Version 3: chunks in a B-tree of version 1.
Result<std::optional<std::uint64_t>> tree_of(Hdf5Walk& walk, Bytes content) {
    const Hdf5Geometry& geometry = walk.geometry();
    Hdf5Cursor message(content);
    if (message.take(1) != 3) return std::optional<std::uint64_t>{};
    if (message.take(1) != 2) return walk.damaged("its layout is not chunked, as the library says");
    bool same = message.take(1) == geometry.dims.size() + 1;
    const std::uint64_t address = message.address();
    for (std::size_t axis = 0; same && axis < geometry.chunk.size(); ++axis) same = message.take(4) == geometry.chunk[axis];
    same = same && message.take(4) == geometry.element;
    if (!same || !message.ok()) return walk.damaged("its layout contradicts its shape");
    return std::optional(address);
}

struct HeaderBlock {
    std::uint64_t address, length;
};

}  // namespace

Result<std::optional<std::uint64_t>> find_tree(Hdf5Walk& walk, std::uint64_t header) {
    MILLRACE_LET(prefix, walk.take(header, kPrefix, "its object header"));
    Hdf5Cursor cursor(prefix);
    if (Hdf5Cursor(prefix).signature("OHDR")) return std::optional<std::uint64_t>{};
    if (cursor.take(1) != 1) return walk.damaged(fmt::format("no object header at byte {}", header));
    cursor.part(7);
    std::vector<HeaderBlock> blocks{{header + kPrefix, cursor.take(4)}};
    for (std::size_t block = 0; block < blocks.size(); ++block) {
        MILLRACE_LET(bytes, walk.take(blocks[block].address, blocks[block].length, "its object header"));
        Hdf5Cursor messages(bytes);
        while (messages.left() >= kMessageHead) {
            const std::uint64_t type = messages.take(2), length = messages.take(2);
            messages.part(4);
            if (length > messages.left()) break;
            const Bytes content = messages.part(length);
            if (type == kLayoutMessage) return tree_of(walk, content);
            if (type != kContinuation) continue;
            Hdf5Cursor next(content);
            const std::uint64_t address = next.address();
            blocks.push_back({address, next.take(8)});
        }
    }
    return walk.damaged("its object header has no layout");
}

}  // namespace millrace::io
