// Convolutions as products: the windows of all positions become the rows of a matrix, whose columns lie tap by tap with the
// channels of a tap side by side, as they lie in a map. The weights are put into that order, and their gradient back from it.
// Rows of the batch go through it in chunks. A thread moves 16 bytes of channels.

#include "ops/conv/conv_args.cuh"
#include "ops/cuda/context.h"
#include "ops/cuda/vector.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::DType;
using tensor::Operand;

constexpr int kThreads = 256;
constexpr int kPadding = 8;  ///< matrices have multiples of so many columns, which are whole runs of every type
template <class T>
constexpr int kRun = 16 / sizeof(T);
constexpr int padded(int cols) { return (cols + kPadding - 1) / kPadding * kPadding; }
template <class T>
__host__ __device__ constexpr int runs_of(int cols) {
    return (cols + kRun<T> - 1) / kRun<T>;
}

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

/// i / d and i % d. 32 bits, which hold most indices, divide in a fraction of the time.
struct Divided {
    std::int64_t whole;
    int rest;
};
__device__ inline Divided divided(std::int64_t i, int d) {
    if (i >> 32 != 0) return {i / d, static_cast<int>(i % d)};
    const auto small = static_cast<std::uint32_t>(i), whole = small / static_cast<std::uint32_t>(d);
    return {whole, static_cast<int>(small - whole * static_cast<std::uint32_t>(d))};
}

/// A run of channels at a position of a map.
struct Place {
    std::int64_t map;
    int at, channel;
};
/// Neighbouring threads have neighbouring channels, or `by_position` neighbouring positions.
template <class T>
__device__ Place place_of(std::int64_t i, int positions, int channels, bool by_position) {
    const int runs = runs_of<T>(channels);
    const Divided inner = divided(i, by_position ? positions : runs),
                  outer = divided(inner.whole, by_position ? runs : positions);
    return by_position ? Place{outer.whole, inner.rest, outer.rest * kRun<T>}
                       : Place{outer.whole, outer.rest, inner.rest * kRun<T>};
}

/// The position that a tap of the window around `position` looks at; negative outside of the map.
__device__ inline int seen_by(const ConvParams& p, int position, int tap) {
    const int h = position / p.width + tap / p.kernel_w - p.kernel_h / 2,
              w = position % p.width + tap % p.kernel_w - p.kernel_w / 2;
    return h >= 0 && h < p.height && w >= 0 && w < p.width ? h * p.width + w : -1;
}

/// ordered [out][padded(weights)], zeros behind the weights.
template <class T>
__global__ void __launch_bounds__(kThreads) order_kernel(const __grid_constant__ ConvArgs<T> a, Mat<T> ordered, Chunk) {
    begin_kernel();
    const int taps = a.p.kernel_h * a.p.kernel_w, cols = padded(a.p.weights());
    for_each(std::int64_t{a.p.out} * cols, [&](int k, std::int64_t i) {
        const auto [o, d] = divided(i, cols);
        const int tap = d / a.p.in, c = d % a.p.in;
        ordered.row(k, 0, o)[d] = tap < taps ? a.w.row(k, 0, o)[c * taps + tap] : T(0.0f);
    });
}

/// dw (+) = ordered, in the order of weights.
template <class T>
__global__ void __launch_bounds__(kThreads)
    put_back_kernel(const __grid_constant__ ConvArgs<T> a, Mat<const float> ordered, Mat<float> dw, bool add) {
    begin_kernel();
    const int taps = a.p.kernel_h * a.p.kernel_w;
    for_each(std::int64_t{a.p.out} * a.p.weights(), [&](int k, std::int64_t i) {
        const auto [o, d] = divided(i, a.p.weights());
        put(dw.row(k, 0, o) + d, ordered.row(k, 0, o)[d % taps * a.p.in + d / taps], add);
    });
}

