#pragma once
// Pieces of kernels that take a short sequence through a whole layer in shared memory: matrices of T (bf16 or f16), layer norm
// of their rows, dropout by a state that the block keeps there, too: it holds rows of one member.

#include <type_traits>

#include "ops/cuda/activation.cuh"
#include "ops/cuda/async_copy.cuh"
#include "ops/cuda/cluster.cuh"
#include "ops/cuda/vector.cuh"
#include "ops/dense/dense.h"
#include "ops/tile/element.cuh"

namespace millrace::ops::cuda::sequence {

constexpr int kRows = 64;                 ///< positions that a block holds
constexpr int kWidth = 128;               ///< columns of a layer
constexpr int kHeadWidth = 32, kRun = 8;  ///< columns of a head; elements in 16 bytes
constexpr int kHeads = kWidth / kHeadWidth;

/// A matrix view on the device whose strides fit into 32 bits: one instruction takes the place of several per stride.
template <class T>
struct Matrices {
    T* data = nullptr;
    int stride_k = 0, stride_g = 0, stride_row = 0;

    Matrices() = default;
    Matrices(const tensor::Operand& o)
        : data(static_cast<T*>(o.data)),
          stride_k(static_cast<int>(o.stride_k)),
          stride_g(static_cast<int>(o.stride_g)),
          stride_row(static_cast<int>(o.stride_row)) {}
    __device__ T* row(int k, int g, int r) const {
        return data + std::int64_t{k} * stride_k + std::int64_t{g} * stride_g + std::int64_t{r} * stride_row;
    }
};

/// Rows of one of them.
template <class T>
struct Rows {
    T* data;
    int stride;
    [[nodiscard]] __device__ T* operator[](int row) const { return data + row * stride; }
};

/// The matrix of one sequence: member, group, its first row.
struct Place {
    int k, g, row;
};

/// Rows in shared memory, kPitch (a multiple of 64) elements each. Run r (eight columns) of a row lies where r with three
/// bits flipped by the row says: one run of eight neighbouring rows, and four runs of two, lie in different banks.
template <class T, int kPitch>
struct Tile {
    static_assert(kPitch % 64 == 0);
    T* data;
    [[nodiscard]] __device__ T* run(int row, int r) const { return data + row * kPitch + swizzled(row, r); }
    [[nodiscard]] static __device__ int swizzled(int row, int r) {
        return kRun * (r ^ ((row & 1) << 2 | (row & 2) | (row >> 2 & 1)));
    }
    /// Of row eights + row, eights a multiple of 8 and row below 8: the flipping is then worked out once for many rows.
    [[nodiscard]] __device__ T* at(int eights, int row, int column) const {
        return data + (eights + row) * kPitch + swizzled(row, column / kRun) + column % kRun;
    }
    [[nodiscard]] __device__ uint4 load(int row, int r) const { return *reinterpret_cast<const uint4*>(run(row, r)); }
};

/// 16 bytes to global memory, in one instruction.
__device__ inline void store16(void* to, const uint4& v) { __stcg(static_cast<uint4*>(to), v); }

/// 2, 4 or 8 neighbouring elements as one word.
template <int kCount>
using Word = std::conditional_t<kCount == 2, std::uint32_t, std::conditional_t<kCount == 4, uint2, uint4>>;

template <class T, int kCount>
__device__ inline Word<kCount> packed(const float (&v)[kCount]) {
    if constexpr (kCount == 2)
        return pack<T>(v[0], v[1]);
    else if constexpr (kCount == 4)
        return make_uint2(pack<T>(v[0], v[1]), pack<T>(v[2], v[3]));
    else
        return make_uint4(pack<T>(v[0], v[1]), pack<T>(v[2], v[3]), pack<T>(v[4], v[5]), pack<T>(v[6], v[7]));
}

/// GELU of neighbouring elements.
template <class T>
__device__ inline std::uint32_t gelu_of(std::uint32_t u) {
    return pack<T>(gelu_rounded(low_of<T>(u)), gelu_rounded(high_of<T>(u)));
}
template <class T>
__device__ inline uint2 gelu_of(const uint2& u) {
    return make_uint2(gelu_of<T>(u.x), gelu_of<T>(u.y));
}
template <class T>
__device__ inline uint4 gelu_of(const uint4& u) {
    return make_uint4(gelu_of<T>(u.x), gelu_of<T>(u.y), gelu_of<T>(u.z), gelu_of<T>(u.w));
}

/// Where what layernorm_forward writes goes.
template <class T>
struct NormRows {
    Rows<T> sum, y;
    Rows<float> mean, inv_std;
};

/// Sum over the kLanes lanes of a row, in the same order for 8 and 16 of them.
template <int kLanes>
__device__ inline float row_sum(const float (&runs)[16 / kLanes]) {
    float value = runs[0];
    if constexpr (kLanes == 8)
        value += runs[1];
    else
        value += __shfl_xor_sync(0xffffffffu, value, 8);
#pragma unroll
    for (int d = 1; d < 8; d *= 2) value += __shfl_xor_sync(0xffffffffu, value, d);
    return value;
}

template <class T>
__device__ inline std::uint32_t add2(std::uint32_t a, std::uint32_t b) {
    using Pair = std::conditional_t<std::is_same_v<T, f16>, __half2, __nv_bfloat162>;
    const Pair sum = __hadd2(*reinterpret_cast<const Pair*>(&a), *reinterpret_cast<const Pair*>(&b));
    return *reinterpret_cast<const std::uint32_t*>(&sum);
}

/// A row of a norm as its kLanes lanes have it: lane l has runs l, l + kLanes, ...
template <class T, int kLanes>
struct NormRow {
    static constexpr int kRuns = 16 / kLanes;
    uint4 sum[kRuns], y[kRuns];
    float mean, inv;

