// Attention of any width, alignment and precision: a block has 16 rows of one head and streams the other side's rows in tiles of
// 16. Thread 16 r + j works on own row r and streamed row j, then on columns j, j + 16, ... of row r. Every sum has a fixed
// order.

#include "ops/attention/attention.cuh"

namespace millrace::ops::cuda {
namespace {

constexpr int kSide = 16, kThreads = kSide * kSide, kPitch = kSide + 1;

/// Rows of a head as float in shared memory, an element apart from whole banks.
struct Rows {
    float* data;
    int width;
    [[nodiscard]] __device__ float* row(int r) const { return data + r * (width + 1); }
    [[nodiscard]] __device__ Rows next() const { return {row(kSide), width}; }
    __device__ void clear() const {
        for (int i = threadIdx.x; i < kSide * (width + 1); i += kThreads) data[i] = 0;
    }
    /// kSide rows at `from`; zeros from row `rows` on.
    template <class T>
    __device__ void fetch(const T* from, std::int64_t stride, int rows) const {
        for (int i = threadIdx.x; i < kSide * width; i += kThreads) {
            const int r = i / width, d = i % width;
            row(r)[d] = r < rows ? load(from + r * stride + d) : 0;
        }
    }
    /// Row `r` times `factor` by its 16 threads.
    template <class T>
    __device__ void store_row(int r, int lane, float factor, T* to) const {
        for (int d = lane; d < width; d += kSide) store(to + d, row(r)[d] * factor);
    }
};

__device__ inline float dot(const float* a, const float* b, int width) {
    float sum = 0;
    for (int d = 0; d < width; ++d) sum += a[d] * b[d];
    return sum;
}
/// Over the 16 threads of a row.
__device__ inline float row_sum(float v) {
    for (int d = kSide / 2; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
    return v;
}
__device__ inline float row_max(float v) {
    for (int d = kSide / 2; d > 0; d /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, d));
    return v;
}
/// sums = shrink * sums + weights of the row's 16 streamed rows times these rows.
__device__ inline void add_rows(const Rows& sums, int r, int lane, float shrink, const float* weights, const Rows& streamed) {
    for (int d = lane; d < sums.width; d += kSide) {
        float sum = shrink * sums.row(r)[d];
        for (int j = 0; j < kSide; ++j) sum += weights[j] * streamed.row(j)[d];
        sums.row(r)[d] = sum;
    }
}

/// Where a block and a thread work.
struct Work {
    AttentionPlace place;
    int first, r, lane;  ///< first own row of the block; the thread's own row of these, its column

