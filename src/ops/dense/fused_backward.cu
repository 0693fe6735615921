// From the gradient of the layer above (dz w) through dropout, activation and batch norm to this layer's dz, in one kernel.

#include "ops/cuda/cluster.cuh"
#include "ops/dense/forms.h"
#include "ops/dense/layer_args.cuh"
#include "ops/tile/element.cuh"
#include "ops/tile/strip.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;
using namespace strips;

template <class T>
struct BackwardArgs : FusedBackward<T> {
    bool w_vector;
};

/// Columns [column0, +kColumns) of w, transposed: shared[c][n], rows `stride` elements apart, zeros beyond the edges.
template <int kColumns, class T>
__device__ void stage_weights(const BackwardArgs<T>& a, T* shared, int stride, int k, int g, int column0) {
    constexpr int kPiece = tile::kPiece<T>;
    const int limit = a.product_cols - column0;
    for (int i = threadIdx.x; i < stride * (kColumns / kPiece); i += blockDim.x) {
        const int n = i % stride, c0 = kPiece * (i / stride);
        uint4 v = make_uint4(0, 0, 0, 0);
        if (n < a.summed) {
            const T* row = a.w.row(k, g, n) + column0;
            v = a.w_vector ? tile::fetch_piece<true>(row, c0, limit) : tile::fetch_piece<false>(row, c0, limit);
        }
#pragma unroll
        for (int c = 0; c < kPiece; ++c) shared[(c0 + c) * stride + n] = tile::element_of<T>(v, c);
    }
}

/// Shared row length of the staged weights, in elements of `size` bytes: lanes that read 16 bytes of neighbouring columns meet
/// different banks.
__host__ __device__ inline int staged_stride(int summed, int size) {
    const int line = 128 / size;
    return (summed + line - 1) / line * line + line / 2;
}

/// Parts of f32 take registers: fewer pieces are under way at once.
template <class E>
constexpr bool kStrict = std::is_same_v<E, float>;

/// The product of one strip; the weights are staged already. `ask` is called behind it, before the reduction: what it loads
/// arrives meanwhile.
template <class E, int kTiles, int kSplit, bool kVector, class Ask>
__device__ void product(const BackwardArgs<tile::Stored<E>>& a, float* shared, int k, int g, int row0, int rows,
                        float (&own)[Strip<kTiles, kSplit>::kOwn], Ask ask) {
    constexpr int kColumns = Strip<kTiles, kSplit>::kColumns;
    using T = tile::Stored<E>;
    auto* weights = reinterpret_cast<T*>(shared + blockDim.x * kColumns);
    const int stride = staged_stride(a.summed, sizeof(T));
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, split = warp % kSplit, strip = warp / kSplit;
    const T* a_rows[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
        const int row = 32 * strip + 8 * r + lane / 4;
        a_rows[r] = row < rows ? a.dz_above.row(k, g, row0 + row) : nullptr;
    }
    float acc[2][kTiles][4] = {};
    auto fetch_b = [&](int t, int at) {
        return at < stride ? *reinterpret_cast<const uint4*>(weights + (8 * t + lane / 4) * stride + at) : make_uint4(0, 0, 0, 0);
    };
    Fragments<kTiles, kStrict<E> ? 2 / kTiles : 4 / kTiles> b;
    fetch_round<E, kSplit>(b, split, fetch_b);
    multiply<E, kSplit, kVector>(acc, a_rows, a.summed, split, b, fetch_b);
    ask();
    reduce_splits<kTiles, kSplit>(acc, shared, blockDim.x / (32 * kSplit), strip, split, own);
}

/// What a thread needs of the layer besides dy, as it was loaded: the first thing computed from it waits for it.
template <class T, int kOwn>
struct LayerValues {
    float gamma = 1, beta = 0, inv = 1;
    DropoutKey key;  ///< what is of the member; the rest needs no registers yet
    T xhat[kOwn];
};

template <int kColumns, class T, int kOwn>
__device__ void load_layer(const BackwardArgs<T>& a, int k, int g, int column, bool valid, int row0, int rows,
                           LayerValues<T, kOwn>& v) {
    const int step = blockDim.x / kColumns, first = threadIdx.x / kColumns;
    if (a.p.norm == Norm::batch_train && valid) {
        v.gamma = a.gamma.row(k, g, 0)[column];
        v.beta = a.beta.row(k, g, 0)[column];
        v.inv = a.inv_std.row(k, g, 0)[column];
    }
    v.key = dropout_key({a.p.dropout, a.p.op_number}, a.state, k);
    v.key.op = 0;
    v.key.probability = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
        v.xhat[i] = a.saved && valid && first + i * step < rows ? a.saved.row(k, g, row0 + first + i * step)[column] : T{};
}

