#pragma once
// The built-in data sets that `millrace data make` writes, by name.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "data/command.h"

namespace millrace::data {

struct Maker {
    std::string name, meaning;
    CommandOptions options;
    /// Writes the set into `folder`, or finds it there; gives a line about it for people.
    std::function<base::Result<std::string>(const std::string& folder, std::uint64_t seed, const CommandOptions& options,
                                            const CommandProgress& progress)>
        make;
};

std::vector<Maker> makers();
constexpr std::uint64_t kMakerSeed = 42;

}  // namespace millrace::data
