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

template <class T>
__device__ void put_input(const BackwardArgs<T>& a, int k, int g, std::int64_t r, int c, float value) {
    if (a.dresidual) put(a.dresidual.row(k, g, r) + c, value, a.add_residual);
    if (a.dx) put(a.dx.row(k, g, r) + c, value, a.add_x);
}

/// One chunk of rows a block, all columns: input gradients and the chunk's part of the parameters'. dx may be the memory of dy.
template <class T, class Shape>
__global__ void __launch_bounds__(32 * kWarps, Shape::kBackwardBlocks)
    backward_rows_kernel(const __grid_constant__ BackwardArgs<T> a) {
    constexpr int N = Shape::kCount, L = Shape::kThreads, kRows = Shape::kRows;
    extern __shared__ __align__(16) float shared[];  // the ring, then sums [kRows][2][cols]
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
    load_row<Shape>(a.gamma.row(k, g, 0), a.cols, gamma);
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
        float d[N], hat[N], sum = 0, dot = 0;
        const auto load_both = [&] {
            load_row<Shape>(dy, cols, d);
            load_row<Shape>(x, cols, hat);
#pragma unroll
            for (int i = 0; i < N; ++i) hat[i] = (hat[i] - m) * inv;
        };
        load_both();
#pragma unroll
        for (int i = 0; i < N; ++i) {  // behind the last column d and gamma are zeros
            sums[i] += d[i];
            dots[i] += d[i] * hat[i];
            d[i] *= gamma[i];
            sum += d[i];
            dot += d[i] * hat[i];
        }
        sum = row_sum<L>(sum) * share;
        dot = row_sum<L>(dot) * share;
        if constexpr (N > 16 && Shape::kBackwardBlocks > 1) {  // there are no registers to keep them
            asm volatile("" ::: "memory");
            load_both();
#pragma unroll
            for (int i = 0; i < N; ++i) d[i] *= gamma[i];
        }
#pragma unroll
        for (int i = 0; i < N; ++i) d[i] = inv * (d[i] - sum - hat[i] * dot);
        if (a.dresidual) put_row<Shape>(a.dresidual.row(k, g, r), cols, d, a.add_residual);
        if (a.dx) put_row<Shape>(a.dx.row(k, g, r), cols, d, a.add_x);
    }
    __syncthreads();  // the ring is done with
    float* own = shared + Shape::row() * 2 * a.cols;
    put_row<Shape>(own, a.cols, sums);
    put_row<Shape>(own + a.cols, a.cols, dots);
    __syncthreads();
    float* to = a.partial + (static_cast<std::int64_t>(blockIdx.z) * gridDim.x + blockIdx.x) * 2 * a.cols;
    for (int c = threadIdx.x; c < 2 * a.cols; c += blockDim.x) {
        float sum = 0;
        for (int row = 0; row < kRows; ++row) sum += shared[row * 2 * a.cols + c];
        to[c] = sum;
    }
}

/// One block per row.
template <class T>
__global__ void input_block_kernel(BackwardArgs<T> a) {
    __shared__ float shared[32];
    begin_kernel();
    const int r = blockIdx.x, k = blockIdx.z / a.groups, g = blockIdx.z % a.groups;
    const float m = *a.mean.row(k, g, r), inv = *a.inv_std.row(k, g, r);
    const float* scale = a.gamma.row(k, g, 0);
    float sum = 0, dot = 0;
    for (int c = threadIdx.x; c < a.cols; c += blockDim.x) {
        const float d = load(a.dy.row(k, g, r) + c) * scale[c];
        sum += d;
        dot += d * (load(a.x.row(k, g, r) + c) - m) * inv;
    }
    sum = block_sum(sum, shared) / static_cast<float>(a.cols);
    dot = block_sum(dot, shared) / static_cast<float>(a.cols);
    for (int c = threadIdx.x; c < a.cols; c += blockDim.x) {
        const float xhat = (load(a.x.row(k, g, r) + c) - m) * inv;
        put_input(a, k, g, r, c, inv * (load(a.dy.row(k, g, r) + c) * scale[c] - sum - xhat * dot));
    }
}

