#pragma once
// Where a role stands in a ring of stages.

#include <cstdint>

namespace millrace::ops::cuda::tile {

struct Cursor {
    int stage = 0;
    std::uint32_t phase = 0;
    template <int kStages>
    __device__ void advance(int by = 1) {
        stage += by;
        if (by > 1) {
            phase ^= stage / kStages & 1;
            stage %= kStages;
        } else if (stage == kStages) {
            stage = 0;
            phase ^= 1;
        }
    }
};

}  // namespace millrace::ops::cuda::tile
