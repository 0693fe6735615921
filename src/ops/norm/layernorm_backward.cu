// Layer norm backward: input gradients row by row, those of the parameters as sums of chunks of rows, then of the chunks.

#include "ops/cuda/late_sums.h"
#include "ops/norm/layernorm.h"
#include "ops/norm/rows.cuh"

namespace millrace::ops::cuda {
namespace {

using namespace norm_rows;
using tensor::Operand;

template <class T>
struct BackwardArgs {
    Mat<const T> dy, x;
    Mat<const float> gamma, mean, inv_std;
    Mat<T> dx, dresidual;
    float* partial;  ///< [matrix, chunk, 2, cols]: sums of dy and of dy times the normalised x
    int groups, rows, cols, chunk_rows;
    bool add_x, add_residual;
    bool early;  ///< the launch in front writes dy alone of what is read
};

/// One chunk of rows a block, all columns: input gradients and the chunk's part of the parameters'. dx may be the memory of dy.
template <class T, class Shape>
__global__ void __launch_bounds__(Shape::kBlock, Shape::kBackwardBlocks)
    backward_rows_kernel(const __grid_constant__ BackwardArgs<T> a) {
    constexpr int N = Shape::kCount, kRows = Shape::kRows;
    constexpr bool kReadsTwice = Shape::kLoops || N > 16;  // registers do not hold what is read
    extern __shared__ __align__(16) float shared[];        // the ring, then sums [kRows][2][cols] of several rows
    if (!a.early) begin_kernel();
    const int k = blockIdx.z / a.groups, g = blockIdx.z % a.groups;
    const int begin = blockIdx.x * a.chunk_rows, end = min(a.rows, begin + a.chunk_rows), mine = begin + Shape::row();
    Ring<T, Shape> ring(shared);
    const auto cols_of = [&](int r) { return r < end ? a.cols : 0; };  // behind the last row all are zeros
#pragma unroll
    for (int i = 0; i < ring.kAhead; ++i) ring.begin_right(i, a.x.row(k, g, mine + i * kRows), cols_of(mine + i * kRows));
    const float share = 1 / static_cast<float>(a.cols);
    float next_mean = 0, next_inv = 0, gamma[N], sums[N] = {}, dots[N] = {};
    const auto load_statistics = [&](int r) {
        next_mean = r < end ? *a.mean.row(k, g, r) : 0;
        next_inv = r < end ? *a.inv_std.row(k, g, r) : 0;
    };
    load_statistics(mine);
    const auto load_gamma = [&](int at) { load_row<Shape>(a.gamma.row(k, g, 0) + at, a.cols - at, gamma); };
    load_gamma(0);
    float* to = a.partial + (static_cast<std::int64_t>(blockIdx.z) * gridDim.x + blockIdx.x) * 2 * a.cols;
    const auto put_sums = [&](float* both, int at) {
        put_row<Shape>(both + at, a.cols - at, sums);
        put_row<Shape>(both + a.cols + at, a.cols - at, dots);
    };
    int turn = 0;
    if (a.early) begin_kernel();
#pragma unroll
    for (int i = 0; i < ring.kAhead; ++i) ring.begin(a.dy.row(k, g, mine + i * kRows), nullptr, cols_of(mine + i * kRows));
    for (int first = begin; first < end; first += kRows) {
        const int r = first + Shape::row(), cols = cols_of(r), later = r + ring.kAhead * kRows;
        const float m = next_mean, inv = next_inv;
        const T *dy = a.dy.row(k, g, r), *x = a.x.row(k, g, r);
        ring.begin(a.dy.row(k, g, later), a.x.row(k, g, later), cols_of(later));
        load_statistics(r + kRows);
        ring.take(dy, x);
        float d[N], hat[N], row[2] = {};  // the row's sums of d and of d times hat
        const auto load_both = [&](int at) {
            load_row<Shape>(dy + at, cols - at, d);
            load_row<Shape>(x + at, cols - at, hat);
#pragma unroll
            for (int i = 0; i < N; ++i) hat[i] = (hat[i] - m) * inv;
            if constexpr (Shape::kLoops) load_gamma(at);
        };
        Shape::each_piece(a.cols, [&](int at) {
            load_both(at);
            if constexpr (Shape::kLoops) {  // nor do they hold the sums over rows
                const int there = first > begin ? a.cols - at : 0;
                load_row<Shape>(to + at, there, sums);
                load_row<Shape>(to + a.cols + at, there, dots);
            }
#pragma unroll
            for (int i = 0; i < N; ++i) {  // behind the last column d and gamma are zeros
                sums[i] += d[i];
                dots[i] += d[i] * hat[i];
                d[i] *= gamma[i];
                row[0] += d[i];
                row[1] += d[i] * hat[i];
            }
            if constexpr (Shape::kLoops) put_sums(to, at);
        });
        sum_over_row<Shape>(row, turn);
        turn ^= 1;
        const float sum = row[0] * share, dot = row[1] * share;
        Shape::each_piece(a.cols, [&](int at) {
            if constexpr (kReadsTwice) {
                asm volatile("" ::: "memory");
                load_both(at);
#pragma unroll
                for (int i = 0; i < N; ++i) d[i] *= gamma[i];
            }
#pragma unroll
            for (int i = 0; i < N; ++i) d[i] = inv * (d[i] - sum - hat[i] * dot);
            if (a.dresidual) put_row<Shape>(a.dresidual.row(k, g, r) + at, cols - at, d, a.add_residual);
            if (a.dx) put_row<Shape>(a.dx.row(k, g, r) + at, cols - at, d, a.add_x);
        });
    }
    if constexpr (Shape::kLoops) return;
    if constexpr (kRows == 1) return put_sums(to, 0);
    __syncthreads();  // the ring is done with
    put_sums(shared + Shape::row() * 2 * a.cols, 0);
    __syncthreads();
    for (int c = threadIdx.x; c < 2 * a.cols; c += blockDim.x) {
        float sum = 0;
        for (int row = 0; row < kRows; ++row) sum += shared[row * 2 * a.cols + c];
        to[c] = sum;
    }
}

/// How rows are cut for the sums over them: into a chunk for each of the `blocks` that run at once. A block takes `at_once` rows
/// at least and 128 or 16 times `at_once` at most, more where there would be over 1,024 chunks.
int chunk_rows_for(int rows, int at_once, std::int64_t blocks) {
    const auto each = [&](std::int64_t chunks, std::int64_t most) {
        return static_cast<int>(std::clamp<std::int64_t>((rows + chunks * at_once - 1) / (chunks * at_once), 1, most)) * at_once;
    };
    return std::max(each(std::max<std::int64_t>(blocks, 1), std::max(16, 128 / at_once)), each(1024, rows + 1));
}

}  // namespace

KernelResult make_layernorm_backward(Context& c, const Bound& b) {
    using namespace layernorm_backward;
    const Operand& in = b[x];
    if (in.k * in.g * in.cols == 0) return make_kernel([] {});
    const auto depth = static_cast<unsigned>(in.k * in.g);
    const bool whole = whole_rows(c, b, in, {dy, x, gamma, dx, dresidual});
    return by_real(in.dtype, [&]<class T>(T) {
        return by_shape<T>(in.cols, whole, [&]<class Shape>(Shape) -> KernelResult {
            constexpr std::size_t kSums = Shape::kRows > 1 ? sizeof(float) * Shape::kRows * 2 : 0;
            const std::size_t shared = std::max(Ring<T, Shape>::kBytes, kSums * static_cast<std::size_t>(in.cols));
            MILLRACE_TRY(allow_shared(c, backward_rows_kernel<T, Shape>, shared));
            // Pinned runs cut the rows of a member as if it were alone.
            const int matrices = c.deterministic ? 1 : in.k * in.g;
            const int chunk_rows =
                chunk_rows_for(in.rows, Shape::kRows, std::int64_t{Shape::kBackwardBlocks} * c.multiprocessors / matrices);
            const int chunks = std::max(1, (in.rows + chunk_rows - 1) / chunk_rows);
            const std::size_t floats =
                std::size_t{depth} * static_cast<std::size_t>(chunks) * 2 * static_cast<std::size_t>(in.cols);
            MILLRACE_LET(partial, zero_table(c, floats * sizeof(float)));
            const BackwardArgs<T> a{b[dy],
                                    b[x],
                                    b[gamma],
                                    b[mean],
                                    b[inv_std],
                                    b[dx],
                                    b[dresidual],
                                    static_cast<float*>(partial),
                                    in.g,
                                    in.rows,
                                    in.cols,
                                    chunk_rows,
                                    b.accumulates(dx),
                                    b.accumulates(dresidual),
                                    c.reads_early({&b[x], &b[gamma], &b[mean], &b[inv_std]})};
            const dim3 grid(static_cast<unsigned>(chunks), 1, depth);
            auto kernel =
                in_order({make_launch(c, backward_rows_kernel<T, Shape>, grid, dim3(Shape::kBlock), shared, a)}, partial);
            const ChunkSums sums[] = {{b[dbeta], a.partial, chunks, 2 * in.cols, b.accumulates(dbeta), partial},
                                      {b[dgamma], a.partial + in.cols, chunks, 2 * in.cols, b.accumulates(dgamma), partial}};
            return with_sums(c, std::move(kernel), sums);
        });
    });
}

}  // namespace millrace::ops::cuda
