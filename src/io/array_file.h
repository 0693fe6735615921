#pragma once
// NumPy's files: .npy with one array, .npz (a ZIP archive) with several by name.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "io/element_type.h"
#include "io/file.h"

namespace millrace::io {

/// An array, row-major: in borrowed memory, which may be misaligned for its type, or in a file.
struct NumberArray {
    ElementType type = ElementType::kF32;
    std::vector<std::uint64_t> shape;
    Bytes values;
    std::shared_ptr<const void> owner = {};        ///< of what they point into; may be absent
    std::shared_ptr<const RegularFile> file = {};  ///< null: `values` has the elements
    std::uint64_t offset = 0;                      ///< of the elements in it
    Path place = {};

    [[nodiscard]] std::uint64_t count() const;           ///< elements
    [[nodiscard]] double at(std::uint64_t index) const;  ///< as a double; not of a file
    /// Elements [first, first + count) as an array of `values`, which `memory` holds where they come from a file.
    [[nodiscard]] Result<NumberArray> part(std::uint64_t first, std::uint64_t count, std::vector<std::byte>& memory) const;
};

/// u8, i32, i64, f32 and f64 of little-endian order; shape against the bytes that follow. Refuses column-major arrays, other
/// types and more than 8 dimensions. `place` names the bytes, which the array points into, in errors; `size`: of the file that
/// they begin, 0: they are all of it.
Result<NumberArray> parse_npy(Bytes bytes, const Path& place, std::uint64_t size = 0);
/// Of a file, whose elements stay there.
Result<NumberArray> open_npy(const Path& path);

/// The members of an archive by their names without ".npy", as the bytes of .npy files. Refuses what is encrypted or packed by
/// anything but deflate, and more than `cap` bytes unpacked.
Result<std::map<std::string, std::vector<std::byte>>> parse_npz(Bytes bytes, const Path& place, std::uint64_t cap);

}  // namespace millrace::io
