#pragma once
// Where the rows of gather_windows lie in its stream, on the device.

#include "ops/cuda/device.cuh"
#include "ops/gather/gather.h"

namespace millrace::ops::cuda {

struct Windows {
    Mat<const std::int32_t> stream;
    const TokenRange* ranges = nullptr;
    int count = 0;  ///< of ranges
    States states;
    Mat<std::int32_t> out, lengths;
    int rows = 0, cols = 0;
    GatherWindowsParams p;

    __device__ TokenWindow find(int k, int row) const {
        const MemberState& m = states[k];
        const std::uint32_t q = (p.training ? m.position : m.eval_position) + row;
        return token_window(p, m.seed, m.epoch, q < p.samples ? q : 0, cols - 1, ranges, count);
    }
    __device__ std::int32_t token(const TokenWindow& window, int c) const {
        return c < window.count ? *stream.row(0, 0, window.first + c) : 0;
    }
    __device__ int length(const TokenWindow& window) const { return max(0, window.count - 1); }
};

inline Windows windows_of(const Bound& b) {
    using namespace gather_windows;
    return {b[stream],
            static_cast<const TokenRange*>(b[ranges].data),
            b[ranges].rows,
            b[state],
            b[out],
            b[lengths],
            b[out].rows,
            b[out].cols,
            b.params<GatherWindowsParams>()};
}

}  // namespace millrace::ops::cuda
