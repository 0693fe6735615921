#pragma once
// What the forward pass of a layer is given, and what its warps do: products of rows in shared memory with weights that come from
// L2 through shared memory, where both operands reach the tensor cores by ldmatrix, in the order of registers that they ask for;
// causal attention of 16 queries of a head.

#include "ops/sequence/layer.cuh"

namespace millrace::ops::cuda::sequence {

/// Parameters of 128 columns each, in the order of shared memory; the widest bias comes last.
enum Vector { in_bias, out_bias = 3, narrow_bias, gammas, betas = 7, widen_bias = 9, kOtherVectors = widen_bias };

/// Matrices in global memory whose place a block works out once: weights, the layer's input, then what it writes; of each norm
/// sum, y, mean and inv_std. saved, before the activation, may be absent.
enum Operands {
    in_weights,
    out_weights,
    widen_weights,
    narrow_weights,
    layer_in,
    qkv_out,
    attended_out,
    saved_out,
    inner_out,
    logsumexp_out,
    norm_out,
    kNormOutputs = 4,
    kOperands = norm_out + 2 * kNormOutputs
};

struct OperandArgs {
    Matrices<char> where;  ///< strides in elements
    int bytes;             ///< of an element
};
struct ForwardArgs {
    Matrices<const std::int32_t> lengths;
    Matrices<const float> vectors[kOtherVectors + 2];
    OperandArgs operands[kOperands];
    float eps[2];
    int positions;
    bool early;
    Dropout dropout[2];  ///< of out_proj and linear2
    States state;        ///< with dropout
};

/// Of weights in shared memory: a tile has eight rows (output columns) and a chunk of 32 summed elements, 64 bytes a row. Runs
/// are flipped by the row: one run of the eight rows lies in different banks.
constexpr int kTileBytes = 512, kChunk = 32;

/// Where run `run` of row n of a tile lies.
__device__ inline std::uint32_t weight_offset(int n, int run) {
    return static_cast<std::uint32_t>(64 * n + 16 * (run ^ (n / 2)));
}

/// kN neighbouring tiles of output columns. kStrip of them interleave, so that a thread gets kOwn neighbouring columns.
template <int kN>
struct Columns {
    static constexpr int kStrip = kN % 4 == 0 ? 4 : kN % 2 == 0 ? 2 : 1, kStrips = kN / kStrip, kOwn = 2 * kStrip;
    static constexpr int kCount = 8 * kN;
    /// Column n of tile j, from its strip's first one on.
    [[nodiscard]] static __device__ int in_strip(int j, int n) { return kOwn * (n / 2) + 2 * (j % kStrip) + n % 2; }
};

/// Weights of a warp alone, fetched kStages chunks ahead into a ring of its own. Every chunk is one commit of copies.
template <class T, int kN, int kStages>
struct Ring {
    static constexpr int kAhead = kStages, kStageBytes = kTileBytes * kN, kAdvance = 0;
    std::uint32_t memory;
    const T* from;
    int stride;

    __device__ void fetch(int stage, int chunk) {
        const int lane = threadIdx.x % 32;
        const std::uint32_t to = memory + stage * kStageBytes + weight_offset(lane / 4, lane % 4);
#pragma unroll
        for (int j = 0; j < kN; ++j) {
            using C = Columns<kN>;
            const int row = 8 * C::kStrip * (j / C::kStrip) + 2 * (j % C::kStrip);
            copy16(to + kTileBytes * j, from + row * stride + kChunk * chunk, true);
        }
    }
    /// Columns from row `first` of w on.
    __device__ void begin(std::uint32_t ring, const Rows<const T>& w, int first) {
        const int lane = threadIdx.x % 32;
        memory = ring;
        stride = w.stride;
        from = w[first + Columns<kN>::in_strip(0, lane / 4)] + kRun * (lane % 4);
#pragma unroll
        for (int stage = 0; stage < kStages; ++stage) {
            fetch(stage, stage);
            commit_copies();
        }
    }
    __device__ void ready() const {
        await_copies<kStages - 1>();
        __syncwarp();
    }
    __device__ void used(int stage, int next, int chunks) {
        __syncwarp();
        if (next < chunks) fetch(stage, next);
        commit_copies();
    }
};

/// All weights of a block, kTiles tiles of columns; they are there.
template <int kTiles>
struct Resident {
    static constexpr int kAhead = 4, kStageBytes = kTileBytes * kTiles, kAdvance = kAhead * kStageBytes;
    std::uint32_t memory;  ///< of the warp's first tile
    __device__ void ready() const {}
    __device__ void used(int, int, int) const {}
};

/// A warp's share of rows times weights^T: 16 kM rows, 8 kN columns.
template <class T, int kM, int kN>
struct Product : Columns<kN> {
    using Columns<kN>::kStrip, Columns<kN>::kStrips, Columns<kN>::kOwn;
    static constexpr bool kPairs = kN % 2 == 0;  ///< tiles are loaded two at a time, which takes fewer registers
    float sums[kM][kN][4];

