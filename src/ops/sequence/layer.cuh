#pragma once
// Pieces of kernels that take a short sequence through a whole layer in shared memory: matrices of bf16, products of their rows
// with weights that stream from L2 into registers, layer norm of their rows.

#include "ops/cuda/tensor_core.cuh"
#include "ops/cuda/vector.cuh"
#include "ops/norm/layernorm.h"

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

    /// Its rows of an operand.
    template <class T>
    [[nodiscard]] __device__ Rows<T> of(const Matrices<T>& all) const {
        return {all.row(k, g, row), all.stride_row};
    }
};

/// Rows of bf16 in shared memory, kPitch (a multiple of 64) elements each. Run r (eight columns) of a row lies where r with three
/// bits flipped by the row says: one run of eight neighbouring rows, and four runs of two, lie in different banks.
template <int kPitch>
struct Tile {
    static_assert(kPitch % 64 == 0);
    bf16* data;
    [[nodiscard]] __device__ bf16* run(int row, int r) const { return data + row * kPitch + swizzled(row, r); }
    [[nodiscard]] static __device__ int swizzled(int row, int r) {
        return kRun * (r ^ ((row & 1) << 2 | (row & 2) | (row >> 2 & 1)));
    }
    [[nodiscard]] __device__ bf16* at(int row, int column) const { return run(row, column / kRun) + column % kRun; }
    [[nodiscard]] __device__ uint4 load(int row, int r) const { return *reinterpret_cast<const uint4*>(run(row, r)); }
};

/// One with a pitch that is not known before: two products can then share their code.
struct AnyTile {
    const bf16* data;
    int pitch;
    [[nodiscard]] __device__ uint4 load(int row, int r) const {
        return *reinterpret_cast<const uint4*>(data + row * pitch + Tile<64>::swizzled(row, r));
    }
};

/// 16 bytes to global memory, in one instruction.
__device__ inline void store16(bf16* to, const uint4& v) { __stcg(reinterpret_cast<uint4*>(to), v); }

__device__ inline std::uint32_t pack2(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
}

/// 2, 4 or 8 neighbouring elements as one word.
template <int kCount>
struct Words;
template <>
struct Words<2> {
    using Type = std::uint32_t;
};
template <>
struct Words<4> {
    using Type = uint2;
};
template <>
struct Words<8> {
    using Type = uint4;
};
template <int kCount>
using Word = typename Words<kCount>::Type;

template <int kCount>
__device__ inline Word<kCount> packed(const float (&v)[kCount]) {
    if constexpr (kCount == 2)
        return pack2(v[0], v[1]);
    else if constexpr (kCount == 4)
        return make_uint2(pack2(v[0], v[1]), pack2(v[2], v[3]));
    else
        return make_uint4(pack2(v[0], v[1]), pack2(v[2], v[3]), pack2(v[4], v[5]), pack2(v[6], v[7]));
}

/// GELU by the logistic function of an odd polynomial, within 1.2e-4 of itself: a sixteenth of what rounding to bf16 may add.
__device__ inline float gelu_rounded(float u) {
    const float w = fminf(u * u, 25.0f);  // behind 5 the share on the left is below 3e-7
    float p = 1.84934434e-9f;
    p = fmaf(p, w, -1.76041358e-7f);
    p = fmaf(p, w, 6.52837314e-6f);
    p = fmaf(p, w, -1.04322914e-4f);
    p = fmaf(p, w, -3.92576562e-4f);
    p = fmaf(p, w, 0.105521039f);
    p = fmaf(p, w, 2.30176077f);
    return __fdividef(u, 1 + exp2_fast(-u * p));
}

/// A warp's share of rows times weights^T: 16 kM rows, 8 kN columns. The eight consecutive elements that a thread reads of a row
/// serve two steps of 16 summed elements; weights are fetched kStages chunks of 32 summed elements ahead, each of them once per
/// warp. kStrip tiles of eight columns interleave, so that a thread has 2 kStrip neighbouring ones.
template <int kM, int kN, int kStages>
struct Product {
    static constexpr int kStrip = kN % 4 == 0 ? 4 : kN % 2 == 0 ? 2 : 1, kStrips = kN / kStrip, kOwn = 2 * kStrip;
    static constexpr int kColumns = 8 * kN;
    float sums[kM][kN][4];
    uint4 weights[kStages][kN];
    const bf16* from;
    int offset[kStrips], stride;

