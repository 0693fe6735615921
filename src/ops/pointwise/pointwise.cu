// Element-wise operators. Neighbouring constants in whole runs of 16 bytes share a launch.

#include <cstring>

#include "ops/cuda/context.h"
#include "ops/cuda/vector.cuh"
#include "ops/pointwise/pointwise.h"

namespace millrace::ops::cuda {
namespace {

using tensor::DType;
using tensor::Operand;

/// Calls f(k, g, row, col) for every element of [groups, rows, cols] of one member-group per blockIdx.z.
template <class F>
__device__ void for_elements(int groups, int rows, int cols, F f) {
    const int k = blockIdx.z / groups, g = blockIdx.z % groups;
    for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < std::int64_t{rows} * cols;
         i += std::int64_t{gridDim.x} * blockDim.x)
        f(k, g, static_cast<int>(i / cols), static_cast<int>(i % cols));
}

template <class T>
__global__ void add_kernel(Mat<const T> a, Mat<const T> b, Mat<T> out, int groups, int rows, int cols, bool accumulate) {
    begin_kernel();
    for_elements(groups, rows, cols, [&](int k, int g, int r, int c) {
        float v = load(a.row(k, g, r) + c);
        if (b) v += load(b.row(k, g, r) + c);
        put(out.row(k, g, r) + c, v, accumulate);
    });
}

template <class T>
__global__ void pointwise_forward_kernel(Mat<const T> x, States state, Mat<T> y, int groups, int rows, int cols,
                                         PointwiseParams p) {
    begin_kernel();
    const DropoutKey key = dropout_key({p.dropout, p.op_number}, state, blockIdx.z / groups);
    for_elements(groups, rows, cols, [&](int k, int g, int r, int c) {
        const std::uint64_t element = (static_cast<std::uint64_t>(g) * rows + r) * cols + c;
        store(y.row(k, g, r) + c, activate(load(x.row(k, g, r) + c), p.activation) * dropout_factor(key, element));
    });
}

template <class T>
__global__ void pointwise_backward_kernel(Mat<const T> dy, Mat<const T> x, States state, Mat<T> dx, int groups, int rows,
                                          int cols, PointwiseParams p, bool accumulate) {
    begin_kernel();
    const DropoutKey key = dropout_key({p.dropout, p.op_number}, state, blockIdx.z / groups);
    for_elements(groups, rows, cols, [&](int k, int g, int r, int c) {
        const std::uint64_t element = (static_cast<std::uint64_t>(g) * rows + r) * cols + c;
        const float v =
            load(dy.row(k, g, r) + c) * dropout_factor(key, element) * activation_slope(load(x.row(k, g, r) + c), p.activation);
        put(dx.row(k, g, r) + c, v, accumulate);
    });
}

template <class T>
__global__ void fill_kernel(Mat<T> out, int groups, int rows, int cols, float value) {
    begin_kernel();
    for_elements(groups, rows, cols, [&](int k, int g, int r, int c) { store(out.row(k, g, r) + c, value); });
}

template <class In, class Out>
__global__ void copy_kernel(Mat<In> in, Mat<Out> out, int groups, int rows, int cols) {
    begin_kernel();
    for_elements(groups, rows, cols, [&](int k, int g, int r, int c) {
        const In* from = in.row(k, g, r) + c;
        Out* to = out.row(k, g, r) + c;
        if constexpr (sizeof(In) == 2 || sizeof(Out) == 2)
            store(to, static_cast<float>(load(from)));
        else
            *to = static_cast<Out>(*from);
    });
}

/// f with a value of the element type of a number.
template <class F>
auto by_number(DType type, F f) {
    return type == DType::i32 ? f(std::int32_t{}) : type == DType::f64 ? f(double{}) : by_real(type, f);
}

KernelResult make_constant(Context& c, const Operand& o, float value) {
    if (o.count() == 0) return make_kernel([] {});
    if (o.dtype == DType::f64) return base::Error{"fill on cuda takes f32, bf16, f16 and i32, not f64"};
    return by_number(o.dtype, [&]<class T>(T) -> KernelResult {
        return make_launch(c, fill_kernel<T>, element_grid(o), dim3(256), 0, o, o.g, o.rows, o.cols, value);
    });
}

constexpr int kFillThreads = 256, kRunsPerThread = 4, kMostFills = 4;

struct Fill {
    std::byte* data;
    std::int64_t stride_k, runs;  ///< bytes between members; runs of 16 bytes in each
    std::uint32_t pattern;
};
struct Fills {
    Fill all[kMostFills];
};

/// blockIdx: part, -, member; blockIdx.y: fill.
__global__ void __launch_bounds__(kFillThreads) fill_runs_kernel(const __grid_constant__ Fills fills) {
    begin_kernel();
    const Fill& f = fills.all[blockIdx.y];
    uint4* to = reinterpret_cast<uint4*>(f.data + static_cast<std::int64_t>(blockIdx.z) * f.stride_k);
    const uint4 run = make_uint4(f.pattern, f.pattern, f.pattern, f.pattern);
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kFillThreads + threadIdx.x; i < f.runs;
         i += static_cast<std::int64_t>(gridDim.x) * kFillThreads)
        to[i] = run;
}

