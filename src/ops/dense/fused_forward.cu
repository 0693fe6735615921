// Linear, batch norm, activation and dropout in one kernel.

#include <string>

#include "ops/cuda/cluster.cuh"
#include "ops/dense/forms.h"
#include "ops/dense/layer_args.cuh"
#include "ops/tile/element.cuh"
#include "ops/tile/strip.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;
using namespace strips;

/// What a thread needs of its column besides the product.
struct Column {
    float bias = 0, gamma = 1, beta = 0;
};

template <class T>
__device__ Column load_column(const FusedForward<T>& a, int k, int g, int column) {
    Column c;
    if (column >= a.out) return c;
    if (a.bias) c.bias = __ldcg(a.bias.row(k, g, 0) + column);
    if (a.p.norm != Norm::none) {
        c.gamma = __ldcg(a.gamma.row(k, g, 0) + column);
        c.beta = __ldcg(a.beta.row(k, g, 0) + column);
    }
    return c;
}

struct Moments {
    float mean, squares;  ///< sum of squared distances from the mean
};

/// Moments of a column over all rows of the batch: of the block's own rows first, then merged over the cluster in the order of
/// the ranks.
template <int kColumns, int kOwn, class T>
__device__ Moments batch_moments(const float (&own)[kOwn], const FusedForward<T>& a, float* scratch, float* exchange, int rows) {
    const int step = blockDim.x / kColumns, first = threadIdx.x / kColumns, mine = threadIdx.x % kColumns;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
        if (first + i * step < rows) sum += own[i];
    Moments m;
    m.mean = column_sum<kColumns>(sum, scratch) / static_cast<float>(rows);
    float squares = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
        if (first + i * step < rows) squares += (own[i] - m.mean) * (own[i] - m.mean);
    m.squares = column_sum<kColumns>(squares, scratch);
    if (a.row_tiles == 1) return m;

    if (first == 0) {
        exchange[mine] = m.mean;
        exchange[kColumns + mine] = m.squares;
    }
    cluster_arrive();
    cluster_wait();
    float total = 0;
    for (int r = 0; r < a.row_tiles; ++r)
        total += static_cast<float>(min(a.row_tile, a.rows - r * a.row_tile)) * read_rank(exchange + mine, r);
    m.mean = total / static_cast<float>(a.rows);
    m.squares = 0;
    for (int r = 0; r < a.row_tiles; ++r) {
        const float apart = read_rank(exchange + mine, r) - m.mean;
        m.squares += read_rank(exchange + kColumns + mine, r) +
                     static_cast<float>(min(a.row_tile, a.rows - r * a.row_tile)) * apart * apart;
    }
    cluster_arrive();  // matched at the end of the kernel: no block exits while others read its memory
    return m;
}

/// Normalises the thread's values in place: own becomes xhat, rounded as `saved` stores it. `old`: running mean and variance.
template <int kColumns, int kOwn, class T>
__device__ void batch_norm(float (&own)[kOwn], const FusedForward<T>& a, float* scratch, float* exchange, int k, int g,
                           int column, int rows, float2 old, bool writes) {
    const Moments moments = batch_moments<kColumns>(own, a, scratch, exchange, rows);
    const auto n = static_cast<float>(a.rows);
    const float var = moments.squares / n, inv = 1 / sqrtf(var + a.p.eps);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) own[i] = rounded((own[i] - moments.mean) * inv, static_cast<const T*>(nullptr));
    if (!writes) return;
    a.inv_std.row(k, g, 0)[column] = inv;
    const float unbiased = a.rows > 1 ? moments.squares / (n - 1) : var;
    if (!isfinite(moments.mean) || !isfinite(unbiased)) return;
    a.running_mean.row(k, g, 0)[column] = old.x + a.p.momentum * (moments.mean - old.x);
    a.running_var.row(k, g, 0)[column] = old.y + a.p.momentum * (unbiased - old.y);
}

