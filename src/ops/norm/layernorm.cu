// Layer norm forward: a warp or half of one a row while its values fit into registers, else a block.

#include "ops/norm/layernorm.h"

#include "ops/norm/rows.cuh"

namespace millrace::ops::cuda {
namespace {

using namespace norm_rows;
using tensor::Operand;

template <class T>
struct ForwardArgs {
    Mat<const T> x, residual;
    Mat<const float> gamma, beta;
    Mat<float> mean, inv_std;
    Mat<T> sum, y;
    int groups, rows, cols;
    float eps;
    bool early;  ///< the launch in front writes x alone of what is read
};

/// What is normalised, element c of a row: x, or x + residual as it is stored.
template <class T>
__device__ float summand(const ForwardArgs<T>& a, int k, int g, std::int64_t r, int c) {
    const float v = load(a.x.row(k, g, r) + c);
    if (!a.residual) return v;
    T* sum = a.sum.row(k, g, r) + c;
    const float both = v + load(a.residual.row(k, g, r) + c);
    store(sum, both);
    return rounded(both, sum);
}

/// A block takes kRows rows in steps of the grid; a row behind the last is computed of zeros and not written.
template <class T, class Shape>
__global__ void __launch_bounds__(32 * kWarps, Shape::kForwardBlocks)
    forward_rows_kernel(const __grid_constant__ ForwardArgs<T> a) {
    constexpr int N = Shape::kCount, V = Shape::kRun, L = Shape::kThreads;
    extern __shared__ __align__(16) float shared[];
    if (!a.early) begin_kernel();
    const int k = blockIdx.z / a.groups, g = blockIdx.z % a.groups, step = gridDim.x * Shape::kRows;
    Ring<T, Shape> ring(shared);
    const auto cols_of = [&](int r) { return r < a.rows ? a.cols : 0; };
    const int mine = blockIdx.x * Shape::kRows + Shape::row();
    if (a.residual)
#pragma unroll
        for (int i = 0; i < ring.kAhead; ++i)
            ring.begin_right(i, a.residual.row(k, g, mine + i * step), cols_of(mine + i * step));
    const float share = 1 / static_cast<float>(a.cols);
    float gamma[N], beta[N];
    load_row<Shape>(a.gamma.row(k, g, 0), a.cols, gamma);
    load_row<Shape>(a.beta.row(k, g, 0), a.cols, beta);
    if (a.early) begin_kernel();
#pragma unroll
    for (int i = 0; i < ring.kAhead; ++i) ring.begin(a.x.row(k, g, mine + i * step), nullptr, cols_of(mine + i * step));
    for (int first = blockIdx.x * Shape::kRows; first < a.rows; first += step) {
        const int r = first + Shape::row(), cols = cols_of(r), later = r + ring.kAhead * step;
        const T *x = a.x.row(k, g, r), *other = a.residual.row(k, g, r);
        ring.begin(a.x.row(k, g, later), a.residual ? a.residual.row(k, g, later) : nullptr, cols_of(later));
        ring.take(x, other);
        float v[N];
        load_row<Shape>(x, cols, v);
        if (a.residual) {
            float residual[N];
            load_row<Shape>(other, cols, residual);
#pragma unroll
            for (int i = 0; i < N; ++i) v[i] = rounded(v[i] + residual[i], a.x.data);
            put_row<Shape>(a.sum.row(k, g, r), cols, v);
        }
        float sum = 0, squares = 0;
#pragma unroll
        for (int i = 0; i < N; ++i) sum += v[i];
        const float mean = row_sum<L>(sum) * share;
#pragma unroll
        for (int i = 0; i < N; i += V)
            if (Shape::column(i) < a.cols)
#pragma unroll
                for (int j = i; j < i + V; ++j) squares += (v[j] - mean) * (v[j] - mean);
        const float inv = 1 / sqrtf(row_sum<L>(squares) * share + a.eps);
#pragma unroll
        for (int i = 0; i < N; ++i) v[i] = gamma[i] * (v[i] - mean) * inv + beta[i];
        put_row<Shape>(a.y.row(k, g, r), cols, v);
        if (Shape::lane() == 0 && r < a.rows) {
            *a.mean.row(k, g, r) = mean;
            *a.inv_std.row(k, g, r) = inv;
        }
    }
}

/// One block per row.
template <class T>
__global__ void forward_block_kernel(ForwardArgs<T> a) {
    __shared__ float shared[32];
    begin_kernel();
    const int r = blockIdx.x, k = blockIdx.z / a.groups, g = blockIdx.z % a.groups;
    float sum = 0;
    for (int c = threadIdx.x; c < a.cols; c += blockDim.x) sum += summand(a, k, g, r, c);
    const T* in = a.residual ? a.sum.row(k, g, r) : a.x.row(k, g, r);
    const float m = block_sum(sum, shared) / static_cast<float>(a.cols);
    float squares = 0;
    for (int c = threadIdx.x; c < a.cols; c += blockDim.x) {
        const float d = load(in + c) - m;
        squares += d * d;
    }
    const float inv = 1 / sqrtf(block_sum(squares, shared) / static_cast<float>(a.cols) + a.eps);
    for (int c = threadIdx.x; c < a.cols; c += blockDim.x)
        store(a.y.row(k, g, r) + c, a.gamma.row(k, g, 0)[c] * (load(in + c) - m) * inv + a.beta.row(k, g, 0)[c]);
    if (threadIdx.x == 0) {
        *a.mean.row(k, g, r) = m;
        *a.inv_std.row(k, g, r) = inv;
    }
}

}  // namespace

KernelResult make_layernorm_forward(Context& c, const Bound& b) {
    using namespace layernorm_forward;
    const Operand& out = b[y];
    if (out.count() == 0) return make_kernel([] {});
    const auto depth = static_cast<unsigned>(out.k * out.g);
    return by_real(out.dtype, [&]<class T>(T) -> KernelResult {
        const bool early = c.reads_early({&b[residual], &b[gamma], &b[beta]});
        const ForwardArgs<T> a{b[x],   b[residual], b[gamma], b[beta],  b[mean],  b[inv_std],
                               b[sum], b[y],        out.g,    out.rows, out.cols, b.params<LayerNormParams>().eps,
                               early};
        const bool whole = whole_rows(c, b, out, {x, residual, gamma, beta, sum, y});
        return by_shape<T>(out.cols, whole, [&]<class Shape>(Shape) -> KernelResult {
            if constexpr (!std::is_same_v<Shape, RowOfABlock>) {
                // No more blocks than run at once; they share gamma and beta among their rows.
                const unsigned most = std::max(1u, static_cast<unsigned>(Shape::kForwardBlocks * c.multiprocessors) / depth);
                const dim3 grid(std::min(blocks_for(out.rows, Shape::kRows), most), 1, depth);
                constexpr std::size_t kShared = Ring<T, Shape>::kBytes;
                MILLRACE_TRY(allow_shared(c, forward_rows_kernel<T, Shape>, kShared));
                return make_launch(c, forward_rows_kernel<T, Shape>, grid, dim3(32 * kWarps), kShared, a);
            } else {
                return make_launch(c, forward_block_kernel<T>, dim3(out.rows, 1, depth), dim3(128), 0, a);
            }
        });
    });
}

}  // namespace millrace::ops::cuda