/// Whether every member's elements lie one behind the other in whole runs.
bool in_runs(const Operand& o) {
    const auto size = static_cast<std::int64_t>(tensor::size_of(o.dtype));
    if (o.dtype == DType::f64 || o.dtype == DType::u8) return false;
    return o.count() > 0 && o.g == 1 && (o.rows == 1 || o.stride_row == o.cols) &&
           std::int64_t{o.rows} * o.cols * size % 16 == 0 && whole_runs(o);
}

std::uint32_t pattern_of(DType type, double value) {
    const auto single = static_cast<float>(value);
    std::uint32_t bits = 0;
    if (type == DType::i32) {
        const auto whole = static_cast<std::int32_t>(single);
        std::memcpy(&bits, &whole, sizeof bits);
        return bits;
    }
    if (type == DType::bf16 || type == DType::f16) {
        bits = type == DType::bf16 ? tensor::to_bf16(single) : tensor::to_f16(single);
        return bits | bits << 16;
    }
    std::memcpy(&bits, &single, sizeof bits);
    return bits;
}

}  // namespace

KernelResult make_fill(Context& c, const Bound& b) {
    return make_constant(c, b[fill::out], static_cast<float>(b.params<FillParams>().value));
}
KernelResult make_zeros(Context& c, const Operand& out) { return make_constant(c, out, 0); }

Match match_fills(const Context&, const Window& records) {
    std::size_t count = 0;
    while (count < records.size() && count < kMostFills && records[count].record->op == &fill::kDef &&
           in_runs(records[count][fill::out]) && records[count][fill::out].k == records[0][fill::out].k)
        ++count;
    return Match::first(count);
}

KernelResult make_fills(Context& c, std::span<const Bound> records) {
    Fills fills{};
    std::int64_t most = 0;
    for (std::size_t i = 0; i < records.size(); ++i) {
        const Operand& o = records[i][fill::out];
        const auto size = static_cast<std::int64_t>(tensor::size_of(o.dtype));
        fills.all[i] = {static_cast<std::byte*>(o.data), o.stride_k * size, std::int64_t{o.rows} * o.cols * size / 16,
                        pattern_of(o.dtype, records[i].params<FillParams>().value)};
        most = std::max(most, fills.all[i].runs);
    }
    const dim3 grid(std::clamp(blocks_for(most, kFillThreads * kRunsPerThread), 1u, 4096u), records.size(),
                    records[0][fill::out].k);
    return make_launch(c, fill_runs_kernel, grid, dim3(kFillThreads), 0, fills);
}

KernelResult make_copy(Context& c, const Bound& b) {
    const Operand &in = b[copy::in], &out = b[copy::out];
    return by_number(in.dtype, [&]<class In>(In) {
        return by_number(out.dtype, [&]<class Out>(Out) {
            return make_launch(c, copy_kernel<In, Out>, element_grid(out), dim3(256), 0, in, out, out.g, out.rows, out.cols);
        });
    });
}

KernelResult make_add(Context& c, const Bound& bound) {
    const Operand &a = bound[add::a], &b = bound[add::b], &out = bound[add::out];
    return by_real(out.dtype, [&]<class T>(T) {
        return make_launch(c, add_kernel<T>, element_grid(out), dim3(256), 0, a, b, out, out.g, out.rows, out.cols,
                           bound.accumulates(add::out));
    });
}

KernelResult make_pointwise_forward(Context& c, const Bound& b) {
    const Operand &x = b[pointwise_forward::x], &s = b[pointwise_forward::state], &y = b[pointwise_forward::y];
    return by_real(y.dtype, [&]<class T>(T) {
        return make_launch(c, pointwise_forward_kernel<T>, element_grid(y), dim3(256), 0, x, s, y, y.g, y.rows, y.cols,
                           b.params<PointwiseParams>());
    });
}

KernelResult make_pointwise_backward(Context& c, const Bound& b) {
    using namespace pointwise_backward;
    const Operand &ody = b[dy], &ox = b[x], &s = b[state], &odx = b[dx];
    return by_real(odx.dtype, [&]<class T>(T) {
        return make_launch(c, pointwise_backward_kernel<T>, element_grid(odx), dim3(256), 0, ody, ox, s, odx, odx.g, odx.rows,
                           odx.cols, b.params<PointwiseParams>(), b.accumulates(dx));
    });
}

}  // namespace millrace::ops::cuda
