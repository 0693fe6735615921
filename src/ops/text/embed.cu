// Tokens and positions become vectors and back; the mean over positions.

#include "ops/cuda/context.h"
#include "ops/text/sequences.cuh"
#include "ops/text/text.h"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

struct Shape {
    int sequences, tokens, prefix, cols;
    __host__ __device__ int positions() const { return prefix + tokens; }
};

/// One block per row of y.
template <class T>
__global__ void embed_kernel(Mat<const float> table, Mat<const float> position, Mat<const T> before, Mat<const std::int32_t> ids,
                             Mat<const std::int32_t> lengths, States state, Mat<T> y, Shape shape, int vocabulary) {
    begin_kernel();
    const int row = blockIdx.x, k = blockIdx.z, sequence = row / shape.positions(), at = row % shape.positions();
    T* to = y.row(k, 0, row);
    if (at >= shape.prefix + tokens_of(lengths, k, sequence, shape.tokens)) {
        for (int c = threadIdx.x; c < shape.cols; c += blockDim.x) store(to + c, 0.0f);
        return;
    }
    const float* where = position.row(k, 0, at);
    if (at < shape.prefix) {
        const T* from = before.row(k, 0, sequence) + at * shape.cols;
        for (int c = threadIdx.x; c < shape.cols; c += blockDim.x) store(to + c, load(from + c) + where[c]);
        return;
    }
    const std::int32_t id = ids.row(k, 0, sequence)[at - shape.prefix];
    const bool known = id >= 0 && id < vocabulary;
    if (!known && threadIdx.x == 0) atomicOr(&state[k].nonfinite, 1u);
    const float* from = table.row(k, 0, known ? id : 0);
    for (int c = threadIdx.x; c < shape.cols; c += blockDim.x) store(to + c, (known ? from[c] : 0.0f) + where[c]);
}

constexpr int kTableThreads = 256;

/// One block per row of the table: the block looks at as many tokens at a time as it has threads, then adds those that are its
/// own in their order, so the sum does not depend on the schedule.
template <class T>
__global__ void table_kernel(Mat<const T> dy, Mat<const std::int32_t> ids, Mat<const std::int32_t> lengths, Mat<float> dtable,
                             Shape shape, bool accumulate) {
    __shared__ std::uint32_t hits[kTableThreads / 32];
    begin_kernel();
    const int v = blockIdx.x, k = blockIdx.z, total = shape.sequences * shape.tokens;
    for (int begin = 0; begin < shape.cols; begin += kTableThreads) {
        const int c = begin + threadIdx.x;
        float sum = 0;
        for (int first = 0; first < total; first += kTableThreads) {
            const int i = first + threadIdx.x;
            bool hit = false;
            if (i < total) {
                const int sequence = i / shape.tokens, t = i % shape.tokens;
                hit = t < tokens_of(lengths, k, sequence, shape.tokens) && ids.row(k, 0, sequence)[t] == v;
            }
            const std::uint32_t word = __ballot_sync(0xffffffffu, hit);
            if (threadIdx.x % 32 == 0) hits[threadIdx.x / 32] = word;
            __syncthreads();
            for (int w = 0; w < kTableThreads / 32; ++w)
                for (std::uint32_t bits = hits[w]; bits != 0; bits &= bits - 1) {
                    const int token = first + 32 * w + __ffs(static_cast<int>(bits)) - 1;
                    const int row = token / shape.tokens * shape.positions() + shape.prefix + token % shape.tokens;
                    if (c < shape.cols) sum += load(dy.row(k, 0, row) + c);
                }
            __syncthreads();
        }
        if (c >= shape.cols) continue;  // no barrier follows in the last round, and in earlier ones no thread is beyond
        put(dtable.row(k, 0, v) + c, sum, accumulate);
    }
}

/// One block per position: sequences in order.
template <class T>
__global__ void position_kernel(Mat<const T> dy, Mat<const std::int32_t> lengths, Mat<float> dposition, Shape shape,
                                bool accumulate) {
    begin_kernel();
    const int at = blockIdx.x, k = blockIdx.z;
    for (int c = threadIdx.x; c < shape.cols; c += blockDim.x) {
        float sum = 0;
        for (int b = 0; b < shape.sequences; ++b)
            if (at < shape.prefix + tokens_of(lengths, k, b, shape.tokens))
                sum += load(dy.row(k, 0, b * shape.positions() + at) + c);
        put(dposition.row(k, 0, at) + c, sum, accumulate);
    }
}

/// One block per vector of the prefix.
template <class T>
__global__ void before_kernel(Mat<const T> dy, Mat<T> dbefore, Shape shape, bool accumulate) {
    begin_kernel();
    const int sequence = blockIdx.x / shape.prefix, at = blockIdx.x % shape.prefix, k = blockIdx.z;
    const T* from = dy.row(k, 0, sequence * shape.positions() + at);
    T* to = dbefore.row(k, 0, sequence) + at * shape.cols;
    for (int c = threadIdx.x; c < shape.cols; c += blockDim.x)
        store(to + c, accumulate ? load(to + c) + load(from + c) : load(from + c));
}

