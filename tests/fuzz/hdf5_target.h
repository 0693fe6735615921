#pragma once
// What the fuzzer does with one input, and what an ordinary test does with each input of the corpus: the input says what data set
// is looked for (address of its object header, two bytes; element size; filters; number of axes; of each axis extent, most and
// chunk) and goes on with the bytes of a file. The library, whose descriptions these numbers stand for, is left out. Whatever the
// bytes are, rows or an error come out, the same ones twice, and rows one by one are the rows at once.

#include <algorithm>
#include <string_view>
#include <vector>

#include "io/hdf5_format.h"

namespace millrace::fuzz {

struct Hdf5Input {
    io::Hdf5Geometry geometry;
    std::uint64_t header = 0;
    std::string_view file;
};

inline Hdf5Input hdf5_input(std::string_view bytes) {
    const auto take = [&]() -> std::uint64_t {
        if (bytes.empty()) return 0;
        const auto value = static_cast<unsigned char>(bytes.front());
        bytes.remove_prefix(1);
        return value;
    };
    Hdf5Input input;
    input.header = take();
    input.header |= take() << 8;
    input.geometry.name = "x";
    input.geometry.element = std::size_t{1} << (take() & 3u);
    const std::uint64_t filters = take();
    if ((filters & 1u) != 0) input.geometry.filters.push_back(io::Hdf5Filter::kShuffle);
    if ((filters & 2u) != 0) input.geometry.filters.push_back(io::Hdf5Filter::kGzip);
    for (std::uint64_t axes = take() % 4 + 1; axes > 0; --axes) {
        input.geometry.dims.push_back(take());
        take();  // its most, which a B-tree does not ask for
        input.geometry.chunk.push_back(take());
    }
    input.file = bytes;
    return input;
}

/// `path` is this input's alone; it is left with its file.
inline void read_hdf5_bytes(std::string_view bytes, const io::Path& path) {
    const Hdf5Input input = hdf5_input(bytes);
    const auto written = io::write_atomically(path, input.file);
    MILLRACE_ASSERT(written.ok(), written.ok() ? "" : written.error().text());
    const auto file = io::Hdf5Bytes::open(path);
    MILLRACE_ASSERT(file.ok(), "a file that was just written");
    const auto index = io::index_chunks(*file, input.header, input.geometry),
               again = io::index_chunks(*file, input.header, input.geometry);
    MILLRACE_ASSERT(index.ok() == again.ok(), "the same file is sound once and once not");
    if (!index.ok()) {
        MILLRACE_ASSERT(!index.error().message.empty() && index.error().place == path.string(),
                        "an error without reason or place");
        return;
    }
    if (!*index) return;
    const std::uint64_t rows = input.geometry.dims[0], row = input.geometry.row_bytes();
    if (rows == 0 || row == 0 || rows * row > (1u << 16)) return;
    std::vector<std::byte> all(rows * row), single(row);
    const bool sound = io::read_chunked_rows(*file, input.geometry, **index, 0, rows, all).ok();
    for (std::uint64_t i = 0; i < rows; ++i) {
        const bool one = io::read_chunked_rows(*file, input.geometry, **index, i, 1, single).ok();
        MILLRACE_ASSERT(one || !sound, "a row of a sound set is not");
        if (sound)
            MILLRACE_ASSERT(std::equal(single.begin(), single.end(), all.begin() + static_cast<std::ptrdiff_t>(i * row)),
                            "a row differs");
    }
}

}  // namespace millrace::fuzz
