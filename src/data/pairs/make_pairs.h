#pragma once
// Writing the built-in set of sentence pairs: what `millrace data make pairs` does.

#include <cstdint>

#include "data/folder.h"

namespace millrace::data {

struct PairsOptions {
    std::uint32_t count = 5000;  ///< 1 to sentence_pair_limit()
    std::uint64_t seed = 42;
    std::uint32_t dimensions = 768;  ///< 1 to kMostDimensions
};

/// Writes pairs.safetensors, pairs.jsonl and dataset.json into `folder` (created when missing), each atomically, dataset.json
/// last: pairs 0 to count - 1 of the sentence grammar with the vectors of the hashed teacher. A folder that holds exactly this
/// set already is left alone; one that holds any of these names with other content is refused.
Result<MakeOutcome> make_pairs(const Path& folder, const PairsOptions& options = {});

}  // namespace millrace::data