template <class E, int kTiles, int kSplit, bool kVector>
__global__ void __launch_bounds__(512) dense_forward_kernel(const __grid_constant__ FusedForward<tile::Stored<E>> a) {
    using T = tile::Stored<E>;
    constexpr int kColumns = Strip<kTiles, kSplit>::kColumns, kOwn = Strip<kTiles, kSplit>::kOwn;
    extern __shared__ float shared[];
    __shared__ float exchange[2 * kColumns];
    if (!a.early) begin_kernel();
    const int k = blockIdx.z / a.row_tiles, row0 = (blockIdx.z % a.row_tiles) * a.row_tile, g = blockIdx.y;
    const int rows = min(a.row_tile, a.rows - row0);
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, split = warp % kSplit, strip = warp / kSplit;
    const int column0 = blockIdx.x * kColumns;
    const int column = column0 + threadIdx.x % kColumns, step = blockDim.x / kColumns, first = threadIdx.x / kColumns;
    const bool valid = column < a.out;

    const T* b_rows[kTiles];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
        const int b_column = column0 + 8 * t + lane / 4;
        b_rows[t] = b_column < a.out ? a.w.row(k, g, b_column) : nullptr;
    }
    auto fetch_b = [&](int t, int at) { return tile::fetch_piece<kVector>(b_rows[t], at, a.in); };
    Fragments<kTiles> b;
    fetch_round<E, kSplit>(b, split, fetch_b);
    const Column constants = load_column(a, k, g, column);
    if (a.early) begin_kernel();

    const T* a_rows[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
        const int row = 32 * strip + 8 * r + lane / 4;
        a_rows[r] = row < rows ? a.x.row(k, g, row0 + row) : nullptr;
    }
    float acc[2][kTiles][4] = {};
    multiply<E, kSplit, kVector>(acc, a_rows, a.in, split, b, fetch_b);
    // What the epilogue needs is asked for behind the product, whose operands leave no registers: a value that arrives before it
    // is spilled or made uniform, and the warp waits for it before it asks for operands. It arrives during the reduction.
    const DropoutKey key = dropout_key({a.p.dropout, a.p.op_number}, a.state, k);
    float2 running = make_float2(0, 1);
    if (a.p.norm != Norm::none && valid)
        running = make_float2(a.running_mean.row(k, g, 0)[column], a.running_var.row(k, g, 0)[column]);
    float own[kOwn];
    reduce_splits<kTiles, kSplit>(acc, shared, blockDim.x / (32 * kSplit), strip, split, own);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) own[i] += constants.bias;

    if (a.p.norm == Norm::batch_train) {
        batch_norm<kColumns>(own, a, shared, exchange, k, g, column, rows, running, valid && first == 0 && row0 == 0);
    } else if (a.p.norm == Norm::batch_eval) {
        const float inv = 1 / sqrtf(running.y + a.p.eps);
#pragma unroll
        for (int i = 0; i < kOwn; ++i) own[i] = (own[i] - running.x) * inv;
    } else if (a.saved) {
#pragma unroll
        for (int i = 0; i < kOwn; ++i) own[i] = rounded(own[i], static_cast<const T*>(nullptr));
    }
    const DropoutRule rule = dropout_rule(key);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
        const int row = row0 + first + i * step;
        if (!valid || first + i * step >= rows) continue;
        if (a.saved) store(a.saved.row(k, g, row) + column, own[i]);
        const float u = a.p.norm == Norm::none ? own[i] : constants.gamma * own[i] + constants.beta;
        const std::uint64_t element = (static_cast<std::uint64_t>(g) * a.rows + row) * a.out + column;
        store(a.y.row(k, g, row) + column, activate(u, a.p.activation) * dropout_factor(key, rule, element));
    }
    if (a.p.norm == Norm::batch_train && a.row_tiles > 1) cluster_wait();
}

struct ForwardKernels {
    template <class E, int kTiles, int kSplit, bool kVector>
    static auto kernel() {
        return dense_forward_kernel<E, kTiles, kSplit, kVector>;
    }
};

bool reads_pieces(const Bound& b) { return aligned16(b[dense_forward::x]) && aligned16(b[dense_forward::w]); }