/// One block per sequence and 64 columns.
template <class T>
__global__ void mean_kernel(Mat<const T> x, Mat<const std::int32_t> lengths, Mat<T> y, int positions, int prefix, int cols) {
    begin_kernel();
    const int sequence = blockIdx.x, k = blockIdx.z, c = blockIdx.y * 64 + threadIdx.x;
    if (c >= cols) return;
    const int filled = prefix + tokens_of(lengths, k, sequence, positions - prefix);
    float sum = 0;
    for (int at = 0; at < filled; ++at) sum += load(x.row(k, 0, std::int64_t{sequence} * positions + at) + c);
    store(y.row(k, 0, sequence) + c, filled > 0 ? sum / static_cast<float>(filled) : 0.0f);
}

/// One block per row of dx.
template <class T>
__global__ void mean_backward_kernel(Mat<const T> dy, Mat<const std::int32_t> lengths, Mat<T> dx, int positions, int prefix,
                                     int cols, bool accumulate) {
    begin_kernel();
    const int row = blockIdx.x, k = blockIdx.z, sequence = row / positions;
    const int filled = prefix + tokens_of(lengths, k, sequence, positions - prefix);
    const float share = row % positions < filled ? 1 / static_cast<float>(filled) : 0;
    if (share == 0 && accumulate) return;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        const float v = share == 0 ? 0 : load(dy.row(k, 0, sequence) + c) * share;
        put(dx.row(k, 0, row) + c, v, accumulate);
    }
}

dim3 grid_of(int blocks, int members) { return dim3(blocks, 1, members); }

}  // namespace

KernelResult make_token_embed(Context& c, const Bound& b) {
    namespace at = token_embed;
    const Operand &t = b[at::table], &p = b[at::position], &before = b[at::before], &ids = b[at::ids], &l = b[at::lengths],
                  &s = b[at::state], &y = b[at::y];
    const Shape shape{l.rows, ids.cols, b.params<TokenParams>().prefix, y.cols};
    if (y.rows != shape.sequences * shape.positions() || p.rows != shape.positions())
        return base::Error{std::to_string(y.rows) + " rows and " + std::to_string(p.rows) + " positions for " +
                           std::to_string(l.rows) + " sequences of " + std::to_string(shape.positions())};
    if (y.count() == 0) return make_kernel([] {});
    return by_real(y.dtype, [&]<class T>(T) {
        return make_launch(c, embed_kernel<T>, grid_of(y.rows, y.k), dim3(128), 0, t, p, before, ids, l, s, y, shape, t.rows);
    });
}

KernelResult make_token_embed_backward(Context& c, const Bound& b) {
    namespace at = token_embed_backward;
    const Operand &dy = b[at::dy], &ids = b[at::ids], &l = b[at::lengths], &dt = b[at::dtable], &dp = b[at::dposition],
                  &db = b[at::dbefore];
    const Shape shape{l.rows, ids.cols, b.params<TokenParams>().prefix, dy.cols};
    if (dy.rows != shape.sequences * shape.positions())
        return base::Error{std::to_string(dy.rows) + " rows for " + std::to_string(l.rows) + " sequences of " +
                           std::to_string(shape.positions()) + " positions"};
    const bool add_table = b.accumulates(at::dtable), add_position = b.accumulates(at::dposition),
               add_before = b.accumulates(at::dbefore);
    return by_real(dy.dtype, [&]<class T>(T) -> KernelResult {
        return make_kernel([stream = c.stream, dy, ids, l, dt, dp, db, shape, add_table, add_position, add_before] {
            if (dt.present() && dt.count() > 0)
                launch(table_kernel<T>, grid_of(dt.rows, dy.k), dim3(kTableThreads), 0, stream, dy, ids, l, dt, shape, add_table);
            if (dp.present() && dp.count() > 0)
                launch(position_kernel<T>, grid_of(dp.rows, dy.k), dim3(128), 0, stream, dy, l, dp, shape, add_position);
            if (db.present() && db.count() > 0)
                launch(before_kernel<T>, grid_of(shape.sequences * shape.prefix, dy.k), dim3(128), 0, stream, dy, db, shape,
                       add_before);
        });
    });
}

KernelResult make_masked_mean(Context& c, const Bound& b) {
    namespace at = masked_mean;
    const Operand &x = b[at::x], &l = b[at::lengths], &y = b[at::y];
    const int prefix = b.params<TokenParams>().prefix, positions = positions_of(x, l);
    MILLRACE_TRY(check_positions(x, l, prefix));
    if (y.count() == 0) return make_kernel([] {});
    return by_real(y.dtype, [&]<class T>(T) {
        return make_launch(c, mean_kernel<T>, dim3(y.rows, blocks_for(y.cols, 64), y.k), dim3(64), 0, x, l, y, positions, prefix,
                           y.cols);
    });
}

KernelResult make_masked_mean_backward(Context& c, const Bound& b) {
    namespace at = masked_mean_backward;
    const Operand &dy = b[at::dy], &l = b[at::lengths], &dx = b[at::dx];
    const int prefix = b.params<TokenParams>().prefix, positions = positions_of(dx, l);
    MILLRACE_TRY(check_positions(dx, l, prefix));
    if (dx.count() == 0) return make_kernel([] {});
    return by_real(dx.dtype, [&]<class T>(T) {
        return make_launch(c, mean_backward_kernel<T>, grid_of(dx.rows, dx.k), dim3(128), 0, dy, l, dx, positions, prefix,
                           dx.cols, b.accumulates(at::dx));
    });
}

}  // namespace millrace::ops::cuda
