#pragma once
// Which recordings train, select and test: whole recordings, never windows of them, and of every class its share.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace millrace::data {

inline constexpr std::size_t kSoundParts = 3;  ///< training, validation, test
using Shares = std::array<double, kSoundParts>;

/// "0.7,0.2,0.1": three numbers of sum 1, none negative, the first positive.
base::Result<Shares> parse_shares(const std::string& text);

/// How many of `count` recordings of one class each part gets: the shares by largest remainder. As long as there are recordings,
/// no part with a share stays empty; training comes first, then validation.
std::array<std::uint32_t, kSoundParts> share_out(std::uint32_t count, const Shares& shares);

/// The recordings (positions in `labels`) of each part in a random order that mixes the classes. Depends on the labels, the
/// shares and the seed alone.
std::array<std::vector<std::uint32_t>, kSoundParts> split_recordings(std::span<const std::uint32_t> labels, std::uint32_t classes,
                                                                     const Shares& shares, std::uint64_t seed);

}  // namespace millrace::data
