#pragma once
// What the kernels of a recurrent layer share: which rows take part in a step, and what they save and read of V columns of a row.

#include "ops/cuda/context.h"
#include "ops/cuda/vector.cuh"

namespace millrace::ops::cuda {

/// Both may be absent: all rows take part.
struct RowMask {
    Mat<const float> mask;
    Mat<const std::int32_t> flag;
    __device__ bool takes_part(int k, int row) const {
        return (!mask || *mask.row(k, 0, row) != 0) && (!flag || *flag.row(k, 0, 0) != 0);
    }
};
inline RowMask row_mask(const tensor::Operand& mask, const tensor::Operand& flag) { return {mask, flag}; }

/// The four gates of a row lie `width` elements apart.
template <int V, class T>
__device__ __forceinline__ void store_gates(T* to, int width, const float (&first)[V], const float (&second)[V],
                                            const float (&third)[V], const float (&fourth)[V]) {
    store_run<V>(to, first);
    store_run<V>(to + width, second);
    store_run<V>(to + 2 * width, third);
    store_run<V>(to + 3 * width, fourth);
}

/// From d, the gradient of the state behind a step: those of the gates to `back`, that of the state before it to `target`.
/// live: whether the row took part. saved: its gates; h: its state before.
template <int V, class T>
__device__ __forceinline__ void gates_back(bool live, const float (&d)[V], const T* saved, const T* h, int width, T* back,
                                           float* target) {
    float r[V], z[V], n[V], hn[V], old[V], kept[V];
    if (!live) {
        constexpr float kZeros[V] = {};
        store_gates<V>(back, width, kZeros, kZeros, kZeros, kZeros);
        store_run<V>(target, d);
        return;
    }
    load_run<V>(saved, r);
    load_run<V>(saved + width, z);
    load_run<V>(saved + 2 * width, n);
    load_run<V>(saved + 3 * width, hn);
    load_run<V>(h, old);
#pragma unroll
    for (int i = 0; i < V; ++i) {
        const float dn = d[i] * (1 - z[i]) * (1 - n[i] * n[i]);
        kept[i] = d[i] * z[i];
        old[i] = d[i] * (old[i] - n[i]) * z[i] * (1 - z[i]);
        hn[i] = dn * hn[i] * r[i] * (1 - r[i]);
        r[i] = dn * r[i];
        n[i] = dn;
    }
    store_gates<V>(back, width, hn, old, n, r);
    store_run<V>(target, kept);
}

/// In bf16 with products and gates in one kernel, where shapes and device allow.
bool tiles_gru_forward(const Context&, const Bound&);
KernelResult make_tiled_gru_forward(Context&, const Bound&);
bool tiles_gru_backward(const Context&, const Bound&);
KernelResult make_tiled_gru_backward(Context&, const Bound&);

}  // namespace millrace::ops::cuda
