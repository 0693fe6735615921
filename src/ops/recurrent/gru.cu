// The recurrent layer: two products, then one kernel for all gates; in the backward pass one kernel that gives the products of
// the contract what they need.

#include "ops/cuda/context.h"
#include "ops/cuda/vector.cuh"
#include "ops/cuda/weight_copies.h"
#include "ops/recurrent/gates.cuh"
#include "ops/recurrent/gru.h"

namespace millrace::ops::cuda {
namespace {

using tensor::DType;
using tensor::Operand;

constexpr int kRowsPerBlock = 8;  // a warp each
const dim3 kBlock(32, kRowsPerBlock);

/// V consecutive numbers from anywhere.
template <int V>
__device__ void load_bias(const float* from, bool whole, float (&v)[V]) {
    if (whole) return load_run<V>(from, v);
#pragma unroll
    for (int i = 0; i < V; ++i) v[i] = from[i];
}

__device__ float sigmoid(float v) { return 1 / (1 + expf(-v)); }

template <class T>
struct GateArgs {
    Mat<const T> h;
    RowMask rows_taken;
    Mat<const float> b_ih, b_hh, products;
    Mat<T> gates, out;
    int rows, width;
    bool whole_bias;
};

template <class T, int V>
__global__ void gru_gate_kernel(const __grid_constant__ GateArgs<T> a) {
    begin_kernel();
    const int row = static_cast<int>(blockIdx.x * kRowsPerBlock + threadIdx.y), k = blockIdx.z, width = a.width;
    if (row >= a.rows) return;
    const bool live = a.rows_taken.takes_part(k, row);
    const float *from_x = a.products.row(k, 0, row), *from_h = from_x + 3 * static_cast<std::int64_t>(width);
    const float *b_ih = a.b_ih.row(k, 0, 0), *b_hh = a.b_hh.row(k, 0, 0);
    for (int j = static_cast<int>(threadIdx.x) * V; j < width; j += 32 * V) {
        float old[V];
        load_run<V>(a.h.row(k, 0, row) + j, old);
        if (!live) {
            store_run<V>(a.out.row(k, 0, row) + j, old);
            continue;
        }
        /// The sums of gate number `gate` before its function: what comes from x and what from h, each with its bias.
        float x_part[3][V], h_part[3][V];
#pragma unroll
        for (int gate = 0; gate < 3; ++gate) {
            float bias[V];
            load_run<V>(from_x + gate * width + j, x_part[gate]);
            load_bias<V>(b_ih + gate * width + j, a.whole_bias, bias);
#pragma unroll
            for (int i = 0; i < V; ++i) x_part[gate][i] += bias[i];
            load_run<V>(from_h + gate * width + j, h_part[gate]);
            load_bias<V>(b_hh + gate * width + j, a.whole_bias, bias);
#pragma unroll
            for (int i = 0; i < V; ++i) h_part[gate][i] += bias[i];
        }
        float r[V], z[V], n[V], next[V];
#pragma unroll
        for (int i = 0; i < V; ++i) {
            r[i] = sigmoid(x_part[0][i] + h_part[0][i]);
            z[i] = sigmoid(x_part[1][i] + h_part[1][i]);
            n[i] = tanhf(x_part[2][i] + r[i] * h_part[2][i]);
            next[i] = (1 - z[i]) * n[i] + z[i] * old[i];
        }
        store_run<V>(a.out.row(k, 0, row) + j, next);
        if (a.gates) store_gates<V>(a.gates.row(k, 0, row) + j, width, r, z, n, h_part[2]);
    }
}

template <class T>
struct GateBackwardArgs {
    Mat<float> dh;
    Mat<const T> gates, h;
    RowMask rows_taken;
    Mat<T> dgates;
    int rows, width;
    bool empty;  ///< dh holds nothing yet
};

template <class T, int V>
__global__ void gru_backward_kernel(const __grid_constant__ GateBackwardArgs<T> a) {
    begin_kernel();
    const int row = static_cast<int>(blockIdx.x * kRowsPerBlock + threadIdx.y), k = blockIdx.z, width = a.width;
    if (row >= a.rows) return;
    const bool live = a.rows_taken.takes_part(k, row);
    for (int j = static_cast<int>(threadIdx.x) * V; j < width; j += 32 * V) {
        float* target = a.dh.row(k, 0, row) + j;
        float d[V] = {};
        if (!a.empty) load_run<V>(target, d);
        gates_back<V>(live, d, a.gates.row(k, 0, row) + j, a.h.row(k, 0, row) + j, width, a.dgates.row(k, 0, row) + j, target);
    }
}

dim3 row_grid(const Operand& o) { return dim3(blocks_for(o.rows, kRowsPerBlock), 1, o.k); }

/// w as the product takes it fastest: itself, or a copy with `cols` columns that `refresh` brings up to date.
base::Status fit_weights(Context& c, const Operand& w, int cols, Operand& fitted, Kernels& refresh) {
    fitted = w;
    if (w.cols == cols && (w.dtype == DType::f32 || whole_runs(w))) return base::ok();
    return pad_weights(c, w, cols, fitted, refresh);
}

template <class T>
KernelResult make_forward(Context& c, const Bound& b) {
    namespace at = gru_forward;
    const Operand &h = b[at::h], &x = b[at::x], &scratch = b[at::scratch];
    const int width = h.cols;
    Operand w_ih, w_hh, from_x = scratch, from_h = scratch;
    Kernels steps;
    MILLRACE_TRY(fit_weights(c, b[at::w_ih], x.cols, w_ih, steps));
    MILLRACE_TRY(fit_weights(c, b[at::w_hh], width, w_hh, steps));
    from_x.cols = from_h.cols = 3 * width;
    from_h.data = static_cast<float*>(scratch.data) + 3 * static_cast<std::int64_t>(width);
    MILLRACE_LET(first, make_product(c, Product::forward, x, w_ih, from_x, false));
    MILLRACE_LET(second, make_product(c, Product::forward, h, w_hh, from_h, false));
    steps.push_back(std::move(first));
    steps.push_back(std::move(second));

    const bool whole_bias = whole_runs(b[at::b_ih]) && whole_runs(b[at::b_hh]);
    const GateArgs<T> a{
        h,         row_mask(b[at::mask], b[at::flag]), b[at::b_ih], b[at::b_hh], scratch, b[at::gates], b[at::out], h.rows, width,
        whole_bias};
    const bool whole =
        width % 8 == 0 && whole_runs(h) && whole_runs(scratch) && whole_runs(b[at::gates]) && whole_runs(b[at::out]);
    const auto kernel = whole ? gru_gate_kernel<T, 8> : gru_gate_kernel<T, 1>;
    steps.push_back(make_launch(c, kernel, row_grid(h), kBlock, 0, a));
    return in_order(std::move(steps));
}

template <class T>
KernelResult make_backward(Context& c, const Bound& b) {
    namespace at = gru_backward;
    const Operand &h = b[at::h], &dh = b[at::dh];
    bool empty = b.params<GruBackwardParams>().begins;
    Kernels steps;
    for (int i = at::a0; i <= at::a3 && b[i].present(); i += 2) {
        MILLRACE_LET(product, make_product(c, Product::dgrad, b[i], b[i + 1], dh, !empty));
        steps.push_back(std::move(product));
        empty = false;
    }
    const GateBackwardArgs<T> a{dh, b[at::gates], h, row_mask(b[at::mask], b[at::flag]), b[at::dgates], h.rows, h.cols, empty};
    const bool whole =
        h.cols % 8 == 0 && whole_runs(h) && whole_runs(dh) && whole_runs(b[at::gates]) && whole_runs(b[at::dgates]);
    const auto kernel = whole ? gru_backward_kernel<T, 8> : gru_backward_kernel<T, 1>;
    steps.push_back(make_launch(c, kernel, row_grid(h), kBlock, 0, a));
    return in_order(std::move(steps));
}

}  // namespace

KernelResult make_gru_forward(Context& c, const Bound& b) {
    const Operand& h = b[gru_forward::h];
    if (c.fuse && tiles_gru_forward(c, b)) return make_tiled_gru_forward(c, b);
    return by_real(h.dtype, [&]<class T>(T) { return make_forward<T>(c, b); });
}

KernelResult make_gru_backward(Context& c, const Bound& b) {
    const Operand& h = b[gru_backward::h];
    if (c.fuse && tiles_gru_backward(c, b)) return make_tiled_gru_backward(c, b);
    return by_real(h.dtype, [&]<class T>(T) { return make_backward<T>(c, b); });
}

}  // namespace millrace::ops::cuda