constexpr int kParameterLanes = 8;

/// How rows are cut for the sums over them: into a chunk for each of the `blocks` that run at once. A block takes `at_once` rows
/// at least and 16 times as many at most, more where there would be over 1,024 chunks.
int chunk_rows_for(int rows, int at_once, std::int64_t blocks) {
    const auto each = [&](std::int64_t chunks, std::int64_t most) {
        return static_cast<int>(std::clamp<std::int64_t>((rows + chunks * at_once - 1) / (chunks * at_once), 1, most)) * at_once;
    };
    return std::max(each(std::max<std::int64_t>(blocks, 1), 16), each(1024, rows + 1));
}

/// 32 columns of one chunk of rows a block.
template <class T>
__global__ void parameter_block_kernel(BackwardArgs<T> a) {
    begin_kernel();
    const int c = blockIdx.y * 32 + threadIdx.x, k = blockIdx.z / a.groups, g = blockIdx.z % a.groups;
    const int begin = blockIdx.x * a.chunk_rows, end = min(a.rows, begin + a.chunk_rows);
    float sum = 0, dot = 0;
    for (int r = begin + threadIdx.y; c < a.cols && r < end; r += kParameterLanes) {
        const float d = load(a.dy.row(k, g, r) + c);
        sum += d;
        dot += d * (load(a.x.row(k, g, r) + c) - *a.mean.row(k, g, r)) * *a.inv_std.row(k, g, r);
    }
    sum = sum_over_y<kParameterLanes>(sum);
    dot = sum_over_y<kParameterLanes>(dot);
    if (threadIdx.y != 0 || c >= a.cols) return;
    float* to = a.partial + (static_cast<std::int64_t>(blockIdx.z) * gridDim.x + blockIdx.x) * 2 * a.cols + c;
    to[0] = sum;
    to[a.cols] = dot;
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
            constexpr bool kRowsInBlock = !std::is_same_v<Shape, RowOfABlock>;
            int at_once = kParameterLanes, blocks = 4;
            std::size_t shared = 0;
            if constexpr (kRowsInBlock) {
                at_once = Shape::kRows;
                blocks = Shape::kBackwardBlocks;
                shared = std::max(Ring<T, Shape>::kBytes, sizeof(float) * Shape::kRows * 2 * static_cast<std::size_t>(in.cols));
                MILLRACE_TRY(allow_shared(c, backward_rows_kernel<T, Shape>, shared));
            }
            // Pinned runs cut the rows of a member as if it were alone.
            const int matrices = c.deterministic ? 1 : in.k * in.g;
            const int chunk_rows = chunk_rows_for(in.rows, at_once, std::int64_t{blocks} * c.multiprocessors / matrices);
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
            auto kernel = make_kernel([a, chunks, depth, shared, stream = c.stream, partial] {
                if constexpr (kRowsInBlock) {
                    launch(backward_rows_kernel<T, Shape>, dim3(chunks, 1, depth), dim3(32 * kWarps), shared, stream, a);
                } else {
                    launch(parameter_block_kernel<T>, dim3(chunks, blocks_for(a.cols, 32), depth), dim3(32, kParameterLanes), 0,
                           stream, a);
                    if (a.rows > 0) launch(input_block_kernel<T>, dim3(a.rows, 1, depth), dim3(128), 0, stream, a);
                }
            });
            const ChunkSums sums[] = {{b[dbeta], a.partial, chunks, 2 * in.cols, b.accumulates(dbeta), partial},
                                      {b[dgamma], a.partial + in.cols, chunks, 2 * in.cols, b.accumulates(dgamma), partial}};
            return with_sums(c, std::move(kernel), sums);
        });
    });
}

}  // namespace millrace::ops::cuda
