#pragma once
// The part of the HDF5 file format that we read ourselves: where the chunks of a data set lie that has its index in a B-tree of
// version 1. Everything in the file is taken as hostile: offsets are checked against its length, and an index may not be larger
// than the file.

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"

namespace millrace::io {

constexpr std::uint64_t kHdf5Nowhere = ~std::uint64_t{0};  ///< the format's address of what was never written

/// Length and date of a file when it was opened; read_rows() refuses one that has changed since.
struct Hdf5Bytes {
    FileDescriptor file;
    Path place;
    std::uint64_t size = 0;
    std::uint64_t base = 0;  ///< bytes before the HDF5 part (its user block); addresses count from here
    std::uint64_t device = 0, number = 0;
    std::int64_t seconds = 0, nanoseconds = 0;

    static Result<Hdf5Bytes> open(const Path& path);
    /// An error when the file was changed, replaced or deleted since it was opened.
    [[nodiscard]] Status unchanged() const;
    /// An error when the name leads to another file by now: the library opens it by name.
    [[nodiscard]] Status still_at_place() const;
    /// Fills `into` from an address of the file; beyond its end is an error that names `what`.
    Status read(std::uint64_t address, std::span<std::byte> into, std::string_view what) const;
};

enum class Hdf5Filter : std::uint8_t { kShuffle, kGzip };

/// Shape and storage of a data set, of 1 to 32 axes.
struct Hdf5Geometry {
    std::string name{};
    std::vector<std::uint64_t> dims{};
    std::size_t element = 0;             ///< bytes
    std::vector<std::uint64_t> chunk{};  ///< empty: contiguous
    std::vector<Hdf5Filter> filters{};   ///< in the order of writing
    std::array<std::byte, 8> fill{};     ///< one element, for chunks that were never written

    [[nodiscard]] std::uint64_t row_bytes() const;
    [[nodiscard]] std::uint64_t chunk_bytes() const;
    /// An error when a size overflows, or chunks do not fit the shape.
    [[nodiscard]] Status check(const Path& place) const;
};

struct Hdf5Chunk {
    std::uint64_t number = 0;   ///< of its place in the grid of chunks, row-major
    std::uint64_t address = 0;  ///< in the file; kHdf5Nowhere: fetched
    std::uint64_t bytes = 0;    ///< as stored
    std::uint32_t skipped = 0;  ///< bit i: filter i was not applied
};

/// Gives the chunk whose first element has these coordinates, as it is stored, and sets its `bytes` (0: it was never written) and
/// `skipped`.
using Hdf5Fetch = std::function<Status(const std::uint64_t* origin, Hdf5Chunk& chunk, std::vector<std::byte>& stored)>;

/// Where the chunks lie, by number, or who fetches them.
struct Hdf5Index {
    std::vector<Hdf5Chunk> chunks;
    Hdf5Fetch fetch;  ///< empty: all are in `chunks`

    [[nodiscard]] const Hdf5Chunk* find(std::uint64_t number) const;
};

/// Reads the index of a chunked data set in one pass over it. `header` is the address of its object header. Nothing: it is none
/// that we read ourselves.
Result<std::optional<Hdf5Index>> index_chunks(const Hdf5Bytes& file, std::uint64_t header, const Hdf5Geometry& geometry);

/// Rows [first, first + count) of a contiguous data set at `address` (kHdf5Nowhere: never written). `out` has their size exactly.
Status read_contiguous_rows(const Hdf5Bytes& file, const Hdf5Geometry& geometry, std::uint64_t address, std::uint64_t first,
                            std::uint64_t count, std::span<std::byte> out);
/// The same of a chunked one; unpacks on the calling thread.
Status read_chunked_rows(const Hdf5Bytes& file, const Hdf5Geometry& geometry, const Hdf5Index& index, std::uint64_t first,
                         std::uint64_t count, std::span<std::byte> out);

}  // namespace millrace::io