    /// load(run), residual(run): of the two rows that are added.
    template <class Load, class Residual>
    __device__ void compute(Load load, Residual residual, const float (&scale)[kRuns][kRun], const float (&shift)[kRuns][kRun],
                            float eps) {
        const int lane = threadIdx.x % kLanes;
        float v[kRuns][kRun], totals[kRuns], squares[kRuns];
#pragma unroll
        for (int r = 0; r < kRuns; ++r) {
            const uint4 x = load(kLanes * r + lane), old = residual(kLanes * r + lane);
            sum[r] = make_uint4(add2<T>(x.x, old.x), add2<T>(x.y, old.y), add2<T>(x.z, old.z), add2<T>(x.w, old.w));
            spread<T>(sum[r], v[r]);
            totals[r] = v[r][0];
#pragma unroll
            for (int i = 1; i < kRun; ++i) totals[r] += v[r][i];
        }
        mean = row_sum<kLanes>(totals) * (1.0f / kWidth);
#pragma unroll
        for (int r = 0; r < kRuns; ++r) {
            squares[r] = 0;
#pragma unroll
            for (int i = 0; i < kRun; ++i) {
                v[r][i] -= mean;
                squares[r] = fmaf(v[r][i], v[r][i], squares[r]);
            }
        }
        inv = rsqrtf(row_sum<kLanes>(squares) * (1.0f / kWidth) + eps);
#pragma unroll
        for (int r = 0; r < kRuns; ++r) {
#pragma unroll
            for (int i = 0; i < kRun; ++i) v[r][i] = fmaf(scale[r][i] * v[r][i], inv, shift[r][i]);
            y[r] = packed<T>(v[r]);
        }
    }
    __device__ void store(const NormRows<T>& to, int row) const {
        const int lane = threadIdx.x % kLanes;
        T *to_sum = to.sum[row] + kRun * lane, *to_y = to.y[row] + kRun * lane;
#pragma unroll
        for (int r = 0; r < kRuns; ++r) {
            store16(to_sum + kRun * kLanes * r, sum[r]);
            store16(to_y + kRun * kLanes * r, y[r]);
        }
        if (lane == 0) {
            *to.mean[row] = mean;
            *to.inv_std[row] = inv;
        }
    }
};

/// Dropout of a dense record.
inline Dropout dropout_of(const Bound& b) {
    const auto& p = b.params<DenseParams>();
    return {p.dropout, p.op_number};
}

/// Begins to copy the state of member k, a word a thread: it is needed much later and takes no registers until then.
__device__ inline void stage_state(const States& states, int k, MemberState* to) {
    const auto word = static_cast<int>(threadIdx.x);
    if (word >= static_cast<int>(sizeof(MemberState) / 4)) return;
    copy4(shared_address(reinterpret_cast<std::uint32_t*>(to) + word), reinterpret_cast<const std::uint32_t*>(&states[k]) + word,
          true);
}

/// Which of a thread's elements stay, a bit each, and what these are multiplied by.
struct Kept {
    std::uint32_t bits = 0;
    float factor = 0;
    [[nodiscard]] __device__ float operator[](int i) const { return (bits >> i & 1u) != 0 ? factor : 0; }
};

/// Dropout of runs of four elements. A layer's columns are a multiple of four, so that such a run is a random block.
struct Mask {
    DropoutKey key;
    DropoutRule rule;

    __device__ Mask(const Dropout& d, const MemberState& m)
        : key{m.seed, m.step, m.micro, d.op_number, d.probability, m.dropout_scale}, rule(dropout_rule(key)) {}
    /// `runs` <= 8 of them: random block `block` and every `step`-th one behind it.
    [[nodiscard]] __device__ Kept draw(int runs, std::uint32_t block, int step) const {
        Kept kept{0, rule.factor};
#pragma unroll 1
        for (int i = 0; i < runs; ++i, block += step) {  // rolled: code is fetched as slowly as data
            const auto four = base::random_block(key.seed, key.step, key.micro, key.op, block);
#pragma unroll
            for (int j = 0; j < 4; ++j) kept.bits |= (four.v[j] >= rule.threshold ? 1u : 0u) << (4 * i + j);
        }
        return kept;
    }
};

}  // namespace millrace::ops::cuda::sequence
