// Every block computes one tile of one layer's dw = dz^T x, or the share of it that some of the rows have. The summed index are
// the rows of both operands, 64 columns times 64 or 128 times 128, for compute capability 8.0 and up: rows go through shared
// memory in slices, and the next ones are under way during the products.

#include <cmath>
#include <vector>

#include "ops/cuda/squares.h"
#include "ops/dense/forms.h"
#include "ops/tile/element.cuh"
#include "ops/tile/plan.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;
using tile::Factor, tile::fetch_piece, tile::kPiece, tile::multiply_pieces, tile::Stored;

/// Of one operand.
template <class T>
struct Columns {
    const T* first;  ///< first column, row 0
    int stride, count;
    bool vector;  ///< rows begin at multiples of 16 bytes
};

template <class E, int kTile>
class SummedRows {
public:
    using T = Stored<E>;
    static constexpr int kThreads = 2 * kTile, kDepth = 4096 / kTile;  ///< kDepth: rows of a slice
    /// Warps own kTile / 2 x 32 of the tile; a thread has columns left() + 16 m (+ 8: the last two sums) of the left operand and
    /// right() + 8 n and the next one of the right.
    static constexpr int kHigh = kTile / 32;
    using Sums = float[kHigh][4][4];
    static __device__ int left() { return kTile / 2 * (warp() & 1) + lane() / 4; }
    static __device__ int right() { return 32 * (warp() >> 1) + 2 * (lane() & 3); }

    /// sums += left^T right over `rows` rows. Where it is asked for, left_sum += every other row of left column
    /// threadIdx.x % kTile, which two threads share.
    __device__ void multiply(Sums& sums, const Columns<T>& left, const Columns<T>& right, int rows, bool sums_left,
                             float& left_sum) {
        Share next_left, next_right;
        next_left.fetch(left, 0, rows);
        next_right.fetch(right, 0, rows);
        for (int row = 0; row < rows; row += kDepth) {
            __syncthreads();
            next_left.put(left_);
            next_right.put(right_);
            __syncthreads();
            if (row + kDepth < rows) {
                next_left.fetch(left, row + kDepth, rows);
                next_right.fetch(right, row + kDepth, rows);
            }
            const int steps = min(kDepth / 16, (rows - row + 15) / 16);
            for (int s = 0; s < steps; ++s) step(sums, 16 * s);
            if (sums_left) left_sum += half_column();
        }
    }

private:
    static constexpr int kPitch = kTile + 8;  ///< keeps reads free of bank conflicts

    static __device__ int lane() { return static_cast<int>(threadIdx.x) & 31; }
    static __device__ int warp() { return static_cast<int>(threadIdx.x) >> 5; }

    /// A thread's share of a slice, on its way to shared memory.
    struct Share {
        static constexpr int kAcross = kTile / kPiece<T>, kCount = kDepth * kAcross / kThreads;
        uint4 v[kCount];

        __device__ void fetch(const Columns<T>& from, int row0, int rows) {
#pragma unroll
            for (int i = 0; i < kCount; ++i) {
                const int row = row0 + row_of(i);
                const T* source = row < rows ? from.first + std::int64_t{row} * from.stride : nullptr;
                v[i] = from.vector ? fetch_piece<true>(source, column(), from.count)
                                   : fetch_piece<false>(source, column(), from.count);
            }
        }
        __device__ void put(T* to) const {
#pragma unroll
            for (int i = 0; i < kCount; ++i) *reinterpret_cast<uint4*>(to + row_of(i) * kPitch + column()) = v[i];
        }

    private:
        static __device__ int row_of(int i) { return static_cast<int>(threadIdx.x) / kAcross + i * (kThreads / kAcross); }
        static __device__ int column() { return kPiece<T> * (static_cast<int>(threadIdx.x) % kAcross); }
    };

    /// Of the slice in memory.
    __device__ float half_column() const {
        const T* column = left_ + threadIdx.x / kTile * kPitch + threadIdx.x % kTile;
        float sum = 0;
#pragma unroll 8
        for (int row = 0; row < kDepth; row += 2) sum += load(column + row * kPitch);
        return sum;
    }

    /// The piece of a column: rows t, t + 4, t + 8 and t + 12 behind `row`, where t is the lane in its four.
    static __device__ uint4 down(const T* from, int row, int column) {
        const auto* at = reinterpret_cast<const std::uint32_t*>(from + (row + (lane() & 3)) * kPitch + column);
        return make_uint4(at[0], at[4 * kPitch], at[8 * kPitch], at[12 * kPitch]);
    }

