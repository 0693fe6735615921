// Convolutions as products: the windows of all positions become the rows of a matrix whose columns are those of the weights. Rows
// of the batch go through it in chunks.

#include "ops/conv/conv_args.cuh"
#include "ops/cuda/context.h"

namespace millrace::ops::cuda {
namespace {

using tensor::DType;
using tensor::Operand;

constexpr int kThreads = 256;

/// Some rows of the batch.
struct Chunk {
    int first, rows;
};

/// f(k, element) for elements [0, count) of member k.
template <class F>
__device__ void for_each(std::int64_t count, F f) {
    for (std::int64_t i = blockIdx.x * std::int64_t{kThreads} + threadIdx.x; i < count; i += std::int64_t{gridDim.x} * kThreads)
        f(static_cast<int>(blockIdx.y), i);
}

/// windows [rows * height * width][weights], zeros outside of the map.
template <class T>
__global__ void __launch_bounds__(kThreads) windows_kernel(const __grid_constant__ ConvArgs<T> a, Mat<T> windows, Chunk chunk) {
    begin_kernel();
    const ConvParams& p = a.p;
    const int positions = p.height * p.width, taps = p.kernel_h * p.kernel_w;
    for_each(std::int64_t{chunk.rows} * positions * p.weights(), [&](int k, std::int64_t i) {
        const std::int64_t at = i / p.weights();
        const int d = static_cast<int>(i % p.weights()), tap = d % taps, position = static_cast<int>(at % positions);
        const int h = position / p.width + tap / p.kernel_w - p.kernel_h / 2,
                  w = position % p.width + tap % p.kernel_w - p.kernel_w / 2;
        const bool inside = h >= 0 && h < p.height && w >= 0 && w < p.width;
        const T* x = a.x.row(k, 0, chunk.first + at / positions);
        windows.row(k, 0, at)[d] = inside ? x[(h * p.width + w) * p.in + d / taps] : T(0.0f);
    });
}

/// y and chosen from the sums of all positions: pooling, bias, relu and dropout.
template <class T>
__global__ void __launch_bounds__(kThreads)
    pool_kernel(const __grid_constant__ ConvArgs<T> a, Mat<const float> sums, Chunk chunk) {
    begin_kernel();
    const ConvParams& p = a.p;
    const int pooled = p.pooled_h() * p.pooled_w();
    const DropoutKey key = dropout_key(a.dropout(), a.state, static_cast<int>(blockIdx.y));
    for_each(std::int64_t{chunk.rows} * pooled * p.out, [&](int k, std::int64_t i) {
        const int o = static_cast<int>(i % p.out), at = static_cast<int>(i / p.out % pooled);
        const std::int64_t map = i / p.out / pooled, row = chunk.first + map;
        float largest = 0;
        int found = 0;
        for (int place = 0; place < p.pool_h * p.pool_w; ++place) {
            const int h = at / p.pooled_w() * p.pool_h + place / p.pool_w, w = at % p.pooled_w() * p.pool_w + place % p.pool_w;
            const float sum = sums.row(k, 0, (map * p.height + h) * p.width + w)[o];
            if (place > 0 && !(sum > largest || sum != sum)) continue;
            largest = sum;
            found = place;
        }
        if (a.bias) largest += a.bias.row(k, 0, 0)[o];
        const std::int64_t column = p.column(at, o);
        const float factor = dropout_factor(key, static_cast<std::uint64_t>(row * p.out_columns() + column));
        const bool none = factor == 0 || (p.relu && largest <= 0);
        if (a.chosen) a.chosen.row(k, 0, row)[column] = static_cast<std::uint8_t>(none ? kNothingChosen : found);
        store(a.y.row(k, 0, row) + column, none ? 0 : largest * factor);
    });
}

/// dz [rows * height * width][out].
template <class T>
__global__ void __launch_bounds__(kThreads) spread_kernel(const __grid_constant__ ConvArgs<T> a, Mat<T> dz, Chunk chunk) {
    begin_kernel();
    const ConvParams& p = a.p;
    const int positions = p.height * p.width;
    const float scale = dropout_rule(dropout_key(a.dropout(), a.state, static_cast<int>(blockIdx.y))).factor;
    for_each(std::int64_t{chunk.rows} * positions * p.out, [&](int k, std::int64_t i) {
        const std::int64_t at = i / p.out;
        const int o = static_cast<int>(i % p.out), position = static_cast<int>(at % positions);
        store(dz.row(k, 0, at) + o, scale * a.dz(k, chunk.first + at / positions, position / p.width, position % p.width, o));
    });
}

/// dx from the gradients of the windows: each element is in one window of every tap.
template <class T>
__global__ void __launch_bounds__(kThreads)
    fold_kernel(const __grid_constant__ ConvArgs<T> a, Mat<const float> windows, Chunk chunk) {
    begin_kernel();
    const ConvParams& p = a.p;
    for_each(std::int64_t{chunk.rows} * p.in_columns(), [&](int k, std::int64_t i) {
        const std::int64_t map = i / p.in_columns();
        const int column = static_cast<int>(i % p.in_columns()), c = column % p.in, position = column / p.in;
        float sum = 0;
        for (int tap = 0; tap < p.kernel_h * p.kernel_w; ++tap) {
            const int h = position / p.width - tap / p.kernel_w + p.kernel_h / 2,
                      w = position % p.width - tap % p.kernel_w + p.kernel_w / 2;
            if (h >= 0 && h < p.height && w >= 0 && w < p.width)
                sum += windows.row(k, 0, (map * p.height + h) * p.width + w)[c * p.kernel_h * p.kernel_w + tap];
        }
        put(a.dx.row(k, 0, chunk.first + map) + column, sum, a.add_dx);
    });
}

/// A matrix with `cols` columns for the positions of some maps of each member; lend_matrices gives it memory.
Operand matrix_of(DType type, const ConvParams& p, int members, int maps, int cols) {
    const int rows = maps * p.height * p.width, run = static_cast<int>(16 / tensor::size_of(type));
    const std::int64_t stride = (cols + run - 1) / run * run;
    return {nullptr, type, members, 1, rows, cols, rows * stride, rows * stride, stride};
}

/// Memory for all of them, one behind the other. Products that are made for the same record find theirs behind it.
base::Result<DeviceTable> lend_matrices(Context& c, std::initializer_list<Operand*> all) {
    const auto bytes = [](const Operand& o) { return static_cast<std::size_t>(o.stride_k * o.k) * tensor::size_of(o.dtype); };
    std::size_t sum = 0;
    for (const Operand* o : all) sum += bytes(*o);
    MILLRACE_LET(table, lend_table(c, sum));
    c.lent_below = sum;
    auto* at = static_cast<std::byte*>(table.get());
    for (Operand* o : all) {
        o->data = at;
        at += bytes(*o);
    }
    return table;
}

/// So many maps at once that their windows and sums fit the second cache. Pinned runs do not ask how many members there are.
int maps_at_once(const Context& c, const ConvParams& p, const Operand& rows) {
    const std::int64_t elements = c.deterministic ? 1 << 20 : (1 << 24) / rows.k;
    const std::int64_t each = std::int64_t{p.height} * p.width * std::max(p.weights(), p.out);
    return static_cast<int>(std::clamp<std::int64_t>(elements / each, 1, std::max(rows.rows, 1)));
}

Operand of_chunk(Operand matrix, const ConvParams& p, const Chunk& chunk) {
    matrix.rows = chunk.rows * p.height * p.width;
    return matrix;
}

/// make(chunk) for all rows, once even where there are none: gradients of weights become zeros.
template <class Make>
base::Status for_each_chunk(int rows, int at_once, Make make) {
    int first = 0;
    do {
        MILLRACE_TRY(make(Chunk{first, std::min(at_once, rows - first)}));
        first += at_once;
    } while (first < rows);
    return base::ok();
}

/// A kernel for `count` elements of each member.
template <class T, class M>
KernelPtr make_pass(Context& c, void (*kernel)(ConvArgs<T>, Mat<M>, Chunk), const ConvArgs<T>& a, const Operand& matrix,
                    const Chunk& chunk, int count) {
    if (chunk.rows == 0) return make_kernel([] {});
    const dim3 grid(std::min(blocks_for(std::int64_t{chunk.rows} * count, kThreads), 8192u), static_cast<unsigned>(a.members));
    return make_launch(c, kernel, grid, dim3(kThreads), 0, a, matrix, chunk);
}

template <class T>
KernelResult make_forward(Context& c, const Bound& b) {
    using namespace conv_forward;
    const auto a = conv_forward_args<T>(b);
    const ConvParams& p = a.p;
    const int at_once = maps_at_once(c, p, b[y]), positions = p.height * p.width;
    Operand windows = matrix_of(b[x].dtype, p, a.members, at_once, p.weights()),
            sums = matrix_of(DType::f32, p, a.members, at_once, p.out);
    MILLRACE_LET(memory, lend_matrices(c, {&windows, &sums}));
    Kernels steps;
    MILLRACE_TRY(for_each_chunk(a.rows, at_once, [&](const Chunk& chunk) -> base::Status {
        const Operand left = of_chunk(windows, p, chunk), out = of_chunk(sums, p, chunk);
        steps.push_back(make_pass(c, windows_kernel<T>, a, left, chunk, positions * p.weights()));
        MILLRACE_LET(product, make_product(c, Product::forward, left, b[w], out, false));
        steps.push_back(std::move(product));
        steps.push_back(make_pass(c, pool_kernel<T>, a, out, chunk, p.out_columns()));
        return base::ok();
    }));
    return in_order(std::move(steps), memory);
}

template <class T>
KernelResult make_backward(Context& c, const Bound& b) {
    using namespace conv_backward;
    const auto a = conv_backward_args<T>(b);
    const ConvParams& p = a.p;
    const int at_once = maps_at_once(c, p, b[dy]), positions = p.height * p.width;
    Operand windows = matrix_of(b[x].dtype, p, a.members, at_once, p.weights()),
            gradients = matrix_of(b[x].dtype, p, a.members, at_once, p.out),
            back = matrix_of(DType::f32, p, a.members, b[dx].present() ? at_once : 0, p.weights());
    MILLRACE_LET(memory, lend_matrices(c, {&windows, &gradients, &back}));
    Kernels steps;
    MILLRACE_TRY(for_each_chunk(a.rows, at_once, [&](const Chunk& chunk) -> base::Status {
        const Operand dz = of_chunk(gradients, p, chunk), in = of_chunk(windows, p, chunk);
        const bool later = chunk.first > 0;
        steps.push_back(make_pass(c, spread_kernel<T>, a, dz, chunk, positions * p.out));
        steps.push_back(make_pass(c, windows_kernel<T>, a, in, chunk, positions * p.weights()));
        MILLRACE_LET(weights, make_product(c, Product::wgrad, dz, in, b[dw], later || b.accumulates(dw)));
        steps.push_back(std::move(weights));
        if (b[dbias].present()) {
            MILLRACE_LET(bias, make_column_sum(c, dz, b[dbias], later || b.accumulates(dbias)));
            steps.push_back(std::move(bias));
        }
        if (!b[dx].present()) return base::ok();
        const Operand out = of_chunk(back, p, chunk);
        MILLRACE_LET(product, make_product(c, Product::dgrad, dz, b[w], out, false));
        steps.push_back(std::move(product));
        steps.push_back(make_pass(c, fold_kernel<T>, a, out, chunk, p.in_columns()));
        return base::ok();
    }));
    return in_order(std::move(steps), memory);
}

}  // namespace

KernelResult make_conv_forward(Context& c, const Bound& b) {
    return by_real(b[conv_forward::y].dtype, [&]<class T>(T) { return make_forward<T>(c, b); });
}
KernelResult make_conv_backward(Context& c, const Bound& b) {
    return by_real(b[conv_backward::dy].dtype, [&]<class T>(T) { return make_backward<T>(c, b); });
}

}  // namespace millrace::ops::cuda