wide::Covering<Shape> cover(const Context& c, const Bound& b) {
    using namespace dense_forward;
    const Operand &ox = b[x], &oy = b[y];
    const auto& p = b.params<DenseParams>();
    const bool whole = p.norm == Norm::batch_train, vector = reads_pieces(b);
    const int members = c.deterministic ? 1 : oy.k, size = static_cast<int>(tensor::size_of(oy.dtype));
    const Shape strips =
        shape_for({oy.rows, ox.cols, std::int64_t{(oy.cols + 7) / 8} * oy.g * members, whole, vector && !c.deterministic, size},
                  c.multiprocessors);
    const wide::Extent extent{oy.rows, oy.cols, std::int64_t{oy.g} * members, whole, vector && ox.cols % 8 == 0};
    return wide::cover(strips, extent, size == 2 && wide::has_activation(p.activation), 16, c.multiprocessors,
                       [&](const wide::Tiling& tiling) { return tiling.ring_bytes(ox.cols, wide::kStages) <= c.shared_limit; });
}

}  // namespace

const char* refuses_strips(const Context& c, const Bound& b) {
    using namespace dense_forward;
    const tensor::DType type = b[y].dtype;
    const bool one_type = tile::has_element(type) && b[x].dtype == type && b[w].dtype == type;
    const bool few_rows = b.params<DenseParams>().norm != Norm::batch_train || b[y].rows <= c.fused_rows;
    return one_type && few_rows && b[y].count() > 0 ? nullptr : "types differ, or more rows than blocks can sum over";
}

double strips_forward_time(const Context& c, const Bound& b) {
    constexpr double kLaunch = 2.6, kStatistics = 1.6, kErrorFunctions = 72e3;  // a microsecond
    const auto& p = b.params<DenseParams>();
    const Operand& y = b[dense_forward::y];
    const auto size = static_cast<std::int64_t>(tensor::size_of(y.dtype));
    const auto by = cover(c, b);
    const std::int64_t blocks =
        std::int64_t{y.g} * (c.deterministic ? 1 : y.k) * by.strips.row_tiles * blocks_for(y.cols, 8 * by.strips.tiles);
    // Blocks of strips come in turns: a multiprocessor holds 512 threads of them.
    const std::int64_t turns = blocks_for(blocks * by.strips.threads(), 512 * c.multiprocessors);
    // In f32 rounds of loads are as long as in 16 bits and bring as much, and a block that waits for another begins late.
    const double bytes_per_microsecond = size == 4 ? 60e3 : 38e3, turn = size == 2 ? 0 : c.tf32 ? 3.7 : 4.1;
    const double slow = wide::has_activation(p.activation) ? 0 : static_cast<double>(y.count()) / kErrorFunctions;
    const double bytes = static_cast<double>(size * by.cost * b[dense_forward::x].cols);
    return kLaunch + bytes / bytes_per_microsecond + turn * static_cast<double>(turns - 1) + slow +
           (p.norm == Norm::batch_train ? kStatistics : 0);
}

KernelResult make_fused_dense_forward(Context& c, const Bound& b) {
    const Operand& y = b[dense_forward::y];
    if (y.count() == 0) return make_kernel([] {});
    const auto by = cover(c, b);
    const int row_tiles = by.tiling.columns > 0 ? by.tiling.row_tiles : by.strips.row_tiles;
    if (std::int64_t{y.k} * row_tiles > 65535)
        return base::Error{"a batch of " + std::to_string(y.rows) + " rows for " + std::to_string(y.k) +
                           " members is more than a launch takes; use a smaller eval.batch"};
    if (by.tiling.columns > 0) return make_wide_forward(c, b, by.tiling);
    return tile::by_element(y.dtype, c.tf32 && !c.deterministic, [&]<class E>(E) {
        const auto kernel = kernel_for<ForwardKernels, E>(by.strips, reads_pieces(b));
        const auto a = fused_forward<tile::Stored<E>>(c, b, by.strips.row_tile, by.strips.row_tiles);
        return make_strips(c, kernel, by.strips, y, by.strips.partial_bytes(), a);
    });
}

}  // namespace millrace::ops::cuda
