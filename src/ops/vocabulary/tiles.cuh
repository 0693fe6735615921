#pragma once
// The vocabulary head on tensor cores (bf16): pieces of its two large kernels. A block owns some rows of one matrix in shared
// memory while tiles of kTile rows of the other one stream through two buffers. A warp owns 16 kTiles of the block's rows; their
// products with a tile stay in registers, where they lie as the left side of the next product, with the same tile, wants them.

#include "ops/cuda/async_copy.cuh"
#include "ops/cuda/tensor_core.cuh"
#include "ops/text/token_sums.cuh"
#include "ops/vocabulary/vocabulary.h"

namespace millrace::ops::cuda::vocabulary {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kTile = 64;       ///< rows that stream at once
constexpr int kMostParts = 32;  ///< blocks that share the streamed rows
/// Sums are only rescaled when a logit exceeds the reference by this much (e^6 leaves f32 and bf16 their precision), unless the
/// largest one is to be found.
constexpr float kMargin = 6;

/// kWidth columns, those of the matrices rounded up.
template <int kWidth>
struct Layout {
    static constexpr int kTiles = kWidth > 128 ? 1 : 2;  ///< as many as registers hold sums for
    static constexpr int kOwned = 16 * kTiles * kWarps;  ///< rows of a block
    static constexpr int kStride = kWidth + 8;           ///< eight rows of a fragment lie in different banks
    static constexpr int kFloats = 2 * kTile * 2;        ///< two values for each streamed row, in two buffers
    static constexpr std::size_t kBytes = sizeof(bf16) * (kOwned + 2 * kTile) * kStride + sizeof(float) * kFloats;
    using Products = float[kTiles][kTile / 8][4];
    using Sums = float[kTiles][kWidth / 8][4];
};

/// What the rows of the batch leave for the gradient of the weights, [K][rows up to a multiple of 128].
struct RowInfo {
    float logsumexp;      ///< in units of log 2; infinite unless the row predicts a token of the vocabulary
    std::int32_t target;  ///< -1: none
};

/// The id that a row predicts, -1: none, -2: one outside of the vocabulary.
__device__ inline int target_of(const Mat<const std::int32_t>& ids, const Mat<const std::int32_t>& lengths, int k, int row,
                                const TokenShape& shape, int first) {
    const int sequence = row / shape.positions, t = row - sequence * shape.positions - first;
    if (t < 0 || t >= tokens_of(lengths, k, sequence, shape.tokens)) return -1;
    const std::int32_t id = ids.row(k, 0, sequence)[t];
    return id >= 0 && id < shape.vocabulary ? id : -2;
}

/// The row and the column that number i of four of a fragment of sums (m, n) belongs to, of the warp's and of the tile's.
__device__ inline int row_of(int m, int i) { return 16 * m + static_cast<int>(threadIdx.x) % 32 / 4 + i / 2 * 8; }
__device__ inline int column_of(int n, int i) { return 8 * n + static_cast<int>(threadIdx.x) % 4 * 2 + i % 2; }

template <int kTiles, int kColumns>
__device__ inline void clear(float (&sums)[kTiles][kColumns][4]) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int n = 0; n < kColumns; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[m][n][i] = 0;
}

/// Begins copies of kRows rows from `begin` on to shared memory, zeros beyond `rows` and `cols`.
template <int kWidth, int kRows>
__device__ inline void stage(const Mat<const bf16>& from, int k, int begin, int rows, int cols, bf16* to) {
    constexpr int kVectors = kWidth / 8, kStep = kThreads / kVectors, kStride = Layout<kWidth>::kStride;
    static_assert(kRows % kStep == 0);
    const int row = static_cast<int>(threadIdx.x) / kVectors, column = static_cast<int>(threadIdx.x) % kVectors * 8;
    const int limit = column < cols ? rows - begin - row : 0;
    const std::uint32_t base = shared_address(to + row * kStride + column);
    const auto stride = static_cast<int>(from.stride_row);
    const bf16* source = from.row(k, 0, begin + row) + column;
#pragma unroll
    for (int i = 0; i < kRows; i += kStep) copy16(base + 2 * i * kStride, source + i * stride, i < limit);
}

/// products = the warp's rows times those of a tile.
template <int kWidth>
__device__ inline void multiply_across(typename Layout<kWidth>::Products& products, const bf16* own, const bf16* tile) {
    constexpr int kTiles = Layout<kWidth>::kTiles, kStride = Layout<kWidth>::kStride;
    const int lane = threadIdx.x % 32;
    own += lane % 16 * kStride + lane / 16 * 8;
    tile += (lane % 8 + lane / 16 * 8) * kStride + lane / 8 % 2 * 8;
    clear(products);
#pragma unroll 4  // all at once would not leave enough registers
    for (int d = 0; d < kWidth; d += 16) {
        std::uint32_t left[kTiles][4];
#pragma unroll
        for (int m = 0; m < kTiles; ++m) load_matrices(left[m], own + 16 * m * kStride + d);
#pragma unroll
        for (int n = 0; n < kTile / 16; ++n) {
            std::uint32_t right[4];
            load_matrices(right, tile + 16 * n * kStride + d);
#pragma unroll
            for (int m = 0; m < kTiles; ++m) {
                mma_bf16(products[m][2 * n], left[m][0], left[m][1], left[m][2], left[m][3], right[0], right[1]);
                mma_bf16(products[m][2 * n + 1], left[m][0], left[m][1], left[m][2], left[m][3], right[2], right[3]);
            }
        }
    }
}