    /// The sums become the bias; column_of(strip): a strip's first column in it.
    template <class ColumnOf>
    __device__ void clear(const float* bias, ColumnOf column_of) {
        const int c = threadIdx.x % 4;
#pragma unroll
        for (int j = 0; j < kN; ++j) {
            const float2 two = *reinterpret_cast<const float2*>(bias + column_of(j / kStrip) + kOwn * c + 2 * (j % kStrip));
#pragma unroll
            for (int m = 0; m < kM; ++m) {
                sums[m][j][0] = sums[m][j][2] = two.x;
                sums[m][j][1] = sums[m][j][3] = two.y;
            }
        }
    }
    /// Adds 32 summed elements: left: this lane's address of the rows' first 16 of them.
    template <int kPitch>
    __device__ void step(std::uint32_t left, std::uint32_t weights) {
        std::uint32_t b[kN][4];  // of two tiles of 16 elements, else of one tile of 32
#pragma unroll
        for (int j = 0; j < kN && !kPairs; ++j) load_matrices(b[j], weights + kTileBytes * j);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int j = 0; j < kN && kPairs; j += 2) load_matrices(b[j], (weights ^ 32 * half) + kTileBytes * j);
#pragma unroll
            for (int m = 0; m < kM; ++m) {
                std::uint32_t a[4];
                load_matrices(a, (left ^ 32 * half) + static_cast<int>(sizeof(T)) * 16 * kPitch * m);
#pragma unroll
                for (int j = 0; j < kN; ++j) {
                    const std::uint32_t* const two = kPairs ? &b[j - j % 2][j % 2 * 2] : &b[j][2 * half];
                    mma16<T>(sums[m][j], a, two[0], two[1]);
                }
            }
        }
    }
    /// Adds the product of rows `row` and following of a tile, 32 `chunks` summed columns from run `run` on (a multiple of 8).
    /// Tiles begin at multiples of 128 bytes, so that a bit of the address flips as the bit of a run.
    template <int kPitch, class Weights>
    __device__ void multiply(const Tile<T, kPitch>& tile, int row, int run, int chunks, Weights& weights) {
        constexpr int kAhead = Weights::kAhead;
        static_assert(kAhead % 2 == 0);
        const int lane = threadIdx.x % 32;
        std::uint32_t left = shared_address(tile.run(row + lane % 16, run + lane / 16));
        std::uint32_t right = weights.memory + (kPairs ? kTileBytes * (lane / 16) + weight_offset(lane % 8, lane / 8 % 2)
                                                       : weight_offset(lane % 8, lane / 8));
#pragma unroll 1
        for (int first = 0; first < chunks; first += kAhead) {
#pragma unroll
            for (int stage = 0; stage < kAhead; ++stage) {
                weights.ready();
                step<kPitch>((left ^ 64 * (stage % 2)) + 128 * (stage / 2), right + stage * Weights::kStageBytes);
                weights.used(stage, first + stage + kAhead, chunks);
            }
            left += 64 * kAhead;
            right += Weights::kAdvance;
        }
    }
    /// What stays of the sums; its bits are in the order of each().
    __device__ void drop(const Kept& kept) {
        static_assert(4 * kM * kN <= 32);
#pragma unroll
        for (int i = 0; i < 4 * kM * kN; ++i) {
            const int run = i / kOwn, column = i % kOwn;
            sums[run / 2 / kStrips][run / 2 % kStrips * kStrip + column / 2][run % 2 * 2 + column % 2] *= kept[i];
        }
    }
    /// put(row, strip, column, word) for each run of this thread: row + lane / 4 is that of the warp's, the first column of the
    /// strip's.
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
                    put(16 * m + 8 * half, s, kOwn * (lane % 4), packed<T>(v));
                }
    }
};