    __device__ void fetch(int stage, int chunk) {
#pragma unroll
        for (int j = 0; j < kN; ++j)  // from L2: what L1 holds may be older than the last update
            weights[stage][j] =
                __ldcg(reinterpret_cast<const uint4*>(from + offset[j / kStrip] + 2 * (j % kStrip) * stride + 32 * chunk));
    }
    /// Fetches the first weights; the sums stay. row_of(strip): the row of w of a strip's first column.
    template <class RowOf>
    __device__ void begin(const bf16* w, int w_stride, RowOf row_of) {
        const int lane = threadIdx.x % 32, n = lane / 4, c = lane % 4;
        stride = w_stride;
        from = w + kRun * c;
#pragma unroll
        for (int s = 0; s < kStrips; ++s) offset[s] = (row_of(s) + 2 * kStrip * (n / 2) + n % 2) * stride;
#pragma unroll
        for (int stage = 0; stage < kStages; ++stage) fetch(stage, stage);
    }
    /// The sums become the bias; row_of as above.
    template <class RowOf>
    __device__ void clear(const float* bias, RowOf row_of) {
        const int c = threadIdx.x % 4;
#pragma unroll
        for (int j = 0; j < kN; ++j) {
            const float2 two = *reinterpret_cast<const float2*>(bias + row_of(j / kStrip) + kOwn * c + 2 * (j % kStrip));
#pragma unroll
            for (int m = 0; m < kM; ++m) {
                sums[m][j][0] = sums[m][j][2] = two.x;
                sums[m][j][1] = sums[m][j][3] = two.y;
            }
        }
    }
    /// Adds the product of rows `row` and following, 32 `chunks` (a multiple of kStages) summed columns from run `run` on.
    template <class Left>
    __device__ void multiply(const Left& left, int row, int run, int chunks) {
        const int lane = threadIdx.x % 32;
        row += lane / 4;
        run += lane % 4;
        // Code that runs once comes from L2 as slowly as data: only what registers demand is unrolled.
#pragma unroll 1
        for (int first = 0; first < chunks; first += kStages) {
#pragma unroll
            for (int stage = 0; stage < kStages; ++stage) {
                const uint4(&b)[kN] = weights[stage];
                const int at = run + 4 * (first + stage);
#pragma unroll
                for (int m = 0; m < kM; ++m) {
                    const uint4 a = left.load(row + 16 * m, at), below = left.load(row + 16 * m + 8, at);
#pragma unroll
                    for (int j = 0; j < kN; ++j) mma_bf16(sums[m][j], a.x, below.x, a.y, below.y, b[j].x, b[j].y);
#pragma unroll
                    for (int j = 0; j < kN; ++j) mma_bf16(sums[m][j], a.z, below.z, a.w, below.w, b[j].z, b[j].w);
                }
                if (first + kStages < chunks) fetch(stage, first + stage + kStages);
            }
        }
    }
    /// put(row, strip, column, word) for each run of this thread: the row of the warp's, the first column of the strip's.
    template <class Put>
    __device__ void each(Put put) const {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int m = 0; m < kM; ++m)
#pragma unroll
            for (int s = 0; s < kStrips; ++s)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    float v[kOwn];
#pragma unroll
                    for (int t = 0; t < kStrip; ++t) {
                        v[2 * t] = sums[m][s * kStrip + t][2 * half];
                        v[2 * t + 1] = sums[m][s * kStrip + t][2 * half + 1];
                    }
                    put(16 * m + 8 * half + lane / 4, s, kOwn * (lane % 4), packed(v));
                }
    }
};

struct NormArgs {
    Matrices<bf16> x;  ///< of the linear layer in front
    Matrices<float> mean, inv_std;
    Matrices<bf16> sum, y;
    float eps;
};

/// Sum over the eight lanes of a row.
__device__ inline float row_sum(float value) {
#pragma unroll
    for (int d = 1; d < 8; d *= 2) value += __shfl_xor_sync(0xffffffffu, value, d);
    return value;
}

/// Rows of x from `row` on, four at a time and kStep further, plus those of `stream`, normalised, by one warp; they replace those
/// of `stream`. A lane has runs lane % 8 and 8 + lane % 8 of a row. Global memory gets x and what layernorm_forward writes, of
/// rows in [begin, end). gamma and beta: in shared memory.
template <int kStep>
__device__ inline void normalise_rows(const NormArgs& a, const float* gamma, const float* beta, const Place& p,
                                      const Tile<kWidth>& x, const Tile<kWidth>& stream, int row, int last, int begin, int end) {
    const int lane = threadIdx.x % 8;
    const Rows<bf16> to_x = p.of(a.x), to_sum = p.of(a.sum), to_y = p.of(a.y);
    const Rows<float> to_mean = p.of(a.mean), to_inv = p.of(a.inv_std);
#pragma unroll 1
    for (row += static_cast<int>(threadIdx.x) % 32 / 8; row < last; row += kStep) {
        const bool own = row >= begin && row < end;
        float v[16], total = 0, squares = 0;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int run = 8 * half + lane;
            float residual[8], both[8];
            const uint4 in = x.load(row, run);
            spread(in, both);
            spread(stream.load(row, run), residual);
#pragma unroll
            for (int i = 0; i < 8; ++i) both[i] += residual[i];
            const uint4 sum = packed(both);
            spread(sum, v + 8 * half);
            if (own) {
                store16(to_x[row] + kRun * run, in);
                store16(to_sum[row] + kRun * run, sum);
            }
        }
#pragma unroll
        for (int i = 0; i < 16; ++i) total += v[i];
        const float mean = row_sum(total) / kWidth;
#pragma unroll
        for (int i = 0; i < 16; ++i) squares += (v[i] - mean) * (v[i] - mean);
        const float inv = rsqrtf(row_sum(squares) / kWidth + a.eps);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int run = 8 * half + lane;
            float out[8], scale[8], shift[8];
            load_run<8>(gamma + kRun * run, scale);
            load_run<8>(beta + kRun * run, shift);
#pragma unroll
            for (int i = 0; i < 8; ++i) out[i] = scale[i] * (v[8 * half + i] - mean) * inv + shift[i];
            const uint4 y = packed(out);
            *reinterpret_cast<uint4*>(stream.run(row, run)) = y;
            if (own) store16(to_y[row] + kRun * run, y);
        }
        if (own && lane == 0) {
            *to_mean[row] = mean;
            *to_inv[row] = inv;
        }
    }
}

}  // namespace millrace::ops::cuda::sequence
