#pragma once
// Where the rows of gather_windows lie in its stream, on the device.

#include "ops/cuda/device.cuh"
#include "ops/gather/gather.h"

namespace millrace::ops::cuda {

struct Windows {
    const std::int32_t* stream;
    std::int64_t stride;
    const TokenRange* ranges;
    int count;  ///< of ranges
    States states;
    Mat<std::int32_t> out, lengths;
    int rows, cols;
    GatherWindowsParams p;

    explicit Windows(const Bound& b)
        : stream(static_cast<const std::int32_t*>(b[gather_windows::stream].data)),
          stride(b[gather_windows::stream].stride_row),
          ranges(static_cast<const TokenRange*>(b[gather_windows::ranges].data)),
          count(b[gather_windows::ranges].rows),
          states(b[gather_windows::state]),
          out(b[gather_windows::out]),
          lengths(b[gather_windows::lengths]),
          rows(b[gather_windows::out].rows),
          cols(b[gather_windows::out].cols),
          p(b.params<GatherWindowsParams>()) {}

    __device__ TokenWindow find(int k, int row) const {
        const MemberState& m = states[k];
        const std::uint32_t q = p.rank.position((p.training ? m.position : m.eval_position) + row);
        return token_window(p, m.seed, m.epoch, q < p.samples ? q : 0, cols - 1, ranges, count);
    }
    __device__ std::int32_t token(const TokenWindow& window, int c) const {
        return c < window.count ? stream[(window.first + c) * stride] : 0;
    }
    __device__ static int length(const TokenWindow& window) { return max(0, window.count - 1); }
};

}  // namespace millrace::ops::cuda
