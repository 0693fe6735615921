#pragma once
// Sobol's sequence with the direction numbers of Joe and Kuo ("new-joe-kuo-6"), scrambled by a digital shift.

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "search/sampler.h"

namespace millrace::search {

inline constexpr size_t kSobolDimensions = 32;

/// The coordinates of point `index` as fractions of 2^32, without a shift.
std::vector<uint32_t> sobol_point(uint32_t index, size_t dimensions);

/// Trial n gets point n. At most kSobolDimensions parameters.
base::Result<std::unique_ptr<Sampler>> make_sobol_sampler(const Space& space, uint64_t seed);

}  // namespace millrace::search
