// Dense layers without a norm: bias, activation and dropout behind the product, and on the way back the gradient before them
// together with the bias's.

#include "ops/dense/rows.h"

#include <type_traits>

#include "ops/dense/column_sum.cuh"
#include "ops/dense/layer_args.cuh"

namespace millrace::ops::cuda {
namespace {

using column_sums::first_column;
using column_sums::over_rows;
using column_sums::Plan;
using tensor::Operand;

template <class T>
constexpr int kRun = 16 / sizeof(T);

template <class T>
struct RowsForward : LayerForward<T> {
    Mat<T> z;
    int groups, rows, cols, chunk_rows;
};
template <class T>
struct RowsBackward : LayerBackward<T> {
    int groups, rows, cols;
};

/// In 16 bits GELU comes from one exponential: erfcf costs more than the row's traffic.
template <class T, Activation A>
__device__ float activated(float u) {
    if constexpr (A == Activation::gelu && sizeof(T) == 2) {
        float value, slope;
        gelu_and_slope(u, value, slope);
        return value;
    } else {
        return activate(u, A);
    }
}
template <class T, Activation A>
__device__ float slope_of(float u) {
    if constexpr (A == Activation::gelu && sizeof(T) == 2) {
        float value, slope;
        gelu_and_slope(u, value, slope);
        return slope;
    } else {
        return activation_slope(u, A);
    }
}

/// v times the factors of elements `element` and following. A run's elements share their random blocks: cols is a multiple of V.
template <int V>
__device__ void drop_run(const DropoutKey& key, const DropoutRule& rule, std::uint64_t element, float (&v)[V]) {
    if (rule.threshold == 0) return;
    if constexpr (V % 4 == 0) {
#pragma unroll
        for (int i = 0; i < V; i += 4) {
            const auto block = static_cast<std::uint32_t>((element + i) >> 2);
            const auto bits = base::random_block(key.seed, key.step, key.micro, key.op, block);
#pragma unroll
            for (int j = 0; j < 4; ++j) v[i + j] *= bits.v[j] >= rule.threshold ? rule.factor : 0;
        }
    } else {
#pragma unroll
        for (int i = 0; i < V; ++i) v[i] *= dropout_factor(key, rule, element + i);
    }
}

template <class T, int V, Activation A>
__global__ void __launch_bounds__(column_sums::kThreads) rows_forward_kernel(const __grid_constant__ RowsForward<T> a) {
    const int k = blockIdx.z / a.groups, g = blockIdx.z % a.groups, col = first_column<V>();
    float bias[V] = {};
    if (a.bias && col < a.cols) {  // the product stands between this kernel and the update
#pragma unroll
        for (int i = 0; i < V; ++i) bias[i] = a.bias.row(k, g, 0)[col + i];
    }
    begin_kernel();
    if (col >= a.cols) return;
    const DropoutKey key = dropout_key({a.p.dropout, a.p.op_number}, a.state, k);
    const DropoutRule rule = dropout_rule(key);
    const auto load = [&](int r, Run<T, V>& at) { at = load_as_stored<V>(a.z.row(k, g, r) + col); };
    const auto use = [&](int r, const Run<T, V>& at) {
        float v[V];
        load_run<V>(at.v, v);
#pragma unroll
        for (int i = 0; i < V; ++i) v[i] += bias[i];
        if (a.saved) {
            store_run<V>(a.saved.row(k, g, r) + col, v);
#pragma unroll
            for (int i = 0; i < V; ++i) v[i] = rounded(v[i], at.v);
        }
#pragma unroll
        for (int i = 0; i < V; ++i) v[i] = activated<T, A>(v[i]);
        drop_run<V>(key, rule, (static_cast<std::uint64_t>(g) * a.rows + r) * a.cols + col, v);
        store_run<V>(a.y.row(k, g, r) + col, v);
    };
    over_rows<Run<T, V>>(a.rows, a.chunk_rows, load, use);
}

/// dz and, unless `partial` is null, its sums over each chunk of rows.
template <class T, int V, Activation A>
__global__ void __launch_bounds__(column_sums::kThreads)
    rows_backward_kernel(const __grid_constant__ RowsBackward<T> a, float* partial, int chunk_rows) {
    struct Values {
        Run<T, V> dy, saved;
    };
    begin_kernel();
    const int k = blockIdx.z / a.groups, g = blockIdx.z % a.groups, col = first_column<V>();
    const DropoutKey key = dropout_key({a.p.dropout, a.p.op_number}, a.state, k);
    const DropoutRule rule = dropout_rule(key);
    float sum[V] = {};
    const auto load = [&](int r, Values& at) {
        at.dy = load_as_stored<V>(a.dy.row(k, g, r) + col);
        if constexpr (A != Activation::none) at.saved = load_as_stored<V>(a.saved.row(k, g, r) + col);
    };
    const auto use = [&](int r, const Values& at) {
        float d[V];
        load_run<V>(at.dy.v, d);
        if constexpr (A != Activation::none) {
            float u[V];
            load_run<V>(at.saved.v, u);
#pragma unroll
            for (int i = 0; i < V; ++i) d[i] *= slope_of<T, A>(u[i]);
        }
        drop_run<V>(key, rule, (static_cast<std::uint64_t>(g) * a.rows + r) * a.cols + col, d);
        store_run<V>(a.dz.row(k, g, r) + col, d);
#pragma unroll
        for (int i = 0; i < V; ++i) sum[i] += d[i];
    };
    if (col < a.cols) over_rows<Values>(a.rows, chunk_rows, load, use);
    if (partial) column_sums::put_partial<V>(partial, a.cols, sum);
}

/// f with the activation as a constant.
template <class F>
KernelResult by_activation(Activation a, F f) {
    switch (a) {
        case Activation::none: break;
        case Activation::relu: return f(std::integral_constant<Activation, Activation::relu>{});
        case Activation::gelu: return f(std::integral_constant<Activation, Activation::gelu>{});
        case Activation::tanh: return f(std::integral_constant<Activation, Activation::tanh>{});
        case Activation::sigmoid: return f(std::integral_constant<Activation, Activation::sigmoid>{});
    }
    return f(std::integral_constant<Activation, Activation::none>{});
}

template <class T, int V>
KernelResult make_backward(Context& c, const Bound& b) {
    using namespace dense_backward;
    const Operand& out = b[dz];
    const RowsBackward<T> a{layer_backward<T>(b), out.g, out.rows, out.cols};
    const column_sums::Target bias{b[dbias], 0, a.add_dbias};
    const std::span targets(&bias, b[dbias].present() ? 1 : 0);
    return by_activation(a.p.activation, [&]<Activation A>(std::integral_constant<Activation, A>) {
        const auto chunks = [a, stream = c.stream](dim3 grid, dim3 block, const Plan& p, float* partial) {
            launch(rows_backward_kernel<T, V, A>, grid, block, 0, stream, a, partial, p.chunk_rows);
        };
        return column_sums::make_sums(c, out, V, targets, chunks);
    });
}

}  // namespace

bool has_rows_epilogue(const Bound& b) {
    using namespace dense_forward;
    const auto run = static_cast<int>(16 / tensor::size_of(b[y].dtype));
    return b.params<DenseParams>().norm == Norm::none && b[y].cols % run == 0 && whole_runs(b[y]) && whole_runs(b[saved]);
}

KernelResult make_rows_epilogue(Context& c, const Bound& b, const Operand& z) {
    const Operand& y = b[dense_forward::y];
    return by_real(y.dtype, [&]<class T>(T) {
        const Plan p = column_sums::plan_for(y.rows, y.cols, kRun<T>, 1, y.rows);
        const RowsForward<T> a{layer_forward<T>(b), z, y.g, y.rows, y.cols, p.chunk_rows};
        return by_activation(a.p.activation, [&]<Activation A>(std::integral_constant<Activation, A>) -> KernelResult {
            return make_launch(c, rows_forward_kernel<T, kRun<T>, A>, dim3(p.chunks, p.wide, y.k * y.g), dim3(p.lanes, p.height),
                               0, a);
        });
    });
}

KernelResult make_rows_backward(Context& c, const Bound& b) {
    using namespace dense_backward;
    const auto& p = b.params<DenseParams>();
    const Operand &in = b[dy], &out = b[dz];
    if (p.activation == Activation::none && p.dropout <= 0 && in.data == out.data) {  // dz is there already
        if (!b[dbias].present()) return make_kernel([] {});
        return make_column_sum(c, in, b[dbias], b.accumulates(dbias));
    }
    return by_real(out.dtype, [&]<class T>(T) {
        const bool whole = out.cols % kRun<T> == 0 && whole_runs(in) && whole_runs(b[saved]) && whole_runs(out);
        return whole ? make_backward<T, kRun<T>>(c, b) : make_backward<T, 1>(c, b);
    });
}

}  // namespace millrace::ops::cuda