/// windows [rows * height * width][padded(weights)], zeros outside of the map and behind the weights.
template <class T>
__global__ void __launch_bounds__(kThreads) windows_kernel(const __grid_constant__ ConvArgs<T> a, Mat<T> windows, Chunk chunk) {
    begin_kernel();
    const ConvParams& p = a.p;
    const int positions = p.height * p.width, taps = p.kernel_h * p.kernel_w, runs = padded(p.weights()) / kRun<T>;
    for_each(std::int64_t{chunk.rows} * positions * runs, [&](int k, std::int64_t i) {
        const Divided at = divided(i, runs), map = divided(at.whole, positions);
        const T* x = a.x.row(k, 0, chunk.first + map.whole);
        const int d = at.rest * kRun<T>;
        int tap = d / p.in, c = d % p.in, seen = tap < taps ? seen_by(p, map.rest, tap) : -1;
        Run<T, kRun<T>> run = {};
        if (a.whole_x) {
            if (seen >= 0) run = load_as_stored<kRun<T>>(x + std::int64_t{seen} * p.in + c);
        } else {
            for (int r = 0; r < kRun<T>; ++r) {
                run.v[r] = seen >= 0 ? x[std::int64_t{seen} * p.in + c] : T(0.0f);
                if (++c < p.in) continue;
                c = 0;
                seen = ++tap < taps ? seen_by(p, map.rest, tap) : -1;
            }
        }
        store_as_stored(windows.row(k, 0, at.whole) + d, run);
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
    const DropoutRule rule = dropout_rule(key);
    for_each(std::int64_t{chunk.rows} * pooled * runs_of<T>(p.out), [&](int k, std::int64_t i) {
        const auto [map, at, first] = place_of<T>(i, pooled, p.out, p.channels_first);
        const int top = at / p.pooled_w() * p.pool_h, left = at % p.pooled_w() * p.pool_w;
        float largest[kRun<T>];
        Run<std::uint8_t, kRun<T>> found = {};
        for (int place = 0, h = top; h < top + p.pool_h; ++h)
            for (int w = left; w < left + p.pool_w; ++w, ++place) {
                float sum[kRun<T>];
                load_run<kRun<T>>(sums.row(k, 0, (map * p.height + h) * p.width + w) + first, sum);
                for (int r = 0; r < kRun<T>; ++r) {
                    if (place > 0 && !(sum[r] > largest[r] || sum[r] != sum[r])) continue;
                    largest[r] = sum[r];
                    found.v[r] = static_cast<std::uint8_t>(place);
                }
            }
        const std::int64_t row = chunk.first + map;
        for (int r = 0; r < kRun<T>; ++r) {
            const int o = min(first + r, p.out - 1);
            if (a.bias) largest[r] += a.bias.row(k, 0, 0)[o];
            const auto element = static_cast<std::uint64_t>(row * p.out_columns() + p.column(at, o));
            const float factor = dropout_factor(key, rule, element);
            const bool none = factor == 0 || (p.relu && largest[r] <= 0);
            if (none) found.v[r] = kNothingChosen;
            largest[r] = none ? 0 : largest[r] * factor;
        }
        if (a.whole_y) {
            store_run<kRun<T>>(a.y.row(k, 0, row) + p.column(at, first), largest);
            if (a.chosen) store_as_stored(a.chosen.row(k, 0, row) + p.column(at, first), found);
            return;
        }
        for (int r = 0; r < kRun<T> && first + r < p.out; ++r) {
            store(a.y.row(k, 0, row) + p.column(at, first + r), largest[r]);
            if (a.chosen) a.chosen.row(k, 0, row)[p.column(at, first + r)] = found.v[r];
        }
    });
}

/// dz [rows * height * width][out]: the gradient of a pooled window at the place that was chosen, else zeros.
template <class T>
__global__ void __launch_bounds__(kThreads) spread_kernel(const __grid_constant__ ConvArgs<T> a, Mat<T> dz, Chunk chunk) {
    begin_kernel();
    const ConvParams& p = a.p;
    const int windows_w = (p.width + p.pool_w - 1) / p.pool_w, windows = (p.height + p.pool_h - 1) / p.pool_h * windows_w;
    const float scale = dropout_rule(dropout_key(a.dropout(), a.state, static_cast<int>(blockIdx.y))).factor;
    for_each(std::int64_t{chunk.rows} * windows * runs_of<T>(p.out), [&](int k, std::int64_t i) {
        const auto [map, window, first] = place_of<T>(i, windows, p.out, p.channels_first);
        const int ph = window / windows_w, pw = window % windows_w, at = ph * p.pooled_w() + pw;
        const std::int64_t row = chunk.first + map;
        float gradient[kRun<T>] = {};
        Run<std::uint8_t, kRun<T>> chosen = {};
        if (ph < p.pooled_h() && pw < p.pooled_w()) {  // windows that stick out have none
            if (a.whole_y) {
                load_run<kRun<T>>(a.dy.row(k, 0, row) + p.column(at, first), gradient);
                if (a.chosen) chosen = load_as_stored<kRun<T>>(a.chosen.row(k, 0, row) + p.column(at, first));
            } else {
                for (int r = 0; r < kRun<T> && first + r < p.out; ++r) {
                    gradient[r] = load(a.dy.row(k, 0, row) + p.column(at, first + r));
                    if (a.chosen) chosen.v[r] = a.chosen.row(k, 0, row)[p.column(at, first + r)];
                }
            }
        }
        for (int y = 0; y < p.pool_h && ph * p.pool_h + y < p.height; ++y)
            for (int x = 0; x < p.pool_w && pw * p.pool_w + x < p.width; ++x) {
                float v[kRun<T>];
                for (int r = 0; r < kRun<T>; ++r) v[r] = chosen.v[r] == y * p.pool_w + x ? scale * gradient[r] : 0;
                store_run<kRun<T>>(dz.row(k, 0, (map * p.height + ph * p.pool_h + y) * p.width + pw * p.pool_w + x) + first, v);
            }
    });
}

/// dx from the gradients of the windows: each element is in one window of every tap.
template <class T>
__global__ void __launch_bounds__(kThreads)
    fold_kernel(const __grid_constant__ ConvArgs<T> a, Mat<const float> windows, Chunk chunk) {
    begin_kernel();
    const ConvParams& p = a.p;
    const int positions = p.height * p.width, taps = p.kernel_h * p.kernel_w;
    for_each(std::int64_t{chunk.rows} * positions * runs_of<T>(p.in), [&](int k, std::int64_t i) {
        const auto [map, position, first] = place_of<T>(i, positions, p.in, false);
        const int count = min(kRun<T>, p.in - first);
        float sum[kRun<T>] = {};
        for (int tap = 0; tap < taps; ++tap) {
            const int seen = seen_by(p, position, taps - 1 - tap);  // the window around it has this position at `tap`
            if (seen < 0) continue;
            const float* from = windows.row(k, 0, map * positions + seen) + tap * p.in + first;
            float v[kRun<T>];
            if (a.whole_x)
                load_run<kRun<T>>(from, v);
            else
                for (int r = 0; r < kRun<T>; ++r) v[r] = r < count ? from[r] : 0;
            for (int r = 0; r < kRun<T>; ++r) sum[r] += v[r];
        }
        T* to = a.dx.row(k, 0, chunk.first + map) + std::int64_t{position} * p.in + first;
        if (a.whole_x && !a.add_dx)
            store_run<kRun<T>>(to, sum);
        else
            for (int r = 0; r < count; ++r) put(to + r, sum[r], a.add_dx);
    });
}

/// `rows` x `cols` of each member; lend_matrices gives it memory.
Operand matrix_of(DType type, int members, int rows, int cols) {
    const std::int64_t stride = padded(cols), size = rows * stride;
    return {nullptr, type, members, 1, rows, cols, size, size, stride};
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

template <class T>
dim3 grid_of(const ConvArgs<T>& a, std::int64_t count) {
    return dim3(std::min(blocks_for(count, kThreads), 8192u), static_cast<unsigned>(a.members));
}

/// A kernel for `count` runs of each row.
template <class T, class M>
KernelPtr make_pass(Context& c, void (*kernel)(ConvArgs<T>, Mat<M>, Chunk), const ConvArgs<T>& a, const Operand& matrix,
                    const Chunk& chunk, int count) {
    if (chunk.rows == 0) return make_kernel([] {});
    return make_launch(c, kernel, grid_of(a, std::int64_t{chunk.rows} * count), dim3(kThreads), 0, a, matrix, chunk);
}

template <class T>
KernelResult make_forward(Context& c, const Bound& b) {
    using namespace conv_forward;
    auto a = conv_forward_args<T>(b);
    const ConvParams& p = a.p;
    a.whole_x = p.in % kRun<T> == 0 && whole_runs(b[x]);
    a.whole_y = !p.channels_first && p.out % kRun<T> == 0 && whole_runs(b[y]) && whole_runs(b[chosen]);
    const int at_once = maps_at_once(c, p, b[y]), positions = p.height * p.width, cols = padded(p.weights());
    Operand ordered = matrix_of(b[x].dtype, a.members, p.out, cols),
            windows = matrix_of(b[x].dtype, a.members, at_once * positions, cols),
            sums = matrix_of(DType::f32, a.members, at_once * positions, p.out);
    MILLRACE_LET(memory, lend_matrices(c, {&ordered, &windows, &sums}));
    Kernels steps;
    steps.push_back(make_pass(c, order_kernel<T>, a, ordered, Chunk{0, p.out}, cols));
    MILLRACE_TRY(for_each_chunk(a.rows, at_once, [&](const Chunk& chunk) -> base::Status {
        const Operand left = of_chunk(windows, p, chunk), out = of_chunk(sums, p, chunk);
        steps.push_back(make_pass(c, windows_kernel<T>, a, left, chunk, positions * (cols / kRun<T>)));
        MILLRACE_LET(product, make_product(c, Product::forward, left, ordered, out, false));
        steps.push_back(std::move(product));
        steps.push_back(make_pass(c, pool_kernel<T>, a, out, chunk, p.pooled_h() * p.pooled_w() * runs_of<T>(p.out)));
        return base::ok();
    }));
    return in_order(std::move(steps), memory);
}

template <class T>
KernelResult make_backward(Context& c, const Bound& b) {
    using namespace conv_backward;
    auto a = conv_backward_args<T>(b);
    const ConvParams& p = a.p;
    a.whole_x = p.in % kRun<T> == 0 && whole_runs(b[x]) && whole_runs(b[dx]);
    a.whole_y = !p.channels_first && p.out % kRun<T> == 0 && whole_runs(b[dy]) && whole_runs(b[chosen]);
    const bool needs_dx = b[dx].present();
    const int at_once = maps_at_once(c, p, b[dy]), positions = p.height * p.width, cols = padded(p.weights());
    const int pools = ((p.height + p.pool_h - 1) / p.pool_h) * ((p.width + p.pool_w - 1) / p.pool_w);
    Operand ordered = matrix_of(b[x].dtype, a.members, needs_dx ? p.out : 0, cols),
            dw_ordered = matrix_of(DType::f32, a.members, p.out, cols),
            windows = matrix_of(b[x].dtype, a.members, at_once * positions, cols),
            gradients = matrix_of(b[x].dtype, a.members, at_once * positions, p.out),
            back = matrix_of(DType::f32, a.members, needs_dx ? at_once * positions : 0, cols);
    MILLRACE_LET(memory, lend_matrices(c, {&ordered, &dw_ordered, &windows, &gradients, &back}));
    Kernels steps;
    if (needs_dx) steps.push_back(make_pass(c, order_kernel<T>, a, ordered, Chunk{0, p.out}, cols));
    MILLRACE_TRY(for_each_chunk(a.rows, at_once, [&](const Chunk& chunk) -> base::Status {
        const Operand dz = of_chunk(gradients, p, chunk), in = of_chunk(windows, p, chunk);
        const bool later = chunk.first > 0;
        steps.push_back(make_pass(c, spread_kernel<T>, a, dz, chunk, pools * runs_of<T>(p.out)));
        steps.push_back(make_pass(c, windows_kernel<T>, a, in, chunk, positions * (cols / kRun<T>)));
        MILLRACE_LET(weights, make_product(c, Product::wgrad, dz, in, dw_ordered, later));
        steps.push_back(std::move(weights));
        if (b[dbias].present()) {
            MILLRACE_LET(bias, make_column_sum(c, dz, b[dbias], later || b.accumulates(dbias)));
            steps.push_back(std::move(bias));
        }
        if (!needs_dx) return base::ok();
        const Operand out = of_chunk(back, p, chunk);
        MILLRACE_LET(product, make_product(c, Product::dgrad, dz, ordered, out, false));
        steps.push_back(std::move(product));
        steps.push_back(make_pass(c, fold_kernel<T>, a, out, chunk, positions * runs_of<T>(p.in)));
        return base::ok();
    }));
    steps.push_back(make_launch(c, put_back_kernel<T>, grid_of(a, std::int64_t{p.out} * p.weights()), dim3(kThreads), 0, a,
                                dw_ordered, b[dw], b.accumulates(dw)));
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
