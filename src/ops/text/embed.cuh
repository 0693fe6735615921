#pragma once
// What token_embed and its backward pass share on the device: the shape, and how threads stand over rows and columns.

#include <type_traits>

#include "ops/cuda/vector.cuh"
#include "ops/text/sequences.cuh"

namespace millrace::ops::cuda {

struct EmbedShape {
    int sequences, tokens, prefix, cols;
    __host__ __device__ int positions() const { return prefix + tokens; }
    /// Row of token t of a sequence, counted through as sequence * tokens + t.
    __device__ int row_of(int token) const { return token / tokens * positions() + prefix + token % tokens; }
};

constexpr int kLanes = 16;  ///< threads side by side over the columns; each takes W columns, so a block takes tiles of kLanes * W

inline unsigned column_tiles(int cols, int width) { return blocks_for(cols, kLanes * width); }

/// f(T{}, W): the element type of activations and the columns of a thread, 16 bytes of T where `operands` have whole runs in
/// every row, else 1.
template <class F>
KernelResult by_width(tensor::DType type, int cols, std::initializer_list<tensor::Operand> operands, F f) {
    const bool whole = std::all_of(operands.begin(), operands.end(), whole_runs);
    return by_real(type, [&]<class T>(T) -> KernelResult {
        constexpr int kWidth = 16 / sizeof(T);
        if (whole && cols % kWidth == 0) return f(T{}, std::integral_constant<int, kWidth>{});
        return f(T{}, std::integral_constant<int, 1>{});
    });
}

/// to (+) = v. Returns the sum of the squares of what was written.
template <int W>
__device__ float put_run(float* to, float (&v)[W], bool accumulate) {
    if (accumulate) {
        float before[W];
        load_run(to, before);
#pragma unroll
        for (int i = 0; i < W; ++i) v[i] += before[i];
    }
    store_run(to, v);
    float squares = 0;
#pragma unroll
    for (int i = 0; i < W; ++i) squares += v[i] * v[i];
    return squares;
}

template <int W>
__device__ void add_run(float (&sum)[W], const float (&v)[W]) {
#pragma unroll
    for (int i = 0; i < W; ++i) sum[i] += v[i];
}

}  // namespace millrace::ops::cuda
