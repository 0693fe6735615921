#pragma once
// IDX, the format of MNIST: two zero bytes, a type byte, the number of dimensions, each dimension as 32 bits big-endian, then the
// values. Only unsigned bytes (type 0x08) with one to three dimensions are needed and accepted. data/forms.h has the sets.

#include <cstdint>
#include <span>
#include <vector>

#include "data/folder.h"

namespace millrace::data {

inline constexpr const char* kTrainImages = "train-images-idx3-ubyte";
inline constexpr const char* kTrainLabels = "train-labels-idx1-ubyte";
inline constexpr const char* kTestImages = "t10k-images-idx3-ubyte";
inline constexpr const char* kTestLabels = "t10k-labels-idx1-ubyte";

struct IdxArray {
    std::vector<std::uint32_t> shape;  ///< one to three extents
    std::vector<std::uint8_t> values;  ///< row-major, exactly the product of the extents
};

/// Reads and checks a file, packed by gzip or not, or else the one with ".gz" behind its name: magic, extents against the size of
/// the file, nothing missing, nothing after the values.
Result<IdxArray> read_idx(const Path& path);
/// The same for bytes in memory; `place` names them in errors.
Result<IdxArray> parse_idx(std::span<const std::byte> bytes, const Path& place);

/// The header for `shape`, big-endian, ready to be followed by the values.
std::vector<std::byte> idx_header(std::span<const std::uint32_t> shape);
/// Replaces `path` as a whole. `values` must match `shape`.
Status write_idx(const Path& path, std::span<const std::uint32_t> shape, std::span<const std::uint8_t> values);

}  // namespace millrace::data