/// sums += weights of the warp's rows and a tile's times the tile's rows.
template <int kWidth>
__device__ inline void multiply_along(typename Layout<kWidth>::Sums& sums, const typename Layout<kWidth>::Products& weights,
                                      const bf16* tile) {
    constexpr int kTiles = Layout<kWidth>::kTiles, kStride = Layout<kWidth>::kStride;
    const int lane = threadIdx.x % 32;
    tile += lane % 16 * kStride + lane / 16 * 8;
    const auto pair = [](float low, float high) {
        const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
        return *reinterpret_cast<const std::uint32_t*>(&both);
    };
#pragma unroll
    for (int v = 0; v < kTile / 16; ++v) {
        std::uint32_t left[kTiles][4];
#pragma unroll
        for (int m = 0; m < kTiles; ++m)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float(&from)[4] = weights[m][2 * v + i / 2];
                left[m][i] = pair(from[i % 2 * 2], from[i % 2 * 2 + 1]);
            }
#pragma unroll
        for (int n = 0; n < kWidth / 16; ++n) {
            std::uint32_t right[4];
            load_transposed(right, tile + 16 * v * kStride + 16 * n);
#pragma unroll
            for (int m = 0; m < kTiles; ++m) {
                mma_bf16(sums[m][2 * n], left[m][0], left[m][1], left[m][2], left[m][3], right[0], right[1]);
                mma_bf16(sums[m][2 * n + 1], left[m][0], left[m][1], left[m][2], left[m][3], right[2], right[3]);
            }
        }
    }
}

/// Where rows of sums go, from the first of a warp or a warpgroup on: to (+) = factor * sum. Pairs lie at multiples of 8 bytes.
struct Target {
    float* to;
    std::int64_t stride;
    float factor = 1;
    bool add = false;

    /// Returns the sum of the squares of what was written.
    __device__ float put_pair(int row, int column, float first, float second) const {
        auto* at = reinterpret_cast<float2*>(to + row * stride + column);
        const float2 before = add ? *at : make_float2(0, 0);
        const float2 now = make_float2(before.x + factor * first, before.y + factor * second);
        *at = now;
        return now.x * now.x + now.y * now.y;
    }
};

/// Puts the warp's sums, `rows` rows of `cols` columns of them. Returns a thread's sum of squares.
template <int kWidth>
__device__ inline float put_sums(const typename Layout<kWidth>::Sums& sums, const Target& target, int rows, int cols) {
    float squares = 0;
#pragma unroll
    for (int m = 0; m < Layout<kWidth>::kTiles; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = row_of(m, 2 * half);
            if (row >= rows) continue;
#pragma unroll
            for (int n = 0; n < kWidth / 8; ++n)
                if (const int column = column_of(n, 0); column < cols)
                    squares += target.put_pair(row, column, sums[m][n][2 * half], sums[m][n][2 * half + 1]);
        }
    return squares;
}

