#include <fmt/format.h>
#include <algorithm>

#include <array>

#include "io/hdf5_walk.h"

namespace millrace::io {
namespace {

constexpr std::uint64_t kTreeHead = 24;  // signature, type, level, entries, two neighbours

struct TreePlace {
    std::uint64_t address;
    unsigned level;  // of the node above; the root may have any
};

}  // namespace

Status walk_tree(Hdf5Walk& walk, std::uint64_t root) {
    const std::size_t axes = walk.geometry().dims.size();
    const std::uint64_t key = 8 + 8 * (axes + 1);
    std::vector<TreePlace> waiting{{root, 256}};
    while (!waiting.empty()) {
        const TreePlace place = waiting.back();
        waiting.pop_back();
        MILLRACE_LET(head, walk.take(place.address, kTreeHead, "a node of the B-tree"));
        Hdf5Cursor top(head);
        const bool is_node = top.signature("TREE") && top.take(1) == 1;
        const auto level = static_cast<unsigned>(top.take(1));
        const std::uint64_t entries = top.take(2);
        if (!is_node) return walk.damaged(fmt::format("no B-tree of chunks at byte {}", place.address));
        // Levels fall, so the way down ends.
        if (level >= place.level)
            return walk.damaged(
                fmt::format("the B-tree's node at byte {} has level {}, the one above {}", place.address, level, place.level));
        MILLRACE_LET(body, walk.take(place.address + kTreeHead, entries * (key + 8), "a node of the B-tree"));
        Hdf5Cursor cursor(body);
        for (std::uint64_t i = 0; i < entries; ++i) {
            Hdf5Chunk chunk;
            chunk.bytes = cursor.take(4);
            chunk.skipped = static_cast<std::uint32_t>(cursor.take(4));
            std::array<std::uint64_t, 33> origin{};
            for (std::size_t axis = 0; axis <= axes; ++axis) origin[axis] = cursor.take(8);
            chunk.address = cursor.address();
            if (level > 0)
                waiting.push_back({chunk.address, level});
            else
                MILLRACE_TRY(walk.add(origin.data(), chunk));
        }
    }
    return base::ok();
}

}  // namespace millrace::io
