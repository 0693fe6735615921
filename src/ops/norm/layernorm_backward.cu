// Layer norm backward: input gradients row by row, those of the parameters as sums of chunks of rows, then of the chunks.

#include "ops/cuda/late_sums.h"
#include "ops/norm/layernorm.h"
#include "ops/norm/rows.cuh"

namespace millrace::ops::cuda {
namespace {

using namespace norm_rows;
using tensor::Operand;

template <class T>
struct BackwardNorm {
    Mat<const T> x;
    Mat<const float> gamma, mean, inv_std;
    Mat<T> dx, dresidual;
    bool add_x, add_residual;
};

/// S norms in series: each one's dx is the next one's dy.
template <class T, int S>
struct BackwardArgs {
    Mat<const T> dy;
    BackwardNorm<T> norms[S];
    float* partial;  ///< [matrix, chunk, S, 2, cols]: sums of dy and of dy times the normalised x
    int groups, rows, cols, chunk_rows;
    bool early;  ///< the launch in front writes dy alone of what is read
};

/// What a thread has of a norm from row to row.
template <class T, class Shape>
struct NormState {
    static constexpr int N = Shape::kCount;
    float mean, inv;  ///< of the next row
    float gamma[N], sums[N] = {}, dots[N] = {};

    __device__ void load_gamma(const BackwardNorm<T>& norm, int k, int g, int at, int cols) {
        load_row<Shape>(norm.gamma.row(k, g, 0) + at, cols - at, gamma);
    }
    __device__ void load_statistics(const BackwardNorm<T>& norm, int k, int g, int r, int end) {
        mean = r < end ? *norm.mean.row(k, g, r) : 0;
        inv = r < end ? *norm.inv_std.row(k, g, r) : 0;
    }
    __device__ void put_sums(float* both, int cols, int at) const {
        put_row<Shape>(both + at, cols - at, sums);
        put_row<Shape>(both + cols + at, cols - at, dots);
    }
    /// d becomes d times gamma; of that the row's sums, also times hat.
    __device__ void add(float (&d)[N], const float (&hat)[N], float (&row)[2]) {
#pragma unroll
        for (int i = 0; i < N; ++i) {  // behind the last column d and gamma are zeros
            sums[i] += d[i];
            dots[i] += d[i] * hat[i];
            d[i] *= gamma[i];
            row[0] += d[i];
            row[1] += d[i] * hat[i];
        }
    }
};

/// The sums of a block's rows: those that each of kRows has, in their order. What lay in `shared` is done with.
template <class T, class Shape, int S>
__device__ void put_chunk(const NormState<T, Shape> (&states)[S], float* shared, float* to, int cols) {
    constexpr int kRows = Shape::kRows;
    const int pitch = S * 2 * cols;
    if constexpr (kRows > 1) __syncthreads();
    float* row_sums = kRows > 1 ? shared + Shape::row() * pitch : to;
    for (int s = 0; s < S; ++s) states[s].put_sums(row_sums + s * 2 * cols, cols, 0);
    if constexpr (kRows == 1) return;
    __syncthreads();
    for (int c = threadIdx.x; c < pitch; c += blockDim.x) {
        float sum = 0;
        for (int row = 0; row < kRows; ++row) sum += shared[row * pitch + c];
        to[c] = sum;
    }
}

/// From column `at` on.
template <class Shape, class T, int N>
__device__ void put_input(const BackwardNorm<T>& norm, int k, int g, std::int64_t r, int at, int cols, const float (&d)[N]) {
    if (norm.dresidual) put_row<Shape>(norm.dresidual.row(k, g, r) + at, cols - at, d, norm.add_residual);
    if (norm.dx) put_row<Shape>(norm.dx.row(k, g, r) + at, cols - at, d, norm.add_x);
}

/// As a stored row would be read again: rounded, zeros behind the last column.
template <class Shape, class T, int N>
__device__ void round_row(float (&d)[N], int cols, const T* like) {
#pragma unroll
    for (int i = 0; i < N; ++i) d[i] = Shape::column(i) < cols ? rounded(d[i], like) : 0;
}

/// One chunk of rows a block, all columns: input gradients and the chunk's part of the parameters'. dx may be the memory of dy.
template <class T, class Shape, int S>
__global__ void __launch_bounds__(Shape::kBlock, Shape::kBackwardBlocks)
    backward_rows_kernel(const __grid_constant__ BackwardArgs<T, S> a) {
    constexpr int N = Shape::kCount, kRows = Shape::kRows;
    constexpr bool kReadsTwice = Shape::kLoops || N > 16;  // registers do not hold what is read
    extern __shared__ __align__(16) float shared[];        // the ring, then sums [kRows][S][2][cols] of several rows
    if (!a.early) begin_kernel();
    const int k = blockIdx.z / a.groups, g = blockIdx.z % a.groups;
    const int begin = blockIdx.x * a.chunk_rows, end = min(a.rows, begin + a.chunk_rows), mine = begin + Shape::row();
    Ring<T, Shape, S> ring(shared);
    const auto cols_of = [&](int r) { return r < end ? a.cols : 0; };  // behind the last row all are zeros
    NormState<T, Shape> states[S];
#pragma unroll
    for (int s = 0; s < S; ++s) {
#pragma unroll
        for (int i = 0; i < ring.kAhead; ++i)
            ring.begin_right(i, s, a.norms[s].x.row(k, g, mine + i * kRows), cols_of(mine + i * kRows));
        states[s].load_statistics(a.norms[s], k, g, mine, end);
        states[s].load_gamma(a.norms[s], k, g, 0, a.cols);
    }
    const float share = 1 / static_cast<float>(a.cols);
    float* to = a.partial + (static_cast<std::int64_t>(blockIdx.z) * gridDim.x + blockIdx.x) * S * 2 * a.cols;
    int turn = 0;
    if (a.early) begin_kernel();
#pragma unroll
    for (int i = 0; i < ring.kAhead; ++i) ring.begin(a.dy.row(k, g, mine + i * kRows), cols_of(mine + i * kRows));
    for (int first = begin; first < end; first += kRows) {
        const int r = first + Shape::row(), cols = cols_of(r), later = r + ring.kAhead * kRows;
        const T *dy = a.dy.row(k, g, r), *x[S];
        for (int s = 0; s < S; ++s) {
            x[s] = a.norms[s].x.row(k, g, r);
            ring.begin_right(0, s, a.norms[s].x.row(k, g, later), cols_of(later));
        }
        ring.begin(a.dy.row(k, g, later), cols_of(later));
        ring.take(dy, x);
        float d[N], hat[N];
#pragma unroll
        for (int s = 0; s < S; ++s) {
            const BackwardNorm<T>& norm = a.norms[s];
            NormState<T, Shape>& state = states[s];
            const float m = state.mean, inv = state.inv;
            state.load_statistics(norm, k, g, r + kRows, end);
            float row[2] = {};  // the row's sums of d and of d times hat
            const auto load_both = [&](int at) {
                if (s == 0) load_row<Shape>(dy + at, cols - at, d);
                load_row<Shape>(x[s] + at, cols - at, hat);
#pragma unroll
                for (int i = 0; i < N; ++i) hat[i] = (hat[i] - m) * inv;
                if constexpr (Shape::kLoops) state.load_gamma(norm, k, g, at, a.cols);
            };
            Shape::each_piece(a.cols, [&](int at) {
                load_both(at);
                if constexpr (Shape::kLoops) {  // nor do they hold the sums over rows
                    const int there = first > begin ? a.cols - at : 0;
                    load_row<Shape>(to + at, there, state.sums);
                    load_row<Shape>(to + a.cols + at, there, state.dots);
                }
                state.add(d, hat, row);
                if constexpr (Shape::kLoops) state.put_sums(to, a.cols, at);
            });
            sum_over_row<Shape>(row, turn);
            turn ^= 1;
            const float sum = row[0] * share, dot = row[1] * share;
            Shape::each_piece(a.cols, [&](int at) {
                if constexpr (kReadsTwice) {
                    asm volatile("" ::: "memory");
                    load_both(at);
#pragma unroll
                    for (int i = 0; i < N; ++i) d[i] *= state.gamma[i];
                }
#pragma unroll
                for (int i = 0; i < N; ++i) d[i] = inv * (d[i] - sum - hat[i] * dot);
                put_input<Shape>(norm, k, g, r, at, cols, d);
            });
            if (s + 1 < S) round_row<Shape>(d, cols, a.dy.data);
        }
    }
    if constexpr (!Shape::kLoops) put_chunk(states, shared, to, a.cols);
}

/// How rows are cut for the sums over them: into a chunk for each of the `blocks` that run at once. A block takes `at_once` rows
/// at least and 128 or 16 times `at_once` at most, more where there would be over 1,024 chunks.
int chunk_rows_for(int rows, int at_once, std::int64_t blocks) {
    const auto each = [&](std::int64_t chunks, std::int64_t most) {
        return static_cast<int>(std::clamp<std::int64_t>((rows + chunks * at_once - 1) / (chunks * at_once), 1, most)) * at_once;
    };
    return std::max(each(std::max<std::int64_t>(blocks, 1), std::max(16, 128 / at_once)), each(1024, rows + 1));
}

bool backward_in_runs(const Context& c, std::span<const Bound> norms) {
    using namespace layernorm_backward;
    return whole_rows(c, norms, norms[0][x], {dy, x, gamma, dx, dresidual});
}

template <std::size_t S>
KernelResult make_backward(Context& c, std::span<const Bound, S> norms) {
    using namespace layernorm_backward;
    const Operand& in = norms[0][x];
    if (in.k * in.g * in.cols == 0) return make_kernel([] {});
    const auto depth = static_cast<unsigned>(in.k * in.g);
    return by_real(in.dtype, [&]<class T>(T) {
        const auto make = [&]<class Shape>(Shape) -> KernelResult {
            constexpr std::size_t kSums = Shape::kRows > 1 ? sizeof(float) * Shape::kRows * S * 2 : 0;
            const std::size_t shared = std::max(Ring<T, Shape, S>::kBytes, kSums * static_cast<std::size_t>(in.cols));
            MILLRACE_TRY(allow_shared(c, backward_rows_kernel<T, Shape, S>, shared));
            // Pinned runs cut the rows of a member as if it were alone.
            const int matrices = c.deterministic ? 1 : in.k * in.g;
            const int chunk_rows =
                chunk_rows_for(in.rows, Shape::kRows, std::int64_t{Shape::kBackwardBlocks} * c.multiprocessors / matrices);
            const int chunks = std::max(1, (in.rows + chunk_rows - 1) / chunk_rows);
            const int pitch = static_cast<int>(S) * 2 * in.cols;
            const std::size_t floats = std::size_t{depth} * static_cast<std::size_t>(chunks) * static_cast<std::size_t>(pitch);
            MILLRACE_LET(partial, zero_table(c, floats * sizeof(float)));
            BackwardArgs<T, S> a{norms[0][dy], {}, static_cast<float*>(partial), in.g, in.rows, in.cols, chunk_rows, true};
            for (std::size_t s = 0; s < S; ++s) {
                const Bound& b = norms[s];
                const Operand out = s + 1 < S ? Operand{} : b[dx];
                a.norms[s] = {b[x], b[gamma],     b[mean],           b[inv_std],
                              out,  b[dresidual], b.accumulates(dx), b.accumulates(dresidual)};
                a.early = a.early && c.reads_early({&b[x], &b[gamma], &b[mean], &b[inv_std]});
            }
            const dim3 grid(static_cast<unsigned>(chunks), 1, depth);
            auto kernel =
                in_order({make_launch(c, backward_rows_kernel<T, Shape, S>, grid, dim3(Shape::kBlock), shared, a)}, partial);
            const float* from = a.partial;
            for (const Bound& b : norms) {
                const ChunkSums sums[] = {{b[dbeta], from, chunks, pitch, b.accumulates(dbeta), partial},
                                          {b[dgamma], from + in.cols, chunks, pitch, b.accumulates(dgamma), partial}};
                MILLRACE_LET(summed, with_sums(c, std::move(kernel), sums));
                kernel = std::move(summed);
                from += 2 * in.cols;
            }
            return KernelResult(std::move(kernel));
        };
        if constexpr (S == 1)
            return by_shape<T>(in.cols, backward_in_runs(c, norms), make);
        else
            return make(PairShape<T>{});
    });
}

}  // namespace

KernelResult make_layernorm_backward(Context& c, const Bound& b) { return make_backward(c, std::span<const Bound, 1>(&b, 1)); }

/// Two norms; the gradient between them, which the second one alone reads, is not stored.
Match match_norms_backward(const Context& c, const Window& records) {
    using namespace layernorm_backward;
    if (records.size() < 2 || records[1].record->op != &kDef) return {};
    const Bound& first = records[0];
    const bool fits = first[dx].present() && records[1][dy] == first[dx] && !first.accumulates(dx) &&
                      !first[dresidual].present() && has_pair_shape(first[dx]) && backward_in_runs(c, records.first(2));
    return fits ? Match::first(2, {{0, dx}}) : Match{};
}
KernelResult make_norms_backward(Context& c, std::span<const Bound> norms) { return make_backward(c, norms.first<2>()); }

}  // namespace millrace::ops::cuda
