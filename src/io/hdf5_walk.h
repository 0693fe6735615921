#pragma once
// Reading the structures of an HDF5 file one after another, within its bounds. Only io/hdf5_*.cpp include this.

#include <cstring>
#include <string_view>
#include <vector>

#include "io/hdf5_format.h"

namespace millrace::io {

/// Bytes of one structure, taken from the front. Beyond its end come zeros, and ok() is false.
class Hdf5Cursor {
public:
    explicit Hdf5Cursor(Bytes bytes) : bytes_(bytes) {}

    /// A little-endian number of 1 to 8 bytes.
    std::uint64_t take(std::size_t width) {
        std::uint64_t value = 0;
        if (width > sizeof value || width > bytes_.size()) {
            ok_ = false;
            bytes_ = {};
            return 0;
        }
        std::memcpy(&value, bytes_.data(), width);
        bytes_ = bytes_.subspan(width);
        return value;
    }
    std::uint64_t address() { return take(8); }
    Bytes part(std::size_t length) {
        if (length > bytes_.size()) {
            ok_ = false;
            length = bytes_.size();
        }
        const Bytes taken = bytes_.first(length);
        bytes_ = bytes_.subspan(length);
        return taken;
    }
    bool signature(std::string_view wanted) {
        const Bytes found = part(wanted.size());
        ok_ = ok_ && std::memcmp(found.data(), wanted.data(), found.size()) == 0;
        return ok_;
    }
    [[nodiscard]] std::size_t left() const { return bytes_.size(); }
    [[nodiscard]] bool ok() const { return ok_; }

private:
    Bytes bytes_;
    bool ok_ = true;
};

/// A walk over the index of one data set. What it reads in all may not exceed the file: the parts of a sound index do not
/// overlap, so cycles and bombs end here.
class Hdf5Walk {
public:
    Hdf5Walk(const Hdf5Bytes& file, const Hdf5Geometry& geometry);

    Result<std::vector<std::byte>> take(std::uint64_t address, std::uint64_t length, std::string_view what);
    [[nodiscard]] Error damaged(std::string_view what) const;
    [[nodiscard]] const Hdf5Geometry& geometry() const { return geometry_; }
    [[nodiscard]] std::uint64_t file_size() const { return file_.size; }

    /// A chunk whose first element has these coordinates.
    Status add_at(const std::uint64_t* origin, Hdf5Chunk chunk);
    /// A chunk by its place in units of chunks; one beyond the present shape is left out, as the library does.
    Status add_scaled(const std::uint64_t* scaled, Hdf5Chunk chunk);
    /// Sorts the chunks and refuses those that overlap or come twice.
    Status finish();
    Hdf5Index index;

private:
    const Hdf5Bytes& file_;
    const Hdf5Geometry& geometry_;
    std::uint64_t budget_;
    std::vector<std::uint64_t> grid_;  // chunks along each axis
};

/// The layout of a chunked data set as its object header has it.
struct Hdf5Storage {
    enum class Kind : std::uint8_t { kUnknown, kTree, kSingle, kImplicit, kFixedArray, kGrowingArray };
    Kind kind = Kind::kUnknown;
    std::string unknown;  ///< why
    std::uint64_t address = kHdf5Nowhere;
    std::uint64_t single_bytes = 0;  ///< of a single compressed chunk
    std::uint32_t single_skipped = 0;
};

Result<Hdf5Storage> find_storage(Hdf5Walk& walk, std::uint64_t header);
Status walk_tree(Hdf5Walk& walk, std::uint64_t root);
Status walk_fixed_array(Hdf5Walk& walk, std::uint64_t header);
Status walk_growing_array(Hdf5Walk& walk, std::uint64_t header);
/// The chunk with this number in an array: its coordinates in units of chunks. `growing`: the unlimited axis counts slowest.
std::vector<std::uint64_t> scaled_of(const Hdf5Geometry& geometry, std::uint64_t number, bool growing);
/// Entries of an array, each an address or, with filters, also stored size and mask.
Status add_entries(Hdf5Walk& walk, Bytes entries, std::size_t width, std::uint64_t first, bool growing);

}  // namespace millrace::io