    /// 16 rows from `row` on.
    __device__ void step(Sums& sums, int row) const {
        const int left0 = kTile / 2 * (warp() & 1), right0 = 32 * (warp() >> 1);
        if constexpr (sizeof(T) == 4) {
            Factor<E> right[4];
#pragma unroll
            for (int n = 0; n < 4; ++n) right[n] = Factor<E>(down(right_, row, right0 + 8 * n + lane() / 4));
#pragma unroll
            for (int m = 0; m < kHigh; ++m) {
                const int column = left0 + 16 * m + lane() / 4;
                const Factor<E> upper(down(left_, row, column)), lower(down(left_, row, column + 8));
#pragma unroll
                for (int n = 0; n < 4; ++n) multiply_pieces<E>(sums[m][n], upper, lower, right[n]);
            }
        } else {
            const int part = lane() / 8, line = lane() % 8;
            std::uint32_t a[kHigh][4], b[2][4];
#pragma unroll
            for (int m = 0; m < kHigh; ++m)
                load_transposed(a[m], left_ + (row + (part >> 1) * 8 + line) * kPitch + left0 + 16 * m + (part & 1) * 8);
#pragma unroll
            for (int n = 0; n < 2; ++n)
                load_transposed(b[n], right_ + (row + (part & 1) * 8 + line) * kPitch + right0 + 16 * n + (part >> 1) * 8);
            multiply_fragments<E>(sums, a, b);
        }
    }

    alignas(16) T left_[kDepth * kPitch];
    alignas(16) T right_[kDepth * kPitch];
};

/// A tile of one layer, as blocks find it in a table.
template <class T>
struct WgradTile {
    Columns<T> dz, x;
    float* dw;
    float* squares;  ///< where the sum of the squares of what was written goes; null: nowhere
    float* bias;     ///< where the sums of dz's columns go; null: nowhere
    std::int32_t ld_dw;
    std::int32_t depth;  ///< rows of the batch
    bool pairs;          ///< rows of dw begin at multiples of 8 bytes
    bool accumulate, add_bias;
    std::int32_t share;  ///< of those of the tile
    tile::Shares shares;
};

/// Two neighbours of a row of the tile. Returns the sum of the squares of what was written.
template <class T>
__device__ float put_pair(const WgradTile<T>& tile, int row, int col, float first, float second) {
    if (row >= tile.dz.count || col >= tile.x.count) return 0;
    float* at = tile.dw + std::int64_t{row} * tile.ld_dw + col;
    const bool both = col + 1 < tile.x.count;
    if (tile.accumulate) {
        first += at[0];
        if (both) second += at[1];
    }
    if (tile.pairs && both) {
        *reinterpret_cast<float2*>(at) = make_float2(first, second);
    } else {
        at[0] = first;
        if (both) at[1] = second;
    }
    return first * first + (both ? second * second : 0);
}

/// Whether blocks may share a tile's rows. Where rows are many, 16-bit elements have the products of ops/tile.
template <class E>
constexpr bool kSharesRows = sizeof(tile::Stored<E>) == 4;
/// Blocks that a multiprocessor holds.
template <class E, int kTile>
constexpr int kBlocks = sizeof(tile::Stored<E>) == 2     ? 5
                        : !std::is_same_v<E, tile::Tf32> ? 3
                        : kTile == 64                    ? 4
                                                         : 2;

template <class E, int kTile>
__global__ void __launch_bounds__(2 * kTile, kBlocks<E, kTile>) wgrad_kernel(const WgradTile<tile::Stored<E>>* tiles) {
    using Product = SummedRows<E, kTile>;
    constexpr int kQuads = 4 * Product::kHigh, kThreads = Product::kThreads;
    __shared__ Product product;
    __shared__ float shared[kThreads];
    __shared__ int before;
    const WgradTile<tile::Stored<E>> early = tiles[blockIdx.x];  // no kernel writes the table
    begin_kernel();
    typename Product::Sums sums = {};
    float bias[4] = {};  // the first one, a quad for join_shares
    product.multiply(sums, early.dz, early.x, early.depth, early.bias != nullptr, bias[0]);
    const WgradTile<tile::Stored<E>> tile = tiles[blockIdx.x];  // again: to hold all of it costs the product registers
    const int thread = static_cast<int>(threadIdx.x);
    if constexpr (kSharesRows<E>)
        if (tile.shares.count > 1) {
            const auto quad = [&](int i) { return i < kQuads ? &sums[0][0][0] + 4 * i : bias; };
            if (!tile::join_shares<kQuads + 1, kThreads>(tile.shares, tile.share, thread, &before, quad, [] { __syncthreads(); }))
                return;
        }
    float squares = 0;
#pragma unroll
    for (int m = 0; m < Product::kHigh; ++m)
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            const int row = Product::left() + 16 * m, col = Product::right() + 8 * n;
            squares += put_pair(tile, row, col, sums[m][n][0], sums[m][n][1]);
            squares += put_pair(tile, row + 8, col, sums[m][n][2], sums[m][n][3]);
        }
    if (tile.bias != nullptr) {
        shared[thread] = bias[0];
        __syncthreads();
        if (thread < tile.dz.count) put(tile.bias + thread, shared[thread] + shared[thread + kTile], tile.add_bias);
        __syncthreads();
    }
    if (tile.squares == nullptr) return;
    squares = block_sum(squares, shared);
    if (thread == 0) *tile.squares = squares;
}

