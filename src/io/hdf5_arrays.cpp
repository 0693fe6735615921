// The chunk indexes of files in the newest format: arrays in the order of the chunks.

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "io/hdf5_walk.h"

namespace millrace::io {
namespace {

constexpr std::uint64_t kChecksum = 4, kBlockHead = 14;  // head: signature, version, client, address of the header

std::uint64_t chunks_along(std::uint64_t extent, std::uint64_t chunk) { return extent / chunk + (extent % chunk != 0 ? 1 : 0); }

bool has_width(const Hdf5Geometry& geometry, std::uint64_t width) {
    return geometry.filters.empty() ? width == 8 : width > 12 && width <= 20;
}

/// Which pages were ever written: a bit each, the highest of a byte first.
struct PageMarks {
    Bytes bytes;
    std::uint64_t first = 0;  // bit of the block's first page

    [[nodiscard]] std::optional<bool> operator[](std::uint64_t page) const {
        const std::uint64_t bit = first + page;
        if (bit / 8 >= bytes.size()) return std::nullopt;
        return (std::to_integer<unsigned>(bytes[bit / 8]) >> (7 - bit % 8) & 1u) != 0;
    }
};

Status add_pages(Hdf5Walk& walk, std::uint64_t address, std::uint64_t elements, std::uint64_t page, std::size_t width,
                 PageMarks marks, std::uint64_t first, bool growing) {
    for (std::uint64_t number = 0; number * page < elements; ++number) {
        const std::uint64_t count = std::min(page, elements - number * page);
        const std::optional<bool> written = marks[number];
        if (!written) return walk.damaged("a page of its chunk index has no mark");
        if (!*written) continue;
        MILLRACE_LET(bytes, walk.take(address + number * (page * width + kChecksum), count * width, "a page of its chunk index"));
        MILLRACE_TRY(add_entries(walk, bytes, width, first + number * page, growing));
    }
    return base::ok();
}

/// What the header of an extensible array says.
struct GrowingArray {
    std::uint64_t width, bits, direct, smallest, pointers, page;
    std::uint64_t block_head;  // bytes before the elements of a data block
    std::uint64_t set;         // elements that were ever written

