#pragma once
// The hashed teacher: a sentence vector that is a pure function of the text, for data sets that are made and tested offline.
//
// Words are the runs of ASCII letters, digits and bytes above 127; ASCII letters are taken in lower case, apostrophes are
// dropped, every other ASCII character separates words. Features are each word (weight 2) and each two neighbouring words joined
// by one space (weight 1), once each however often they occur, or "the" would be most of every vector. A feature's bytes b_i hash
// to (mod 2^64; FNV-1a, salted)
//
//     h = 14695981039346656037 xor 0x6d696c6c72616365; for each i: h = (h xor b_i) * 1099511628211
//
// and for j = 1 .. 8, with z = mix(h + j * 0x9e3779b97f4a7c15) (mix: the finaliser of SplitMix64), its weight is added to entry
// floor((z >> 32) * d / 2^32) with the sign + when z is even, - when it is odd. The sums are whole numbers; the vector is their
// quotient with sqrt(sum of squares), in double, rounded to float: equal to the bit on every machine.

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace::data {

inline constexpr const char* kHashedTeacher = "hashed";  ///< its name in dataset.json
inline constexpr std::uint32_t kMostDimensions = 16'384;

/// The vector of `text` with `dimensions` entries (1 to kMostDimensions), of length 1. An error when the text has no words or its
/// features cancel out (with few dimensions they can).
base::Result<std::vector<float>> teach(std::string_view text, std::uint32_t dimensions);

}  // namespace millrace::data
