#pragma once
#include "base/philox.h"

namespace millrace::base {

/// One of `world` machines that train one model together. Sample number q of its share is number position(q) of the common order:
/// shares are disjoint, make up the order together and differ by one sample at most.
struct Rank {
    uint32_t rank = 0, world = 1;

    [[nodiscard]] MILLRACE_HD constexpr uint32_t position(uint32_t q) const { return q * world + rank; }
    /// Samples of its share of `samples`.
    [[nodiscard]] constexpr int32_t share(int32_t samples) const {
        return (samples + static_cast<int32_t>(world - 1 - rank)) / static_cast<int32_t>(world);
    }
};

}  // namespace millrace::base