/// own: dy in, dz out. Column sums of the parameters' gradients on the way.
template <int kColumns, class T, int kOwn>
__device__ void through_layer(const BackwardArgs<T>& a, float* scratch, float* exchange, int k, int g, int column, bool valid,
                              int row0, int rows, const LayerValues<T, kOwn>& v, float (&own)[kOwn]) {
    const int step = blockDim.x / kColumns, first = threadIdx.x / kColumns;
    const bool batch = a.p.norm == Norm::batch_train;
    DropoutKey key = v.key;
    key.op = a.p.op_number;
    key.probability = a.p.dropout;
    const DropoutRule rule = dropout_rule(key);
    float xhat[kOwn], sum = 0, dot = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
        const int row = row0 + first + i * step;
        xhat[i] = load(v.xhat + i);
        if (!valid || first + i * step >= rows) {
            own[i] = 0;
            continue;
        }
        const float u = batch ? v.gamma * xhat[i] + v.beta : xhat[i];
        const std::uint64_t element = (static_cast<std::uint64_t>(g) * a.rows + row) * a.cols + column;
        own[i] *= dropout_factor(key, rule, element) * activation_slope(u, a.p.activation);
        sum += own[i];
        dot += own[i] * xhat[i];
    }
    sum = column_sum<kColumns>(sum, scratch);
    if (batch) dot = column_sum<kColumns>(dot, scratch);
    if (a.row_tiles > 1) {
        const int mine = threadIdx.x % kColumns;
        if (first == 0) {
            exchange[mine] = sum;
            exchange[kColumns + mine] = dot;
        }
        cluster_arrive();
        cluster_wait();
        sum = dot = 0;
        for (int r = 0; r < a.row_tiles; ++r) {
            sum += read_rank(exchange + mine, r);
            dot += read_rank(exchange + kColumns + mine, r);
        }
        cluster_arrive();  // matched at the end of the kernel: no block exits while others read its memory
    }
    if (batch) {
        const float n = static_cast<float>(a.rows), factor = v.gamma * v.inv / n;
#pragma unroll
        for (int i = 0; i < kOwn; ++i) own[i] = factor * (n * own[i] - sum - xhat[i] * dot);
    }
    if (first == 0 && valid && row0 == 0) a.put_gradients(k, g, column, sum, dot);
}

template <class E, int kTiles, int kSplit, bool kVector>
__global__ void __launch_bounds__(512) dense_backward_kernel(const __grid_constant__ BackwardArgs<tile::Stored<E>> a) {
    using T = tile::Stored<E>;
    constexpr int kColumns = Strip<kTiles, kSplit>::kColumns, kOwn = Strip<kTiles, kSplit>::kOwn;
    extern __shared__ float shared[];
    __shared__ float exchange[2 * kColumns];
    if (!a.early) begin_kernel();
    const int k = blockIdx.z / a.row_tiles, row0 = (blockIdx.z % a.row_tiles) * a.row_tile, rows = min(a.row_tile, a.rows - row0);
    const int product_group = blockIdx.y, column0 = blockIdx.x * kColumns;
    const int column = column0 + threadIdx.x % kColumns, step = blockDim.x / kColumns, first = threadIdx.x / kColumns;
    const bool valid = column < a.product_cols;
    const int flat = product_group * a.product_cols + column;  // the groups of dx lie side by side, and so do those of dy
    const int group = a.dz ? flat / a.cols : product_group, layer_column = a.dz ? flat % a.cols : column;

    if (a.dz_above)
        stage_weights<kColumns>(a, reinterpret_cast<T*>(shared + blockDim.x * kColumns), staged_stride(a.summed, sizeof(T)), k,
                                product_group, column0);
    if (a.early) begin_kernel();
    LayerValues<T, kOwn> layer;
    // Asked for before the product where the registers suffice, else behind it: a value that is spilled before the product lets
    // the warp wait for it before it asks for operands.
    constexpr bool kAhead = kTiles > 1 || kSplit == 8;
    auto ask = [&](bool now) {
        if (now && a.dz) load_layer<kColumns>(a, k, group, layer_column, valid, row0, rows, layer);
    };
    ask(kAhead);
    __syncthreads();

    float own[kOwn];
    if (a.dz_above) {
        product<E, kTiles, kSplit, kVector>(a, shared, k, product_group, row0, rows, own, [&] { ask(!kAhead); });
        if (a.add_dx) {
#pragma unroll
            for (int i = 0; i < kOwn; ++i)
                if (valid && first + i * step < rows)
                    own[i] += load(a.dx.row(k, product_group, row0 + first + i * step) + column);
        }
    } else {
        ask(!kAhead);
#pragma unroll
        for (int i = 0; i < kOwn; ++i)
            own[i] = valid && first + i * step < rows ? load(a.dy.row(k, group, row0 + first + i * step) + layer_column) : 0;
    }
    if (a.dz) through_layer<kColumns>(a, shared, exchange, k, group, layer_column, valid, row0, rows, layer, own);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
        const int row = row0 + first + i * step;
        if (!valid || first + i * step >= rows) continue;
        T* out = a.dz ? a.dz.row(k, group, row) + layer_column : a.dx.row(k, product_group, row) + column;
        store(out, own[i]);
    }
    if (a.dz && a.row_tiles > 1) cluster_wait();
}

struct BackwardKernels {
    template <class E, int kTiles, int kSplit, bool kVector>
    static auto kernel() {
        return dense_backward_kernel<E, kTiles, kSplit, kVector>;
    }
};