    /// Data blocks below super block `number`, and elements of each.
    [[nodiscard]] static std::uint64_t blocks(std::uint64_t number) { return std::uint64_t{1} << (number / 2); }
    [[nodiscard]] std::uint64_t elements(std::uint64_t number) const { return smallest << ((number + 1) / 2); }
};

Status add_data_block(Hdf5Walk& walk, const GrowingArray& array, std::uint64_t address, std::uint64_t elements, PageMarks pages,
                      std::uint64_t first) {
    if (address == kHdf5Nowhere) return base::ok();
    MILLRACE_LET(head, walk.take(address, array.block_head, "a block of its chunk index"));
    if (!Hdf5Cursor(head).signature("EADB")) return walk.damaged(fmt::format("no block of its chunk index at byte {}", address));
    address += array.block_head;
    if (elements > array.page) return add_pages(walk, address + kChecksum, elements, array.page, array.width, pages, first, true);
    MILLRACE_LET(bytes, walk.take(address, elements * array.width, "a block of its chunk index"));
    return add_entries(walk, bytes, array.width, first, true);
}

Status add_super_block(Hdf5Walk& walk, const GrowingArray& array, std::uint64_t address, std::uint64_t number,
                       std::uint64_t first) {
    if (address == kHdf5Nowhere) return base::ok();
    const std::uint64_t blocks = GrowingArray::blocks(number), elements = array.elements(number);
    const std::uint64_t marks = elements > array.page ? (elements / array.page + 7) / 8 : 0;
    MILLRACE_LET(bytes, walk.take(address, array.block_head + blocks * (marks + 8), "a block of its chunk index"));
    Hdf5Cursor cursor(bytes);
    if (!cursor.signature("EASB")) return walk.damaged(fmt::format("no block of its chunk index at byte {}", address));
    cursor.part(array.block_head - 4);
    const Bytes pages = cursor.part(blocks * marks);
    // The marks of all its blocks follow each other bit by bit; the room is for whole bytes.
    const std::uint64_t pages_each = elements / array.page;
    for (std::uint64_t block = 0; block < blocks; ++block)
        MILLRACE_TRY(
            add_data_block(walk, array, cursor.address(), elements, {pages, block * pages_each}, first + block * elements));
    return base::ok();
}

}  // namespace

std::vector<std::uint64_t> scaled_of(const Hdf5Geometry& geometry, std::uint64_t number, bool growing) {
    const std::size_t axes = geometry.dims.size();
    std::size_t slowest = 0;
    if (growing)
        while (slowest + 1 < axes && geometry.most[slowest] != kHdf5Unlimited) ++slowest;
    std::vector<std::uint64_t> scaled(axes, 0);
    const auto take = [&](std::size_t axis) {
        const std::uint64_t along = std::max<std::uint64_t>(chunks_along(geometry.most[axis], geometry.chunk[axis]), 1);
        scaled[axis] = number % along;
        number /= along;
    };
    for (std::size_t axis = axes; axis-- > 0;)
        if (axis != slowest) take(axis);
    if (growing)
        scaled[slowest] = number;
    else
        take(slowest);
    if (!growing && number > 0) return {};
    return scaled;
}

Status add_entries(Hdf5Walk& walk, Bytes entries, std::size_t width, std::uint64_t first, bool growing) {
    const Hdf5Geometry& geometry = walk.geometry();
    Hdf5Cursor cursor(entries);
    for (std::uint64_t number = first; cursor.left() >= width; ++number) {
        Hdf5Chunk chunk;
        chunk.address = cursor.address();
        chunk.bytes = geometry.filters.empty() ? geometry.chunk_bytes() : cursor.take(width - 12);
        if (!geometry.filters.empty()) chunk.skipped = static_cast<std::uint32_t>(cursor.take(4));
        if (chunk.address == kHdf5Nowhere) continue;
        const std::vector<std::uint64_t> scaled = scaled_of(geometry, number, growing);
        if (!scaled.empty()) MILLRACE_TRY(walk.add_scaled(scaled.data(), chunk));
    }
    return base::ok();
}

Status walk_fixed_array(Hdf5Walk& walk, std::uint64_t header) {
    MILLRACE_LET(bytes, walk.take(header, 24, "its chunk index"));
    Hdf5Cursor cursor(bytes);
    const bool is_array = cursor.signature("FAHD");
    cursor.part(2);
    const std::uint64_t width = cursor.take(1), page_bits = cursor.take(1), elements = cursor.take(8), block = cursor.address();
    if (!is_array || !has_width(walk.geometry(), width) || page_bits > 32 || elements > walk.file_size() * 1024)
        return walk.damaged(fmt::format("no fixed array of chunks at byte {}", header));
    if (block == kHdf5Nowhere) return base::ok();
    const std::uint64_t page = std::uint64_t{1} << page_bits;
    const std::uint64_t marks = elements > page ? ((elements + page - 1) / page + 7) / 8 : 0;
    MILLRACE_LET(head, walk.take(block, kBlockHead + marks, "its chunk index"));
    if (!Hdf5Cursor(head).signature("FADB")) return walk.damaged(fmt::format("no fixed array of chunks at byte {}", block));
    const std::uint64_t begin = block + kBlockHead + marks;
    if (marks > 0) return add_pages(walk, begin + kChecksum, elements, page, width, {Bytes(head).subspan(kBlockHead)}, 0, false);
    MILLRACE_LET(entries, walk.take(begin, elements * width, "its chunk index"));
    return add_entries(walk, entries, width, 0, false);
}

Status walk_growing_array(Hdf5Walk& walk, std::uint64_t header) {
    MILLRACE_LET(bytes, walk.take(header, 68, "its chunk index"));
    Hdf5Cursor cursor(bytes);
    const bool is_array = cursor.signature("EAHD");
    cursor.part(2);
    GrowingArray array{};
    array.width = cursor.take(1);
    array.bits = cursor.take(1);
    array.direct = cursor.take(1);
    array.smallest = cursor.take(1);
    array.pointers = cursor.take(1);
    const std::uint64_t page_bits = cursor.take(1);
    cursor.part(32);
    array.set = cursor.take(8);
    cursor.part(8);
    const std::uint64_t index_block = cursor.address();
    if (!is_array || !has_width(walk.geometry(), array.width) || array.bits > 48 || page_bits > 32 ||
        !std::has_single_bit(array.smallest) || !std::has_single_bit(array.pointers) || array.pointers > 64)
        return walk.damaged(fmt::format("no extensible array of chunks at byte {}", header));
    if (index_block == kHdf5Nowhere) return base::ok();
    array.page = std::uint64_t{1} << page_bits;
    array.block_head = kBlockHead + (array.bits + 7) / 8;
    const std::uint64_t smallest_bits = std::bit_width(array.smallest) - 1;
    const std::uint64_t supers = 1 + array.bits - std::min(array.bits, smallest_bits);
    const std::uint64_t below = std::min<std::uint64_t>(2 * (std::bit_width(array.pointers) - 1), supers);
    const std::uint64_t blocks = 2 * (array.pointers - 1);
    MILLRACE_LET(content, walk.take(index_block, kBlockHead + array.direct * array.width + 8 * (blocks + supers - below),
                                    "its chunk index"));
    Hdf5Cursor inside(content);
    if (!inside.signature("EAIB")) return walk.damaged(fmt::format("no extensible array of chunks at byte {}", index_block));
    inside.part(kBlockHead - 4);
    MILLRACE_TRY(add_entries(walk, inside.part(array.direct * array.width), array.width, 0, true));
    std::uint64_t first = array.direct;
    for (std::uint64_t number = 0; number < supers && first < array.set; ++number) {
        const std::uint64_t elements = array.elements(number), count = GrowingArray::blocks(number);
        if (number < below) {
            for (std::uint64_t block = 0; block < count; ++block)
                MILLRACE_TRY(add_data_block(walk, array, inside.address(), elements, {}, first + block * elements));
        } else {
            MILLRACE_TRY(add_super_block(walk, array, inside.address(), number, first));
        }
        if (!inside.ok()) return walk.damaged("its chunk index is too short");
        first += count * elements;
    }
    return base::ok();
}

}  // namespace millrace::io