    template <class T>
    __device__ explicit Work(const AttentionArgs<T>& a)
        : r(static_cast<int>(threadIdx.x) / kSide), lane(static_cast<int>(threadIdx.x) % kSide) {
        const int blocks = (a.shape.positions + kSide - 1) / kSide;
        place = place_of(a, static_cast<int>(blockIdx.x) / blocks);
        first = static_cast<int>(blockIdx.x) % blocks * kSide;
    }
    [[nodiscard]] __device__ int own() const { return first + r; }
    [[nodiscard]] __device__ bool filled() const { return own() < place.filled; }
};

template <class T>
__global__ void plain_forward_kernel(AttentionArgs<T> a) {
    extern __shared__ float floats[];
    const Rows queries{floats, a.shape.width}, keys = queries.next(), values = keys.next(), out = values.next();
    begin_kernel();
    const Work w(a);
    float *weights = out.row(kSide) + w.r * kPitch, top = -INFINITY, sum = 0;
    const int filled = w.place.filled, seen = w.filled() ? a.shape.seen(w.own(), filled) : 0;
    const int limit = w.first < filled ? a.shape.seen(min(w.first + kSide, filled) - 1, filled) : 0;
    const T* rows = part_of(a.qkv, a.shape, w.place, 0);
    const std::int64_t stride = a.qkv.stride_row, across = a.shape.heads * a.shape.width;
    queries.fetch(rows + w.first * stride, stride, filled - w.first);
    out.clear();
    for (int at = 0; at < limit; at += kSide) {
        __syncthreads();
        keys.fetch(rows + at * stride + across, stride, filled - at);
        values.fetch(rows + at * stride + 2 * across, stride, filled - at);
        __syncthreads();
        const float score =
            at + w.lane < seen ? dot(queries.row(w.r), keys.row(w.lane), a.shape.width) * a.shape.scale : -INFINITY;
        const float most = fmaxf(top, row_max(score)), shrink = at < seen ? expf(top - most) : 1;
        const float weight = at + w.lane < seen ? expf(score - most) : 0;
        top = most;
        sum = sum * shrink + weight;
        weights[w.lane] = weight;
        __syncwarp();
        add_rows(out, w.r, w.lane, shrink, weights, values);
    }
    __syncthreads();
    sum = row_sum(sum);
    if (w.own() >= a.shape.positions) return;
    const std::int64_t row = w.place.row + w.own();
    out.store_row(w.r, w.lane, w.filled() ? 1 / sum : 0, a.out.row(w.place.k, 0, row) + w.place.column);
    if (w.lane == 0) a.logsumexp.row(w.place.k, 0, row)[w.place.head] = w.filled() ? top + logf(sum) : 0;
}

template <class T>
__global__ void plain_queries_kernel(AttentionArgs<T> a) {
    extern __shared__ float floats[];
    const Rows queries{floats, a.shape.width}, douts = queries.next(), keys = douts.next(), values = keys.next();
    const Rows sums = values.next();
    begin_kernel();
    const Work w(a);
    float *gradients = sums.row(kSide) + w.r * kPitch, delta = 0, logsumexp = 0;
    const int filled = w.place.filled, seen = w.filled() ? a.shape.seen(w.own(), filled) : 0;
    const int limit = w.first < filled ? a.shape.seen(min(w.first + kSide, filled) - 1, filled) : 0;
    const T* rows = part_of(a.qkv, a.shape, w.place, 0);
    const std::int64_t stride = a.qkv.stride_row, across = a.shape.heads * a.shape.width;
    queries.fetch(rows + w.first * stride, stride, filled - w.first);
    douts.fetch(a.dout.row(w.place.k, 0, w.place.row + w.first) + w.place.column, a.dout.stride_row, filled - w.first);
    sums.clear();
    __syncthreads();
    if (w.filled()) {
        const T* out = a.out.row(w.place.k, 0, w.place.row + w.own()) + w.place.column;
        for (int d = w.lane; d < a.shape.width; d += kSide) delta += load(out + d) * douts.row(w.r)[d];
        logsumexp = a.logsumexp.row(w.place.k, 0, w.place.row + w.own())[w.place.head];
    }
    delta = row_sum(delta);
    if (w.lane == 0 && w.filled()) a.delta.row(w.place.k, 0, w.place.row + w.own())[w.place.head] = delta;
    for (int at = 0; at < limit; at += kSide) {
        __syncthreads();
        keys.fetch(rows + at * stride + across, stride, filled - at);
        values.fetch(rows + at * stride + 2 * across, stride, filled - at);
        __syncthreads();
        float gradient = 0;
        if (at + w.lane < seen) {
            const float weight = expf(dot(queries.row(w.r), keys.row(w.lane), a.shape.width) * a.shape.scale - logsumexp);
            gradient = weight * (dot(douts.row(w.r), values.row(w.lane), a.shape.width) - delta);
        }
        gradients[w.lane] = gradient;
        __syncwarp();
        add_rows(sums, w.r, w.lane, 1, gradients, keys);
    }
    __syncthreads();
    if (w.own() < a.shape.positions)
        sums.store_row(w.r, w.lane, a.shape.scale, part_of(a.dqkv, a.shape, w.place, 0) + w.own() * a.dqkv.stride_row);
}

template <class T>
__global__ void plain_keys_kernel(AttentionArgs<T> a) {
    extern __shared__ float floats[];
    const Rows keys{floats, a.shape.width}, values = keys.next(), queries = values.next(), douts = queries.next();
    const Rows dkeys = douts.next(), dvalues = dkeys.next();
    begin_kernel();
    const Work w(a);
    float *weights = dvalues.row(kSide) + w.r * kPitch, *gradients = weights + kSide * kPitch;
    const int filled = w.place.filled, begin = a.shape.first_query(w.first) / kSide * kSide,
              end = w.first < filled ? filled : begin;
    const T *rows = part_of(a.qkv, a.shape, w.place, 0), *dout_rows = a.dout.row(w.place.k, 0, w.place.row) + w.place.column;
    const std::int64_t stride = a.qkv.stride_row, across = a.shape.heads * a.shape.width;
    keys.fetch(rows + w.first * stride + across, stride, filled - w.first);
    values.fetch(rows + w.first * stride + 2 * across, stride, filled - w.first);
    dkeys.clear();
    dvalues.clear();
    for (int at = begin; at < end; at += kSide) {
        __syncthreads();
        queries.fetch(rows + at * stride, stride, filled - at);
        douts.fetch(dout_rows + at * a.dout.stride_row, a.dout.stride_row, filled - at);
        __syncthreads();
        const int i = at + w.lane;
        float weight = 0, gradient = 0;
        if (w.filled() && i < filled && i >= a.shape.first_query(w.own())) {
            const std::int64_t row = w.place.row + i;
            const float logsumexp = a.logsumexp.row(w.place.k, 0, row)[w.place.head];
            weight = expf(dot(keys.row(w.r), queries.row(w.lane), a.shape.width) * a.shape.scale - logsumexp);
            gradient =
                weight * (dot(values.row(w.r), douts.row(w.lane), a.shape.width) - a.delta.row(w.place.k, 0, row)[w.place.head]);
        }
        weights[w.lane] = weight;
        gradients[w.lane] = gradient;
        __syncwarp();
        add_rows(dkeys, w.r, w.lane, 1, gradients, queries);
        add_rows(dvalues, w.r, w.lane, 1, weights, douts);
    }
    __syncthreads();
    if (w.own() >= a.shape.positions) return;
    const std::int64_t row = w.own() * a.dqkv.stride_row;
    dkeys.store_row(w.r, w.lane, a.shape.scale, part_of(a.dqkv, a.shape, w.place, 1) + row);
    dvalues.store_row(w.r, w.lane, 1, part_of(a.dqkv, a.shape, w.place, 2) + row);
}

/// Bytes of shared memory of `matrices` times 16 rows and `squares` of 16 by 16.
base::Result<std::size_t> plain_bytes(const Context& c, const AttentionShape& shape, std::size_t matrices, std::size_t squares) {
    const std::size_t bytes = sizeof(float) * kSide * (matrices * (static_cast<std::size_t>(shape.width) + 1) + squares * kPitch);
    if (bytes > c.shared_limit)
        return base::Error{"attention with " + std::to_string(shape.width) + " columns a head needs " + std::to_string(bytes) +
                           " bytes of shared memory, a block of this GPU has " + std::to_string(c.shared_limit) +
                           "; use more heads"};
    return bytes;
}

}  // namespace

template <class Real>
KernelResult make_plain_attention_forward(Context& c, const AttentionArgs<Real>& a) {
    const auto kernel = plain_forward_kernel<Real>;
    MILLRACE_LET(bytes, plain_bytes(c, a.shape, 4, 1));
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(kernel)));
    return make_launch(c, kernel, attention_grid(a, (a.shape.positions + kSide - 1) / kSide), dim3(kThreads), bytes, a);
}

template <class Real>
KernelResult make_plain_attention_backward(Context& c, const AttentionArgs<Real>& a) {
    const auto queries = plain_queries_kernel<Real>, keys = plain_keys_kernel<Real>;
    MILLRACE_LET(bytes, plain_bytes(c, a.shape, 6, 2));
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(queries)));
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(keys)));
    const dim3 grid = attention_grid(a, (a.shape.positions + kSide - 1) / kSide);
    return make_kernel([=, stream = c.stream] {
        launch(queries, grid, dim3(kThreads), bytes, stream, a);
        launch(keys, grid, dim3(kThreads), bytes, stream, a);
    });
}

template KernelResult make_plain_attention_forward(Context&, const AttentionArgs<float>&);
template KernelResult make_plain_attention_forward(Context&, const AttentionArgs<bf16>&);
template KernelResult make_plain_attention_forward(Context&, const AttentionArgs<f16>&);
template KernelResult make_plain_attention_backward(Context&, const AttentionArgs<float>&);
template KernelResult make_plain_attention_backward(Context&, const AttentionArgs<bf16>&);
template KernelResult make_plain_attention_backward(Context&, const AttentionArgs<f16>&);

}  // namespace millrace::ops::cuda