std::size_t shared_bytes(const Shape& shape, int summed, int size) {
    if (summed == 0) return shape.partial_bytes();
    return shape.partial_bytes() + std::size_t{8} * static_cast<std::size_t>(size * shape.tiles * staged_stride(summed, size));
}

int size_of(const Operand& o) { return static_cast<int>(tensor::size_of(o.dtype)); }

/// `layer`: column sums over all rows are wanted.
Shape backward_shape(const Context& c, const Operand& columns, bool layer, int summed, bool wide_allowed) {
    const int members = c.deterministic ? 1 : columns.k, size = size_of(columns);
    Shape shape =
        shape_for({columns.rows, summed, std::int64_t{(columns.cols + 7) / 8} * columns.g * members, layer, wide_allowed, size},
                  c.multiprocessors);
    while (shape.tiles > 1 && shared_bytes(shape, summed, size) > c.shared_limit) shape.tiles /= 2;
    return shape;
}

/// Whether all operands are of one type that products know.
bool is_one_element(const Bound* d, const Bound* b) {
    const tensor::DType type = d ? (*d)[linear_dgrad::dx].dtype : (*b)[dense_backward::dy].dtype;
    if (d && ((*d)[linear_dgrad::dz].dtype != type || (*d)[linear_dgrad::w].dtype != type)) return false;
    return tile::has_element(type) && (!b || (*b)[dense_backward::dz].dtype == type);
}

wide::Covering<Shape> cover_backward(const Context& c, const Bound* d, const Bound* b) {
    const Operand& shape = d ? (*d)[linear_dgrad::dx] : (*b)[dense_backward::dy];
    const bool vector = !d || aligned16((*d)[linear_dgrad::dz]);
    const int summed = d ? (*d)[linear_dgrad::dz].cols : 0;
    const Shape strips = backward_shape(c, shape, b != nullptr, summed, vector && !c.deterministic);
    const bool whole_pieces = d && aligned16((*d)[linear_dgrad::w]) && shape.cols % 8 == 0;  // dz above need not have them
    const wide::Extent extent{shape.rows, shape.cols, std::int64_t{shape.g} * (c.deterministic ? 1 : shape.k), b != nullptr,
                              whole_pieces};
    const bool knows_layer = !b || (d && has_wide_runs(*d, *b) && wide::has_activation(b->params<DenseParams>().activation));
    return wide::cover(strips, extent, d && size_of(shape) == 2 && knows_layer, 32, c.multiprocessors,
                       [&](const wide::Tiling& tiling) {
                           return tiling.ring_bytes(summed, wide::kStages) + 64u * tiling.threads() <= c.shared_limit;
                       });
}

}  // namespace

bool fuses_backward(const Context& c, const Bound* d, const Bound* b) {
    const Operand& shape = d ? (*d)[linear_dgrad::dx] : (*b)[dense_backward::dy];
    if (!is_one_element(d, b) || shape.rows > c.fused_rows || shape.rows == 0) return false;
    if (d) {
        if (shape.cols != (*d)[linear_dgrad::w].cols) return false;
        const int summed = (*d)[linear_dgrad::dz].cols;
        if (shared_bytes(backward_shape(c, shape, b != nullptr, summed, false), summed, size_of(shape)) > c.shared_limit)
            return false;
    }
    return !d || !b || reads_product(*d, *b);
}

double strips_backward_time(const Context& c, const Bound* d, const Bound* b) {
    constexpr double kLaunch = 4.1, kStatistics = 1, kBytesPerMicrosecond = 60e3;
    const std::int64_t summed = d ? (*d)[linear_dgrad::dz].cols * size_of((*d)[linear_dgrad::dz]) : 0;  // bytes
    const bool batch = b && b->params<DenseParams>().norm == Norm::batch_train;
    return kLaunch + static_cast<double>(cover_backward(c, d, b).cost * summed) / kBytesPerMicrosecond +
           (batch ? kStatistics : 0);
}

KernelResult make_fused_backward(Context& c, const Bound* d, const Bound* b) {
    const Operand& shape = d ? (*d)[linear_dgrad::dx] : (*b)[dense_backward::dy];
    if (shape.count() == 0) return make_kernel([] {});
    const auto by = cover_backward(c, d, b);
    if (by.tiling.columns > 0) return make_wide_backward(c, *d, b, by.tiling);
    return tile::by_element(shape.dtype, c.tf32 && !c.deterministic, [&]<class E>(E) {
        using T = tile::Stored<E>;
        const auto kernel = kernel_for<BackwardKernels, E>(by.strips, !d || aligned16((*d)[linear_dgrad::dz]));
        const BackwardArgs<T> a{fused_backward<T>(c, d, b, by.strips.row_tile, by.strips.row_tiles),
                                d && aligned16((*d)[linear_dgrad::w])};
        return make_strips(c, kernel, by.strips, shape, shared_bytes(by.strips, a.summed, size_of(shape)), a);
    });
}

}  // namespace millrace::ops::cuda