/// Runs where a head's queries, keys and values begin.
struct HeadRuns {
    int query, key, value;
};

/// Queries 16 tile and following; number i of four of out[n] is row 8 (i / 2) + lane / 4, column 8 n + 2 (lane % 4) + i % 2. Rows
/// from `filled` on become 0. The logsumexp is of rows lane / 4 and 8 + lane / 4, natural.
template <class T, int kPitch>
__device__ inline void attend(const Tile<T, kPitch>& qkv, const HeadRuns& head, int tile, int filled, float (&out)[4][4],
                              float (&logsumexp)[2]) {
    constexpr int kGroups = kRows / 16;
    constexpr float kScale = 0.17677670f, kFactor = kScale * kLog2E, kLn2 = 0.69314718f;  // 1 / sqrt(32)
    const int lane = threadIdx.x % 32, row = 16 * tile + lane / 4, c = lane % 4;
    const int groups = 16 * tile < filled ? min(tile + 1, (filled + 15) / 16) : 0;  // of 16 keys, that are seen
    std::uint32_t query[2][4];                                                      // of 16 columns each
#pragma unroll
    for (int d = 0; d < 2; ++d) load_matrices(query[d], qkv.run(16 * tile + lane % 16, head.query + 2 * d + lane / 16));
    const T* const key = qkv.run(lane % 8, head.key + lane / 8);  // eight rows further on, a run lies at the same place
    float scores[kGroups][2][4], top[2] = {-INFINITY, -INFINITY}, sum[2] = {};  // of this thread's rows and columns
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
        if (group >= groups) break;
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            float(&s)[4] = scores[group][n];
            std::uint32_t k[4];
            load_matrices(k, key + (16 * group + 8 * n) * kPitch);
            s[0] = s[1] = s[2] = s[3] = 0;
            mma16<T>(s, query[0], k[0], k[1]);
            mma16<T>(s, query[1], k[2], k[3]);
        }
        if (group + 1 == groups) {  // all queries see all keys of the groups before
#pragma unroll
            for (int i = 0; i < 8; ++i)
                if (16 * group + i / 4 * 8 + 2 * c + i % 2 >= min(filled, row + i / 2 % 2 * 8 + 1))
                    scores[group][i / 4][i % 4] = -INFINITY;
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) top[i / 2 % 2] = fmaxf(top[i / 2 % 2], scores[group][i / 4][i % 4]);
    }
    float shift[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        top[half] = quad_max(top[half]);
        shift[half] = top[half] * kFactor;
    }
#pragma unroll
    for (auto& four : out) four[0] = four[1] = four[2] = four[3] = 0;
    const T* const value[2] = {qkv.run(lane % 16, head.value + lane / 16), qkv.run(lane % 16, head.value + 2 + lane / 16)};
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
        if (group >= groups) break;
        std::uint32_t weights[4];
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float(&s)[4] = scores[group][n];
                const float low = exp2_fast(fmaf(s[2 * half], kFactor, -shift[half])),
                            high = exp2_fast(fmaf(s[2 * half + 1], kFactor, -shift[half]));
                sum[half] += low + high;
                weights[2 * n + half] = pack<T>(low, high);
            }
#pragma unroll
        for (int d = 0; d < 2; ++d) {
            std::uint32_t v[4];
            load_transposed(v, value[d] + 16 * group * kPitch);
            mma16<T>(out[2 * d], weights, v[0], v[1]);
            mma16<T>(out[2 * d + 1], weights, v[2], v[3]);
        }
    }
    float share[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float all = quad_sum(sum[half]);
        const bool fills = row + 8 * half < filled;
        share[half] = fills ? __fdividef(1.0f, all) : 0;
        logsumexp[half] = fills ? fmaf(top[half], kScale, __log2f(all) * kLn2) : 0;
    }
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) out[n][i] *= share[i / 2];
}

}  // namespace millrace::ops::cuda::sequence
