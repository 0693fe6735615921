// The layout message of a data set's object header.

#include <fmt/format.h>

#include <algorithm>

#include "io/hdf5_walk.h"

namespace millrace::io {
namespace {

constexpr std::uint64_t kLayoutMessage = 0x08, kContinuation = 0x10;

Hdf5Storage unknown_storage(std::string reason) {
    Hdf5Storage storage;
    storage.unknown = std::move(reason);
    return storage;
}

/// Version 3: chunks in a B-tree of version 1.
Result<Hdf5Storage> tree_storage(Hdf5Walk& walk, Hdf5Cursor message) {
    const Hdf5Geometry& geometry = walk.geometry();
    const std::uint64_t axes = message.take(1);
    Hdf5Storage storage;
    storage.kind = Hdf5Storage::Kind::kTree;
    storage.address = message.address();
    bool same = axes == geometry.dims.size() + 1;
    for (std::size_t axis = 0; same && axis < geometry.chunk.size(); ++axis) same = message.take(4) == geometry.chunk[axis];
    same = same && message.take(4) == geometry.element;
    if (!same || !message.ok()) return walk.damaged("its layout contradicts its shape");
    return storage;
}

/// Version 4, of files that ask for the newest format.
Result<Hdf5Storage> newer_storage(Hdf5Walk& walk, Hdf5Cursor message) {
    constexpr std::uint64_t kUnfilteredEdges = 1, kSingleFiltered = 2;
    using Kind = Hdf5Storage::Kind;
    const Hdf5Geometry& geometry = walk.geometry();
    const std::uint64_t flags = message.take(1), axes = message.take(1), width = message.take(1);
    bool same = axes == geometry.dims.size() + 1;
    for (std::size_t axis = 0; same && axis < geometry.chunk.size(); ++axis) same = message.take(width) == geometry.chunk[axis];
    same = same && message.take(width) == geometry.element;
    const std::uint64_t kind = message.take(1);
    if (!same || !message.ok()) return walk.damaged("its layout contradicts its shape");
    if ((flags & kUnfilteredEdges) != 0) return unknown_storage("chunks at the edges are stored unfiltered");
    Hdf5Storage storage;
    switch (kind) {
        case 1:
            storage.kind = Kind::kSingle;
            if ((flags & kSingleFiltered) != 0) {
                storage.single_bytes = message.take(8);
                storage.single_skipped = static_cast<std::uint32_t>(message.take(4));
            }
            break;
        case 2: storage.kind = Kind::kImplicit; break;
        case 3:
            storage.kind = Kind::kFixedArray;
            message.part(1);
            break;
        case 4:
            storage.kind = Kind::kGrowingArray;
            message.part(5);
            break;
        case 5: return unknown_storage("the chunk index is a version 2 B-tree");
        default: return unknown_storage(fmt::format("the chunk index is of kind {}", kind));
    }
    storage.address = message.address();
    if (!message.ok()) return walk.damaged("its layout message is too short");
    return storage;
}

Result<Hdf5Storage> storage_of(Hdf5Walk& walk, Bytes content) {
    Hdf5Cursor message(content);
    const std::uint64_t version = message.take(1);
    if (version != 3 && version != 4) return unknown_storage(fmt::format("the layout message has version {}", version));
    if (message.take(1) != 2) return walk.damaged("its layout is not chunked, as the library says");
    return version == 3 ? tree_storage(walk, message) : newer_storage(walk, message);
}

struct HeaderBlock {
    std::uint64_t address, length;
};

}  // namespace

Result<Hdf5Storage> find_storage(Hdf5Walk& walk, std::uint64_t header) {
    constexpr std::uint64_t kLongestPrefix = 34;
    const std::uint64_t room = header < walk.file_size() ? walk.file_size() - header : 0;
    MILLRACE_LET(prefix, walk.take(header, std::min(kLongestPrefix, room), "its object header"));
    Hdf5Cursor cursor(prefix);
    const bool second = prefix.size() >= 4 && Hdf5Cursor(prefix).signature("OHDR");
    std::vector<HeaderBlock> blocks;
    std::size_t message_head = 8;
    if (second) {
        cursor.part(5);
        const std::uint64_t flags = cursor.take(1);
        if ((flags & 0x20u) != 0) cursor.part(16);
        if ((flags & 0x10u) != 0) cursor.part(4);
        const std::uint64_t length = cursor.take(std::size_t{1} << (flags & 3u));
        message_head = (flags & 4u) != 0 ? 6 : 4;
        blocks.push_back({header + prefix.size() - cursor.left(), length});
    } else {
        if (cursor.take(1) != 1) return walk.damaged(fmt::format("no object header at byte {}", header));
        cursor.part(7);
        blocks.push_back({header + 16, cursor.take(4)});
    }
    if (!cursor.ok()) return walk.damaged(fmt::format("its object header at byte {} is cut off", header));
    for (std::size_t block = 0; block < blocks.size(); ++block) {
        MILLRACE_LET(bytes, walk.take(blocks[block].address, blocks[block].length, "its object header"));
        Hdf5Cursor messages(bytes);
        if (second && block > 0 && !messages.signature("OCHK"))
            return walk.damaged("its object header goes on where there is none");
        while (messages.left() >= message_head) {
            const std::uint64_t type = messages.take(second ? 1 : 2), length = messages.take(2);
            messages.part(message_head - (second ? 3 : 4));
            if (length > messages.left()) break;  // the checksum and the gap before it
            const Bytes content = messages.part(length);
            if (type == kLayoutMessage) return storage_of(walk, content);
            if (type != kContinuation) continue;
            Hdf5Cursor next(content);
            const std::uint64_t address = next.address();
            blocks.push_back({address, next.take(8)});
        }
    }
    return walk.damaged("its object header has no layout");
}

}  // namespace millrace::io
