// The dense layer as separate launches: a product, then one kernel for bias, norm, activation and dropout, in runs of 16 bytes
// where it can be; on the way back the gradient before them together with the bias's. Any element type, any batch.

#include "ops/cuda/activation.cuh"
#include "ops/dense/batch_norm.cuh"
#include "ops/dense/column_sum.cuh"
#include "ops/dense/forms.h"

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

/// The norm of one column, by running statistics.
struct ColumnNorm {
    float mean = 0, inv = 1, gamma = 1, beta = 0;
    template <class T>
    __device__ ColumnNorm(const LayerForward<T>& a, int k, int g, int col) {
        if (a.p.norm == Norm::none) return;
        mean = a.running_mean.row(k, g, 0)[col];
        inv = 1 / sqrtf(a.running_var.row(k, g, 0)[col] + a.p.eps);
        gamma = a.gamma.row(k, g, 0)[col];
        beta = a.beta.row(k, g, 0)[col];
    }
};

/// A thread with one column knows norms, too; those of runs would take registers.
template <class T, int V>
__global__ void __launch_bounds__(column_sums::kThreads) rows_forward_kernel(const __grid_constant__ RowsForward<T> a) {
    const int k = blockIdx.z / a.groups, g = blockIdx.z % a.groups, col = first_column<V>();
    float bias[V] = {};
    if (a.bias && col < a.cols) {  // the product stands between this kernel and the update
#pragma unroll
        for (int i = 0; i < V; ++i) bias[i] = a.bias.row(k, g, 0)[col + i];
    }
    begin_kernel();
    if (col >= a.cols) return;
    const ColumnNorm norm(a, k, g, col);
    const DropoutKey key = dropout_key({a.p.dropout, a.p.op_number}, a.state, k);
    const DropoutRule rule = dropout_rule(key);
    const auto load = [&](int r, Run<T, V>& at) { at = load_as_stored<V>(a.z.row(k, g, r) + col); };
    const auto use = [&](int r, const Run<T, V>& at) {
        float v[1][V];
        load_run<V>(at.v, v[0]);
#pragma unroll
        for (int i = 0; i < V; ++i) v[0][i] += bias[i];
        if constexpr (V == 1) v[0][0] = (v[0][0] - norm.mean) * norm.inv;
        if (a.saved) {
            store_run<V>(a.saved.row(k, g, r) + col, v[0]);
#pragma unroll
            for (int i = 0; i < V; ++i) v[0][i] = rounded(v[0][i], at.v);
        }
        if constexpr (V == 1) v[0][0] = norm.gamma * v[0][0] + norm.beta;
        activate_run<T>(v, a.p.activation);
        drop_runs(key, rule, (static_cast<std::uint64_t>(g) * a.rows + r) * a.cols + col, 0, V % 4 == 0, v);
        store_run<V>(a.y.row(k, g, r) + col, v[0]);
    };
    over_rows<Run<T, V>>(a.rows, a.chunk_rows, load, use);
}

/// dz and, unless `partial` is null, its sums over each chunk of rows.
template <class T, int V>
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
        if (a.p.activation != Activation::none) at.saved = load_as_stored<V>(a.saved.row(k, g, r) + col);
    };
    const auto use = [&](int r, const Values& at) {
        float d[1][V];
        load_run<V>(at.dy.v, d[0]);
        if (a.p.activation != Activation::none) {
            float u[1][V];
            load_run<V>(at.saved.v, u[0]);
            slope_run<T>(d, u, a.p.activation);
        }
        drop_runs(key, rule, (static_cast<std::uint64_t>(g) * a.rows + r) * a.cols + col, 0, V % 4 == 0, d);
        store_run<V>(a.dz.row(k, g, r) + col, d[0]);
#pragma unroll
        for (int i = 0; i < V; ++i) sum[i] += d[0][i];
    };
    if (col < a.cols) over_rows<Values>(a.rows, chunk_rows, load, use);
    if (partial) column_sums::put_partial<V>(partial, a.cols, sum);
}

template <class T, int V>
KernelResult make_forward(Context& c, const Bound& b, const Operand& z) {
    const Operand& y = b[dense_forward::y];
    const Plan p = column_sums::plan_for(y.rows, y.cols, V, 1, y.rows);
    const RowsForward<T> a{layer_forward<T>(b), z, y.g, y.rows, y.cols, p.chunk_rows};
    return make_launch(c, rows_forward_kernel<T, V>, dim3(p.chunks, p.wide, y.k * y.g), dim3(p.lanes, p.height), 0, a);
}

template <class T, int V>
KernelResult make_backward(Context& c, const Bound& b) {
    using namespace dense_backward;
    const Operand& out = b[dz];
    const RowsBackward<T> a{layer_backward<T>(b), out.g, out.rows, out.cols};
    const column_sums::Target bias{b[dbias], 0, a.add_dbias};
    const auto chunks = [a, stream = c.stream](dim3 grid, dim3 block, const Plan& p, float* partial) {
        launch(rows_backward_kernel<T, V>, grid, block, 0, stream, a, partial, p.chunk_rows);
    };
    return column_sums::make_sums(c, out, V, std::span(&bias, b[dbias].present() ? 1 : 0), chunks);
}

