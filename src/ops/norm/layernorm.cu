// Layer norm forward.

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

/// A block takes kRows rows in steps of the grid; a row behind the last is computed of zeros and not written.
template <class T, class Shape>
__global__ void __launch_bounds__(Shape::kBlock, Shape::kForwardBlocks)
    forward_rows_kernel(const __grid_constant__ ForwardArgs<T> a) {
    constexpr int N = Shape::kCount, V = Shape::kRun;
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
    const auto load_parameters = [&](int at) {
        load_row<Shape>(a.gamma.row(k, g, 0) + at, a.cols - at, gamma);
        load_row<Shape>(a.beta.row(k, g, 0) + at, a.cols - at, beta);
    };
    load_parameters(0);
    if (a.early) begin_kernel();
#pragma unroll
    for (int i = 0; i < ring.kAhead; ++i) ring.begin(a.x.row(k, g, mine + i * step), nullptr, cols_of(mine + i * step));
    for (int first = blockIdx.x * Shape::kRows; first < a.rows; first += step) {
        const int r = first + Shape::row(), cols = cols_of(r), later = r + ring.kAhead * step;
        const T *x = a.x.row(k, g, r), *other = a.residual.row(k, g, r);
        ring.begin(a.x.row(k, g, later), a.residual ? a.residual.row(k, g, later) : nullptr, cols_of(later));
        ring.take(x, other);
        float v[N], sum[1] = {}, squares[1] = {};
        Shape::each_piece(a.cols, [&](int at) {
            load_row<Shape>(x + at, cols - at, v);
            if (a.residual) {
                float residual[N];
                load_row<Shape>(other + at, cols - at, residual);
#pragma unroll
                for (int i = 0; i < N; ++i) v[i] = rounded(v[i] + residual[i], a.x.data);
                put_row<Shape>(a.sum.row(k, g, r) + at, cols - at, v);
            }
#pragma unroll
            for (int i = 0; i < N; ++i) sum[0] += v[i];
        });
        const auto load_again = [&](int at) {
            if constexpr (Shape::kLoops) load_row<Shape>((a.residual ? a.sum.row(k, g, r) : x) + at, cols - at, v);
        };
        sum_over_row<Shape>(sum, 0);
        const float mean = sum[0] * share;
        Shape::each_piece(a.cols, [&](int at) {
            load_again(at);
#pragma unroll
            for (int i = 0; i < N; i += V)
                if (at + Shape::column(i) < a.cols)
#pragma unroll
                    for (int j = i; j < i + V; ++j) squares[0] += (v[j] - mean) * (v[j] - mean);
        });
        sum_over_row<Shape>(squares, 1);
        const float inv = 1 / sqrtf(squares[0] * share + a.eps);
        Shape::each_piece(a.cols, [&](int at) {
            load_again(at);
            if constexpr (Shape::kLoops) load_parameters(at);
#pragma unroll
            for (int i = 0; i < N; ++i) v[i] = gamma[i] * (v[i] - mean) * inv + beta[i];
            put_row<Shape>(a.y.row(k, g, r) + at, cols - at, v);
        });
        if (Shape::lane() == 0 && r < a.rows) {
            *a.mean.row(k, g, r) = mean;
            *a.inv_std.row(k, g, r) = inv;
        }
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
            // No more blocks than run at once; they share gamma and beta among their rows.
            const unsigned most = std::max(1u, static_cast<unsigned>(Shape::kForwardBlocks * c.multiprocessors) / depth);
            const dim3 grid(std::min(blocks_for(out.rows, Shape::kRows), most), 1, depth);
            constexpr std::size_t kShared = Ring<T, Shape>::kBytes;
            MILLRACE_TRY(allow_shared(c, forward_rows_kernel<T, Shape>, kShared));
            return make_launch(c, forward_rows_kernel<T, Shape>, grid, dim3(Shape::kBlock), kShared, a);
        });
    });
}

}  // namespace millrace::ops::cuda
