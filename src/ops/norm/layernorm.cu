// Layer norm forward.

#include "ops/norm/layernorm.h"

#include "ops/norm/rows.cuh"

namespace millrace::ops::cuda {
namespace {

using namespace norm_rows;
using tensor::Operand;

template <class T>
struct ForwardNorm {
    Mat<const float> gamma, beta;
    Mat<float> mean, inv_std;
    Mat<T> y;
    float eps;
};

/// S norms in series: each one's y is the next one's x. Registers for more of them are those of fewer blocks.
template <class T, int S>
struct ForwardArgs {
    Mat<const T> x, residual;
    Mat<T> sum;
    ForwardNorm<T> norms[S];
    int groups, rows, cols;
    bool early;  ///< the launch in front writes x alone of what is read
};

/// sum = v = v + residual.
template <class Shape, int N, class T>
__device__ void add_row(const T* residual, T* sum, int cols, float (&v)[N]) {
    float other[N];
    load_row<Shape>(residual, cols, other);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = rounded(v[i] + other[i], sum);
    put_row<Shape>(sum, cols, v);
}

/// A block takes kRows rows in steps of the grid; a row behind the last is computed of zeros and not written.
template <class T, class Shape, int S>
__global__ void __launch_bounds__(Shape::kBlock, Shape::kForwardBlocks / S)
    forward_rows_kernel(const __grid_constant__ ForwardArgs<T, S> a) {
    constexpr int N = Shape::kCount, V = Shape::kRun;
    extern __shared__ __align__(16) float shared[];
    if (!a.early) begin_kernel();
    const int k = blockIdx.z / a.groups, g = blockIdx.z % a.groups, step = gridDim.x * Shape::kRows;
    Ring<T, Shape> ring(shared);
    const auto cols_of = [&](int r) { return r < a.rows ? a.cols : 0; };
    const auto begin_residual = [&](int ahead, int r) {
        if (a.residual) ring.begin_right(ahead, 0, a.residual.row(k, g, r), cols_of(r));
    };
    const int mine = blockIdx.x * Shape::kRows + Shape::row();
#pragma unroll
    for (int i = 0; i < ring.kAhead; ++i) begin_residual(i, mine + i * step);
    const float share = 1 / static_cast<float>(a.cols);
    float gamma[S][N], beta[S][N];
    const auto load_parameters = [&](int at) {
        for (int s = 0; s < S; ++s) {
            load_row<Shape>(a.norms[s].gamma.row(k, g, 0) + at, a.cols - at, gamma[s]);
            load_row<Shape>(a.norms[s].beta.row(k, g, 0) + at, a.cols - at, beta[s]);
        }
    };
    load_parameters(0);
    if (a.early) begin_kernel();
#pragma unroll
    for (int i = 0; i < ring.kAhead; ++i) ring.begin(a.x.row(k, g, mine + i * step), cols_of(mine + i * step));
    for (int first = blockIdx.x * Shape::kRows; first < a.rows; first += step) {
        const int r = first + Shape::row(), cols = cols_of(r), later = r + ring.kAhead * step;
        const T *x = a.x.row(k, g, r), *other[1] = {a.residual.row(k, g, r)};
        begin_residual(0, later);
        ring.begin(a.x.row(k, g, later), cols_of(later));
        ring.take(x, other);
        float v[N];
        const auto load_first = [&](int at) {
            load_row<Shape>(x + at, cols - at, v);
            if (a.residual) add_row<Shape>(other[0] + at, a.sum.row(k, g, r) + at, cols - at, v);
        };
        const auto load_again = [&](int at) {
            if constexpr (Shape::kLoops) load_row<Shape>((a.residual ? a.sum.row(k, g, r) : x) + at, cols - at, v);
        };
#pragma unroll
        for (int s = 0; s < S; ++s) {
            const ForwardNorm<T>& norm = a.norms[s];
            float sum[1] = {}, squares[1] = {};
            Shape::each_piece(a.cols, [&](int at) {
                if (s == 0) load_first(at);
#pragma unroll
                for (int i = 0; i < N; ++i) sum[0] += v[i];
            });
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
            const float inv = 1 / sqrtf(squares[0] * share + norm.eps);
            Shape::each_piece(a.cols, [&](int at) {
                load_again(at);
                if constexpr (Shape::kLoops) load_parameters(at);
#pragma unroll
                for (int i = 0; i < N; ++i) v[i] = gamma[s][i] * (v[i] - mean) * inv + beta[s][i];
                put_row<Shape>(norm.y.row(k, g, r) + at, cols - at, v);
            });
            if (s + 1 < S)
#pragma unroll
                for (int i = 0; i < N; ++i) v[i] = rounded(v[i], a.x.data);  // 0 behind the last column, as gamma and beta are
            if (Shape::lane() == 0 && r < a.rows) {
                *norm.mean.row(k, g, r) = mean;
                *norm.inv_std.row(k, g, r) = inv;
            }
        }
    }
}

bool forward_in_runs(const Context& c, std::span<const Bound> norms) {
    using namespace layernorm_forward;
    return whole_rows(c, norms, norms[0][y], {x, residual, gamma, beta, sum, y});
}

template <std::size_t S>
KernelResult make_forward(Context& c, std::span<const Bound, S> norms) {
    using namespace layernorm_forward;
    const Bound& b = norms[0];
    const Operand& out = b[y];
    if (out.count() == 0) return make_kernel([] {});
    const auto depth = static_cast<unsigned>(out.k * out.g);
    return by_real(out.dtype, [&]<class T>(T) -> KernelResult {
        ForwardArgs<T, S> a{b[x], b[residual], b[sum], {}, out.g, out.rows, out.cols, c.reads_early({&b[residual]})};
        for (std::size_t s = 0; s < S; ++s) {
            const Bound& n = norms[s];
            a.norms[s] = {n[gamma], n[beta], n[mean], n[inv_std], n[y], n.params<LayerNormParams>().eps};
            a.early = a.early && c.reads_early({&n[gamma], &n[beta]});
        }
        const auto make = [&]<class Shape>(Shape) -> KernelResult {
            // No more blocks than run at once; they share gamma and beta among their rows.
            constexpr int kBlocks = Shape::kForwardBlocks / static_cast<int>(S);
            const unsigned most = std::max(1u, static_cast<unsigned>(kBlocks * c.multiprocessors) / depth);
            const dim3 grid(std::min(blocks_for(out.rows, Shape::kRows), most), 1, depth);
            constexpr std::size_t kShared = Ring<T, Shape>::kBytes;
            MILLRACE_TRY(allow_shared(c, forward_rows_kernel<T, Shape, S>, kShared));
            return make_launch(c, forward_rows_kernel<T, Shape, S>, grid, dim3(Shape::kBlock), kShared, a);
        };
        if constexpr (S == 1)
            return by_shape<T>(out.cols, forward_in_runs(c, norms), make);
        else
            return make(PairShape<T>{});
    });
}

}  // namespace

KernelResult make_layernorm_forward(Context& c, const Bound& b) { return make_forward(c, std::span<const Bound, 1>(&b, 1)); }

/// Two norms, the second one of what the first one wrote.
Match match_norms_forward(const Context& c, const Window& records) {
    using namespace layernorm_forward;
    if (records.size() < 2 || records[1].record->op != &kDef) return {};
    const Operand& between = records[0][y];
    const bool fits = records[1][x] == between && !records[1][residual].present() && has_pair_shape(between) &&
                      forward_in_runs(c, records.first(2));
    return fits ? Match::first(2) : Match{};
}
KernelResult make_norms_forward(Context& c, std::span<const Bound> norms) { return make_forward(c, norms.first<2>()); }

}  // namespace millrace::ops::cuda