/// The rest of a dense_forward without batch statistics behind its product z, which is in the memory of `saved` or y.
KernelResult make_rows_epilogue(Context& c, const Bound& b, const Operand& z) {
    using namespace dense_forward;
    return by_real(b[y].dtype, [&]<class T>(T) {
        const bool whole = b[y].cols % kRun<T> == 0 && whole_runs(b[y]) && whole_runs(b[saved]);
        const bool runs = whole && b.params<DenseParams>().norm == Norm::none;
        return runs ? make_forward<T, kRun<T>>(c, b, z) : make_forward<T, 1>(c, b, z);
    });
}

/// dense_backward without batch statistics, of any number of columns.
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

/// dense_forward with batch statistics: its product in f32, then those.
KernelResult make_batch_forward(Context& c, const Bound& b) {
    using namespace dense_forward;
    Operand z;
    MILLRACE_LET(memory, batch_norm::make_product_memory(c, b[y], z));
    MILLRACE_LET(product, make_product(c, Product::forward, b[x], b[w], z, false));
    MILLRACE_LET(norm, batch_norm::make_forward(c, b, z));
    return in_order({std::move(product), std::move(norm)}, memory);
}

/// Whether the library's product is the whole layer.
bool adds_only_bias(const Context& c, const Bound& b) {
    using namespace dense_forward;
    const auto& p = b.params<DenseParams>();
    const bool strict_or_tf32 = b[y].dtype == tensor::DType::f32 && b[x].dtype == b[y].dtype && b[w].dtype == b[y].dtype;
    return strict_or_tf32 && p.norm == Norm::none && p.activation == Activation::none && p.dropout <= 0 && !c.deterministic &&
           b[bias].present() && !b[saved].present() && b[y].k * b[y].g == 1 && b[x].cols > 0 &&
           reinterpret_cast<std::uintptr_t>(b[bias].data) % 16 == 0;
}

KernelResult make_plain_forward(Context& c, const Bound& b) {
    using namespace dense_forward;
    const Operand& oy = b[y];
    if (oy.count() == 0) return make_kernel([] {});
    if (b.params<DenseParams>().norm == Norm::batch_train) return make_batch_forward(c, b);
    if (adds_only_bias(c, b))
        if (KernelPtr whole = make_biased_product(c, b[x], b[w], b[bias], oy)) return KernelResult(std::move(whole));
    const Operand& z = b[saved].present() ? b[saved] : oy;
    MILLRACE_LET(product, make_product(c, Product::forward, b[x], b[w], z, false));
    const auto& p = b.params<DenseParams>();
    const bool only_product =
        p.norm == Norm::none && p.activation == Activation::none && p.dropout <= 0 && !b[bias].present() && z.data == oy.data;
    if (only_product) return KernelResult(std::move(product));
    MILLRACE_LET(epilogue, make_rows_epilogue(c, b, z));
    return in_order({std::move(product), std::move(epilogue)});
}

/// A product of the library, then what follows it.
double library_time(const Context& c, const Bound& b) {
    using namespace dense_forward;
    const double elements = static_cast<double>(b[y].count()), size = static_cast<double>(tensor::size_of(b[y].dtype));
    const double product = library_product_time(c, b[y], b[x].cols, b[x].dtype);
    if (adds_only_bias(c, b)) return product;
    const int values = b[saved].present() ? 3 : 2;
    if (b.params<DenseParams>().norm != Norm::batch_train) return product + pass_time(values * size * elements);
    return product + statistics_time(4 * elements) + statistics_time((4 + 2 * size) * elements);
}

constexpr Form kForwardForms[] = {
    {"tiles", one<tiled::refuses_forward>, one<tiled::forward_time>, one<tiled::make_forward>},
    {"strips", one<refuses_strips>, one<strips_forward_time>, one<make_fused_dense_forward>},
    {"library", refuses_nothing, one<library_time>, one<make_plain_forward>},
};

}  // namespace

KernelResult make_dense_forward(Context& c, const Bound& b) {
    return make_form(c, "dense_forward", kForwardForms, std::span(&b, 1));
}

KernelResult make_dense_backward(Context& c, const Bound& b) {
    if (fuses_backward(c, nullptr, &b)) return make_fused_backward(c, nullptr, &b);
    using namespace dense_backward;
    if (b[dz].k * b[dz].g * b[dz].cols == 0) return make_kernel([] {});
    return b.params<DenseParams>().norm == Norm::batch_train ? batch_norm::make_backward(c, b) : make_rows_backward(c, b);
}

}  // namespace millrace::ops::cuda
