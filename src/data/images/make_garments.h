#pragma once
// Writing the built-in set of images in the format real data comes in: what `millrace data make garments` does.

#include <cstdint>
#include <functional>

#include "data/images/garments.h"
#include "data/images/idx.h"

namespace millrace::data {

struct GarmentsOptions {
    std::uint32_t train = 60'000;
    std::uint32_t test = 10'000;
    std::uint64_t seed = kGarmentSeed;
};

/// Told how many images of how many are drawn; called from one thread at a time.
using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

/// Writes the four IDX files of the garments set and dataset.json into `folder` (created when missing), each atomically,
/// dataset.json last. A folder that holds exactly this set already is left alone; one that holds any of these names with other
/// content (a downloaded set, another seed) is refused.
Result<MakeOutcome> make_garments(const Path& folder, const GarmentsOptions& options = {}, const Progress& progress = {});

}  // namespace millrace::data
