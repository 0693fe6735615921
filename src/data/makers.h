#pragma once
// The built-in data sets that `millrace data make` writes, by name.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace millrace::data {

struct MakerOption {
    std::string name, meaning;  ///< "--train", "training images"
    std::uint32_t value = 0;
};

/// Told how much of how much is done; called from one thread at a time.
using MakerProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

struct Maker {
    std::string name, meaning;
    std::vector<MakerOption> options;
    /// Writes the set into `folder`, or finds it there; gives a line about it for people.
    std::function<base::Result<std::string>(const std::string& folder, std::uint64_t seed,
                                            const std::vector<MakerOption>& options, const MakerProgress& progress)>
        make;
};

std::vector<Maker> makers();
constexpr std::uint64_t kMakerSeed = 42;

}  // namespace millrace::data
