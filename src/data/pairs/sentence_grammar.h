#pragma once
// English sentence pairs, statement and consequence, from a small grammar. Every part of a statement (who, what, where, when) has
// its own effect in the consequence, so the mapping can be learned word by word and a held-out pair is a new combination of known
// parts. A pair is a pure function of (seed, index): the same on every machine.

#include <cstdint>
#include <string>

namespace millrace::data {

struct TextPair {
    std::string input, target;
    bool operator==(const TextPair&) const = default;
};

/// Indices run from 0 to one less than this; all of them give different statements and different consequences.
std::uint32_t sentence_pair_limit();

/// Pair `index` of the order that `seed` draws. The templates take turns.
TextPair sentence_pair(std::uint64_t seed, std::uint32_t index);

}  // namespace millrace::data
