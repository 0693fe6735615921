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

    /// A chunk whose first element has these coordinates; one beyond the present shape is left out, as the library does.
    Status add(const std::uint64_t* origin, Hdf5Chunk chunk);
    /// Sorts the chunks and refuses those that overlap or come twice.
    Status finish();
    Hdf5Index index;

private:
    const Hdf5Bytes& file_;
    const Hdf5Geometry& geometry_;
    std::uint64_t budget_;
    std::vector<std::uint64_t> grid_;  // chunks along each axis
};

/// The address of the B-tree of chunks, kHdf5Nowhere where no chunk was ever written. Nothing: the chunks are kept otherwise.
Result<std::optional<std::uint64_t>> find_tree(Hdf5Walk& walk, std::uint64_t header);
Status walk_tree(Hdf5Walk& walk, std::uint64_t root);

}  // namespace millrace::io
