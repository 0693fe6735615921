#pragma once
#include <cstdint>

namespace millrace::base {

/// One of `world` processes that share what is numbered from 0: number i is done by rank i mod world.
struct Rank {
    std::uint32_t rank = 0, world = 1;

    /// Of `count` things, those of this rank.
    [[nodiscard]] constexpr std::int32_t share(std::int32_t count) const {
        return (count + static_cast<std::int32_t>(world - 1 - rank)) / static_cast<std::int32_t>(world);
    }
    [[nodiscard]] constexpr bool does(std::int64_t number) const { return number % world == rank; }
};

}  // namespace millrace::base