/// Sum over the four lanes that share a row.
__device__ inline float row_sum(float value) {
    value += __shfl_xor_sync(0xffffffffu, value, 1);
    return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

/// What the launches of one vocabulary_loss share. Sums of parts are [part][K][row][C].
struct Args : TokenSums {
    Mat<const bf16> x, weight;
    Mat<const float> bias;
    Mat<const std::int32_t> ids;
    Mat<float> logsumexp;
    Mat<bf16> dx;               ///< optional
    Mat<float> dweight, dbias;  ///< each optional
    int members = 0, rows = 0, cols = 0;
    bool exact = false;  ///< the largest logit's entry is wanted
    bool add_dx = false, add_weight = false, add_bias = false;
    int parts = 1, weight_parts = 1;  ///< of the vocabulary for a block of rows, of the rows for a block of the vocabulary
    bool warpgroups = false;          ///< the kernels of warpgroups.cuh
    bool sums_tokens = false;         ///< the kernel of the weights also adds up what was found
    float4* stats = nullptr;  ///< [part][K][row]: reference, sum of exponentials over it, target's logit, entry of the largest
    float* sums = nullptr;    ///< of exponentials times weights; later of gradients times rows, with those of the biases behind
    float* shares = nullptr;  ///< [K]: factor of a token's gradients in the mean over the member's, 0 without tokens
    RowInfo* info = nullptr;
    float* squares = nullptr;  ///< [K][square_parts]: sums of squares of dweight, for the norm; null: not computed
    int square_parts = 0;
    bool joined = false;                  ///< one part of the vocabulary alone, whose warpgroups finish their rows themselves
    bool direct = false;                  ///< one part of the rows alone, which goes straight to dweight and dbias
    int blocks = 0;                       ///< of warpgroups, for the weights
    std::int32_t* handed_over = nullptr;  ///< [blocks][8], zeros: blocks share tiles evenly and hand over sums; null: whole parts
    tensor::DType type = tensor::DType::bf16;  ///< of x, weight and dx; f16 has the same bytes

    [[nodiscard]] __host__ __device__ int padded_rows() const { return (rows + 127) / 128 * 128; }
    /// Partial sums of the biases' gradients, [part][K][V].
    [[nodiscard]] __host__ __device__ float* bias_sums() const {
        return sums + std::int64_t{weight_parts} * members * shape.vocabulary * cols;
    }
    [[nodiscard]] __device__ RowInfo* info_of(int k) const { return info + std::int64_t{k} * padded_rows(); }
    /// Where the gradients of entries from `entry` on go; what a token contributes is multiplied by `share` in the end.
    [[nodiscard]] __device__ Target weight_target(int part, int k, int entry, float share) const {
        if (direct) return {dweight.row(k, 0, entry), dweight.stride_row, share, add_weight};
        return {sums + ((std::int64_t{part} * members + k) * shape.vocabulary + entry) * cols, cols};
    }
    __device__ void put_bias(int part, int k, int entry, float sum, float share) const {
        if (!direct)
            bias_sums()[(std::int64_t{part} * members + k) * shape.vocabulary + entry] = sum;
        else if (dbias)
            put(dbias.row(k, 0, 0) + entry, sum * share, add_bias);
    }
};

/// Leaves the share of member k's tokens, times the scale of its loss, and returns it; by all threads of a block, `shared` as in
/// block_sum.
__device__ inline float put_share(const Args& a, int k, int* shared) {
    const double divisor = block_divisor(a, k, shared);
    const float share = divisor > 0 ? static_cast<float>(a.params.scale / divisor) * a.state[k].loss_scale : 0;
    if (blockIdx.x == 0 && threadIdx.x == 0) a.shares[k] = share;
    return share;
}

/// Leaves what follows from a row's largest logit, the sum of exponentials over it, the target's logit and the entry of the
/// largest. Rows up to the end of the last tile get their info.
__device__ inline void put_row(const Args& a, int k, int row, int target, float top, float sum, float logit, int best) {
    const float log_sum = logf(sum), loss = log_sum - (logit - top);
    a.info_of(k)[row] = target < 0 ? RowInfo{INFINITY, -1} : RowInfo{(top + log_sum) * kLog2E, target};
    if (row >= a.rows) return;
    a.found[std::int64_t{k} * a.rows + row] =
        target < 0 ? Found{0, 0, target == -2} : Found{loss, best == target, !isfinite(loss)};
    *a.logsumexp.row(k, 0, row) = target < 0 ? 0 : top + log_sum;
}

/// The sum over a warp is number `part` of member k's sums of squares.
__device__ inline void put_squares(const Args& a, int k, int part, float sum) {
    if (a.squares == nullptr) return;
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (threadIdx.x % 32 == 0) a.squares[std::int64_t{k} * a.square_parts + part] = sum;
}

/// f<columns of the kernels that take rows of `cols`>().
template <class F>
auto with_width(int cols, F f) {
    return cols <= 64 ? f.template operator()<64>() : cols <= 128 ? f.template operator()<128>() : f.template operator()<256>();
}

namespace warpgroups {
struct Maps;  // warpgroups.cuh; only read where Args::warpgroups
}
/// Logits, their sums, and with dx the sums of weights: stats, sums, then info, found, shares, logsumexp and dx.
KernelResult make_forward(Context& c, const Args& args, const warpgroups::Maps& maps);
/// How many sums of squares of a member's dweight there will be.
int square_parts(const Args& args);
/// dweight and dbias from info; `aligned`: rows of dweight begin at multiples of 16 bytes.
KernelResult make_weight_gradient(Context& c, const Args& args, const warpgroups::Maps& maps, bool aligned);

/// The first kernel of each of them, with warpgroups.
KernelResult make_warpgroup_forward(Context& c, const Args& args, const warpgroups::Maps& maps);
KernelResult make_warpgroup_weight_gradient(Context& c, const Args& args, const warpgroups::Maps& maps);

/// The same for all shapes and precisions. What `found` points to stays valid as long as the kernel lives.
KernelResult make_plain(Context& c, const Bound& b, const TokenSums& found);

}  // namespace millrace::ops::cuda::vocabulary
