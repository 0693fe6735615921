#pragma once
#include <cstdint>
#include <vector>

namespace millrace::base {

/// A matrix [rows, cols], row-major, with orthonormal columns (rows >= cols) or orthonormal rows (rows < cols), drawn uniformly:
/// the Gram-Schmidt process, twice, on normal numbers of random_normal(seed, 0, 0, stream, element). Depends on nothing else.
std::vector<float> random_orthonormal(std::int32_t rows, std::int32_t cols, std::uint64_t seed, std::uint32_t stream);

}  // namespace millrace::base