/// How a launch is cut.
struct Cut {
    int tile = 64;   ///< rows and columns of a tile
    int shares = 1;  ///< of a tile's rows, at most
    double microseconds = 0;
};

/// What the blocks of a busy multiprocessor take for 64 rows, in microseconds on an H200: as long as their operands come from
/// the second cache, strict f32 as long as its six products.
struct Pace {
    int tile, blocks;
    double step;
    bool shares_rows;
};
std::span<const Pace> paces_of(const Context& c, tensor::DType type) {
    static constexpr Pace kHalf[] = {{64, kBlocks<bf16, 64>, 1.95, kSharesRows<bf16>}},
                          kStrict[] = {{64, kBlocks<float, 64>, 7.6, kSharesRows<float>}},
                          kTf32[] = {{64, kBlocks<tile::Tf32, 64>, 5.8, kSharesRows<float>},
                                     {128, kBlocks<tile::Tf32, 128>, 5.8, kSharesRows<float>}};
    if (tensor::size_of(type) == 2) return kHalf;
    if (c.tf32 && !c.deterministic) return kTf32;
    return kStrict;
}

std::int64_t tiles_of(const Operand& dw, int tile) {
    return std::int64_t{dw.k} * dw.g * blocks_for(dw.rows, tile) * blocks_for(dw.cols, tile);
}

/// Rows in units of the figures above.
int slices_of(const Bound& b) { return static_cast<int>(blocks_for(b[linear_wgrad::dz].rows, 64)); }

double time_of(const Context& c, std::span<const Bound> wgrads, const Pace& pace, int shares) {
    constexpr double kLaunch = 2, kHandOver = 2.5, kShare = 0.3, kBytesPerMicrosecond = 48e3;
    std::int64_t units = 0;
    int longest = 0;
    for (const Bound& b : wgrads) {
        const int parts = tile::splits_of(slices_of(b), shares);
        units += tiles_of(b[linear_wgrad::dw], pace.tile) * parts;
        longest = std::max<int>(longest, blocks_for(slices_of(b), parts));
    }
    const double rounds = std::max(1.0, static_cast<double>(units) / (pace.blocks * c.multiprocessors));
    // A share of a tile is written and read once more.
    const double join = shares > 1 ? kHandOver + kShare * shares + 8.0 * pace.tile * pace.tile / kBytesPerMicrosecond : 0;
    // Large tiles are few, and the last ones are alone.
    return kLaunch + pace.step * longest * (pace.tile > 64 ? std::ceil(rounds) : rounds) + join;
}

/// The fastest way. Pinned runs have one: sums must not depend on what else is in the launch.
Cut cut_for(const Context& c, std::span<const Bound> wgrads) {
    Cut best;
    for (const Pace& pace : paces_of(c, wgrads.front()[linear_wgrad::x].dtype))
        for (const int shares : {1, 2, 3, 4, 6, 8, 12, 16}) {
            if (shares > 1 && (c.deterministic || !pace.shares_rows)) break;
            const double time = time_of(c, wgrads, pace, shares);
            if (best.microseconds == 0 || time < best.microseconds) best = {pace.tile, shares, time};
        }
    return best;
}

/// Where a launch's blocks leave things.
struct Memory {
    float* squares;       ///< of the next tile; null: not wanted
    tile::Shares shares;  ///< of the next tile
    std::size_t share;    ///< quads of one
};

