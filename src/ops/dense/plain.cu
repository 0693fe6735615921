// The dense layer as separate launches: a product, then one kernel for norm, activation and dropout (rows.cu where there is no
// norm and rows are whole). Any element type, any batch.

#include "ops/cuda/context.h"
#include "ops/cuda/forms.h"
#include "ops/dense/batch_norm.cuh"
#include "ops/dense/fused.h"
#include "ops/dense/layer_args.cuh"
#include "ops/dense/rows.h"
#include "ops/dense/tiled.h"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

constexpr int kLanes = 32, kRows = 8;  // a block: 32 columns, 8 rows at a time

template <class T>
struct EpilogueArgs : LayerForward<T> {
    Mat<T> z;  ///< the product, in the memory of saved or y
    int groups, rows, cols, row_tile;
};

template <class T>
__global__ void epilogue_kernel(const __grid_constant__ EpilogueArgs<T> a) {
    begin_kernel();
    const int k = blockIdx.z / a.groups, g = blockIdx.z % a.groups, col = blockIdx.x * kLanes + threadIdx.x;
    const bool valid = col < a.cols;
    const float bias = valid && a.bias ? a.bias.row(k, g, 0)[col] : 0;
    float mean = 0, inv = 1, gamma = 1, beta = 0;
    if (!valid) return;
    if (a.p.norm == Norm::batch_eval) {
        mean = a.running_mean.row(k, g, 0)[col];
        inv = 1 / sqrtf(a.running_var.row(k, g, 0)[col] + a.p.eps);
    }
    if (a.p.norm != Norm::none) {
        gamma = a.gamma.row(k, g, 0)[col];
        beta = a.beta.row(k, g, 0)[col];
    }
    const DropoutKey key = dropout_key({a.p.dropout, a.p.op_number}, a.state, k);
    const int end = min(a.rows, static_cast<int>(blockIdx.y + 1) * a.row_tile);
    for (int r = blockIdx.y * a.row_tile + threadIdx.y; r < end; r += kRows) {
        float v = (load(a.z.row(k, g, r) + col) + bias - mean) * inv;
        if (a.saved) {
            v = rounded(v, static_cast<const T*>(nullptr));
            store(a.saved.row(k, g, r) + col, v);
        }
        const float u = a.p.norm == Norm::none ? v : gamma * v + beta;
        const std::uint64_t element = (static_cast<std::uint64_t>(g) * a.rows + r) * a.cols + col;
        store(a.y.row(k, g, r) + col, activate(u, a.p.activation) * dropout_factor(key, element));
    }
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

template <class T>
KernelResult make_plain_forward(Context& c, const Bound& b) {
    using namespace dense_forward;
    const Operand& oy = b[y];
    if (oy.count() == 0) return make_kernel([] {});
    if (b.params<DenseParams>().norm == Norm::batch_train) return make_batch_forward(c, b);
    const Operand& z = b[saved].present() ? b[saved] : oy;
    MILLRACE_LET(product, make_product(c, Product::forward, b[x], b[w], z, false));
    const auto& p = b.params<DenseParams>();
    const bool only_product =
        p.norm == Norm::none && p.activation == Activation::none && p.dropout <= 0 && !b[bias].present() && z.data == oy.data;
    if (only_product) return KernelResult(std::move(product));
    if (has_rows_epilogue(b)) {
        MILLRACE_LET(epilogue, make_rows_epilogue(c, b, z));
        return in_order({std::move(product), std::move(epilogue)});
    }
    constexpr int row_tile = 64;
    const EpilogueArgs<T> a{layer_forward<T>(b), z, oy.g, oy.rows, oy.cols, row_tile};
    const dim3 grid(blocks_for(oy.cols, kLanes), blocks_for(oy.rows, row_tile), oy.k * oy.g);
    return in_order({std::move(product), make_launch(c, epilogue_kernel<T>, grid, dim3(kLanes, kRows), 0, a)});
}

/// A product of the library, then what follows it.
double library_time(const Context& c, std::span<const Bound> records) {
    using namespace dense_forward;
    const Bound& b = records.front();
    const double elements = static_cast<double>(b[y].count()), size = static_cast<double>(tensor::size_of(b[y].dtype));
    const double product = library_product_time(c, b[y], b[x].cols, b[x].dtype);
    const int values = b[saved].present() ? 3 : 2;
    if (b.params<DenseParams>().norm != Norm::batch_train) return product + pass_time(values * size * elements);
    return product + statistics_time(4 * elements) + statistics_time((4 + 2 * size) * elements);
}

constexpr Form kForwardForms[] = {
    {"tiles", [](const Context& c, std::span<const Bound> r) { return tiled::refuses_forward(c, r.front()); },
     [](const Context& c, std::span<const Bound> r) { return tiled::forward_time(c, r.front()); },
     [](Context& c, std::span<const Bound> r) { return tiled::make_forward(c, r.front()); }},
    {"strips",
     [](const Context& c, std::span<const Bound> r) {
         return fuses_dense_forward(c, r.front()) ? nullptr : "types differ, or more rows than blocks can sum over";
     },
     [](const Context& c, std::span<const Bound> r) { return strips_forward_time(c, r.front()); },
     [](Context& c, std::span<const Bound> r) { return make_fused_dense_forward(c, r.front()); }},
    {"library", [](const Context&, std::span<const Bound>) -> const char* { return nullptr; }, library_time,
     [](Context& c, std::span<const Bound> r) {
         return by_real(r.front()[dense_forward::y].dtype, [&]<class T>(T) { return make_plain_forward<T>(c, r.front()); });
     }},
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
