#pragma once
// Rows out of the bytes of an HDF5 file: the library says where a data set lies, or fetches its chunks as they are stored.
// Offsets are checked against the file's length, and chunks are unpacked as hostile.

#include <array>
#include <cstdint>
#include <functional>
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
    std::uint64_t number = 0;         ///< of its place in the grid of chunks, row-major
    std::uint32_t skipped = 0;        ///< bit i: filter i was not applied
    std::vector<std::byte> stored{};  ///< as in the file; empty: it was never written
};

/// Sets `skipped` and `stored` of the chunk whose first element has these coordinates.
using Hdf5Fetch = std::function<Status(const std::uint64_t* origin, Hdf5Chunk& chunk)>;

/// Rows [first, first + count) of a contiguous data set at `address` (kHdf5Nowhere: never written). `out` has their size exactly.
Status read_contiguous_rows(const Hdf5Bytes& file, const Hdf5Geometry& geometry, std::uint64_t address, std::uint64_t first,
                            std::uint64_t count, std::span<std::byte> out);
/// The same of a chunked one; unpacks on the calling thread. Errors name `place`.
Status read_chunked_rows(const Path& place, const Hdf5Geometry& geometry, const Hdf5Fetch& fetch, std::uint64_t first,
                         std::uint64_t count, std::span<std::byte> out);

}  // namespace millrace::io
