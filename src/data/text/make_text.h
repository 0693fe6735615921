#pragma once
// Writing the built-in text: what `millrace data make text` does.

#include <cstdint>

#include "data/folder.h"

namespace millrace::data {

inline constexpr std::uint32_t kMostMadeWords = 2500000;  ///< the grammar has sentences for no more

struct TextOptions {
    std::uint32_t words = 200000;  ///< of train.txt, 1 to kMostMadeWords or a line more; valid.txt and test.txt have a tenth each
    std::uint64_t seed = 42;
};

/// Writes train.txt, valid.txt and test.txt into `folder` (created when missing), each atomically. A line is a pair of the
/// sentence grammar: a statement and the consequence that follows from it word by word. No two lines of the set are equal. Marks
/// stand apart from words. A folder that holds exactly this text already is left alone; one that holds another is refused.
Result<MakeOutcome> make_text(const Path& folder, const TextOptions& options = {});

}  // namespace millrace::data