template <class T, int kTile>
void append_tiles(const Bound& b, int most_shares, Memory& memory, std::vector<WgradTile<T>>& tiles) {
    using namespace linear_wgrad;
    const Operand &oz = b[dz], &ox = b[x], &ow = b[dw];
    const int shares = tile::splits_of(slices_of(b), most_shares), each = 64 * static_cast<int>(blocks_for(slices_of(b), shares));
    const auto append = [&](int k, int g, int row, int col) {
        WgradTile<T> t{};
        t.dw = ow.at<float>(k, g, row) + col;
        t.squares = memory.squares == nullptr ? nullptr : memory.squares++;
        t.bias = b[dbias].present() && col == 0 ? b[dbias].at<float>(k, g) + row : nullptr;
        t.ld_dw = static_cast<std::int32_t>(ow.stride_row);
        t.pairs = reinterpret_cast<std::uintptr_t>(t.dw) % 8 == 0 && t.ld_dw % 2 == 0;
        t.accumulate = b.accumulates(dw);
        t.add_bias = b.accumulates(dbias);
        t.shares = memory.shares;
        t.shares.count = shares;
        for (t.share = 0; t.share < shares; ++t.share) {
            const int begin = t.share * each;
            t.dz = {oz.at<const T>(k, g, begin) + row, static_cast<int>(oz.stride_row), std::min(kTile, ow.rows - row),
                    aligned16(oz)};
            t.x = {ox.at<const T>(k, g, begin) + col, static_cast<int>(ox.stride_row), std::min(kTile, ow.cols - col),
                   aligned16(ox)};
            t.depth = std::min(each, oz.rows - begin);
            tiles.push_back(t);
        }
        if (shares == 1) return;
        memory.shares.sums += memory.share * static_cast<std::size_t>(shares);
        ++memory.shares.arrived;
    };
    for (int k = 0; k < ow.k; ++k)
        for (int g = 0; g < ow.g; ++g)
            for (int row = 0; row < ow.rows; row += kTile)
                for (int col = 0; col < ow.cols; col += kTile) append(k, g, row, col);
}

template <class E, int kTile>
KernelResult make_blocks(Context& c, std::span<const Bound> wgrads, int shares) {
    using T = tile::Stored<E>;
    using Product = SummedRows<E, kTile>;
    std::vector<WgradTile<T>> tiles;
    std::vector<DeviceTable> held;
    Memory memory{};
    memory.share = std::size_t{Product::kThreads} * (4 * Product::kHigh + 1);
    if (shares > 1) {
        std::size_t most = 0;
        for (const Bound& b : wgrads) most += static_cast<std::size_t>(tiles_of(b[linear_wgrad::dw], kTile));
        MILLRACE_LET(sums, zero_table(c, sizeof(float4) * memory.share * most * static_cast<std::size_t>(shares)));
        MILLRACE_LET(arrived, zero_table(c, sizeof(std::int32_t) * most));
        memory.shares = {static_cast<float4*>(sums), static_cast<std::int32_t*>(arrived), shares};
        held = {sums, arrived};
    }
    for (const Bound& b : wgrads) {
        const Operand& dw = b[linear_wgrad::dw];
        MILLRACE_LET(squares, leave_squares(c, dw, static_cast<int>(tiles_of(dw, kTile) / dw.k)));
        memory.squares = static_cast<float*>(squares);
        append_tiles<T, kTile>(b, shares, memory, tiles);
        held.push_back(squares);
    }
    if (tiles.empty()) return make_kernel([] {});
    MILLRACE_LET(table, upload_table(c, tiles.data(), tiles.size() * sizeof(WgradTile<T>)));
    return make_kernel([table, held, stream = c.stream, grid = dim3(static_cast<unsigned>(tiles.size()))] {
        launch(wgrad_kernel<E, kTile>, grid, dim3(Product::kThreads), 0, stream, table);
    });
}

}  // namespace

KernelResult make_wgrad_blocks(Context& c, std::span<const Bound> wgrads) {
    const Cut cut = cut_for(c, wgrads);
    return tile::by_element(wgrads.front()[linear_wgrad::x].dtype, c.tf32 && !c.deterministic, [&]<class E>(E) -> KernelResult {
        if constexpr (std::is_same_v<E, tile::Tf32>)
            if (cut.tile == 128) return make_blocks<E, 128>(c, wgrads, cut.shares);
        return make_blocks<E, 64>(c, wgrads, cut.shares);
    });
}

double wgrad_blocks_time(const Context& c, std::span<const Bound> wgrads) { return cut_for(c, wgrads).microseconds; }

}  // namespace millrace::ops::cuda
