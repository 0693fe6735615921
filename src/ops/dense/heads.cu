// Heads over very many rows: a layer with an activation followed by one with at most four outputs. What comes behind the first
// layer's product is a matter of bandwidth, so that both heads of a state share one launch forward and one back.

#include "ops/cuda/context.h"
#include "ops/cuda/vector.cuh"
#include "ops/dense/dense.h"

namespace millrace::ops::cuda {
namespace {

using tensor::DType;
using tensor::Operand;

constexpr int kMostOutputs = 4, kMostHeads = 2, kThreads = 256, kRun = 8;

template <class T>
struct Head {
    Mat<T> z;  ///< the product, in the memory of saved or y
    Mat<const float> bias, out_bias;
    Mat<T> saved, y, out;  ///< saved may be absent
    Mat<const T> w;        ///< of the second layer
    int cols, outputs, lanes;
    unsigned begin;  ///< its first block
    Activation activation;
};

template <class T>
struct HeadArgs {
    Head<T> heads[kMostHeads];
    int count, rows;
};

__device__ inline float activate_fast(float u, Activation a) {
    if (a != Activation::gelu) return activate(u, a);
    float value, slope;
    gelu_and_slope(u, value, slope);
    return value;
}
__device__ inline float slope_fast(float u, Activation a) {
    if (a != Activation::gelu) return activation_slope(u, a);
    float value, slope;
    gelu_and_slope(u, value, slope);
    return slope;
}

/// Bias, activation and the second layer; `lanes` neighbouring threads take a row.
template <class T>
__global__ void __launch_bounds__(kThreads) head_forward_kernel(const __grid_constant__ HeadArgs<T> a) {
    begin_kernel();
    const Head<T>& h = a.heads[a.count > 1 && blockIdx.x >= a.heads[1].begin ? 1 : 0];
    const int k = blockIdx.z, lane = static_cast<int>(threadIdx.x) % h.lanes;
    const int row = static_cast<int>(((blockIdx.x - h.begin) * kThreads + threadIdx.x) / static_cast<unsigned>(h.lanes));
    const bool valid = row < a.rows;
    float sum[kMostOutputs] = {};
    for (int c = lane * kRun; valid && c < h.cols; c += h.lanes * kRun) {
        float v[kRun];
        load_run<kRun>(h.z.row(k, 0, row) + c, v);
#pragma unroll
        for (int i = 0; i < kRun; ++i) {
            v[i] += h.bias ? h.bias.row(k, 0, 0)[c + i] : 0.0f;
            if (h.saved) v[i] = rounded(v[i], static_cast<const T*>(nullptr));
        }
        if (h.saved) store_run<kRun>(h.saved.row(k, 0, row) + c, v);
#pragma unroll
        for (int i = 0; i < kRun; ++i) v[i] = rounded(activate_fast(v[i], h.activation), static_cast<const T*>(nullptr));
        store_run<kRun>(h.y.row(k, 0, row) + c, v);
#pragma unroll
        for (int o = 0; o < kMostOutputs; ++o)
            if (o < h.outputs) {
                float w[kRun];
                load_run<kRun>(h.w.row(k, 0, o) + c, w);
#pragma unroll
                for (int i = 0; i < kRun; ++i) sum[o] += w[i] * v[i];
            }
    }
#pragma unroll
    for (int o = 0; o < kMostOutputs; ++o) {
        if (o >= h.outputs) break;
        for (int d = h.lanes / 2; d > 0; d /= 2) sum[o] += __shfl_xor_sync(0xffffffffu, sum[o], d);
        if (valid && lane == 0) store(h.out.row(k, 0, row) + o, sum[o] + (h.out_bias ? h.out_bias.row(k, 0, 0)[o] : 0.0f));
    }
}

template <class T>
struct HeadBack {
    Mat<const T> du, w, saved;
    Mat<T> dz;
    int runs, outputs;  ///< runs of eight columns in a row
    unsigned begin;
    Activation activation;
};

template <class T>
struct HeadBackArgs {
    HeadBack<T> heads[kMostHeads];
    int count, rows;
};

/// dz = (du w) act'(saved), a thread per run of columns.
template <class T>
__global__ void __launch_bounds__(kThreads) head_backward_kernel(const __grid_constant__ HeadBackArgs<T> a) {
    begin_kernel();
    const HeadBack<T>& h = a.heads[a.count > 1 && blockIdx.x >= a.heads[1].begin ? 1 : 0];
    const std::int64_t index = static_cast<std::int64_t>(blockIdx.x - h.begin) * kThreads + threadIdx.x;
    const int k = blockIdx.z, row = static_cast<int>(index / h.runs), c = static_cast<int>(index % h.runs) * kRun;
    if (row >= a.rows) return;
    float d[kRun] = {}, u[kRun];
    load_run<kRun>(h.saved.row(k, 0, row) + c, u);
#pragma unroll
    for (int o = 0; o < kMostOutputs; ++o)
        if (o < h.outputs) {
            const float from = load(h.du.row(k, 0, row) + o);
            float w[kRun];
            load_run<kRun>(h.w.row(k, 0, o) + c, w);
#pragma unroll
            for (int i = 0; i < kRun; ++i) d[i] += from * w[i];
        }
#pragma unroll
    for (int i = 0; i < kRun; ++i) d[i] *= slope_fast(u[i], h.activation);
    store_run<kRun>(h.dz.row(k, 0, row) + c, d);
}

bool same_place(const Operand& a, const Operand& b) {
    return a.data == b.data && a.k == b.k && a.g == b.g && a.rows == b.rows && a.cols == b.cols && a.stride_row == b.stride_row &&
           (a.k <= 1 || a.stride_k == b.stride_k);
}

bool is_plain(const DenseParams& p) { return p.norm == Norm::none && p.dropout == 0; }

bool is_head(const Context& c, const Bound& in, const Bound& out) {
    using namespace dense_forward;
    if (in.record->op != &dense_forward::kDef || out.record->op != &dense_forward::kDef) return false;
    const Operand &between = in[y], &narrow = out[y];
    if (c.deterministic || between.g != 1 || between.rows < c.library_rows || narrow.rows != between.rows ||
        narrow.dtype != between.dtype || narrow.cols < 1 || narrow.cols > kMostOutputs || between.cols < 64 ||
        between.cols % kRun != 0)
        return false;
    if (!is_plain(in.params<DenseParams>()) || !is_plain(out.params<DenseParams>()) ||
        out.params<DenseParams>().activation != Activation::none || out[saved].present() || !same_place(between, out[x]))
        return false;
    return whole_runs(in[x]) && whole_runs(in[w]) && whole_runs(between) && whole_runs(in[saved]) && whole_runs(out[w]);
}

bool is_head_back(const Context& c, const Bound& dgrad, const Bound& backward) {
    namespace at = dense_backward;
    if (dgrad.record->op != &linear_dgrad::kDef || backward.record->op != &dense_backward::kDef) return false;
    const Operand &du = dgrad[linear_dgrad::dz], &between = dgrad[linear_dgrad::dx], &dz = backward[at::dz];
    if (!is_narrow(c, du) || du.g != 1 || dgrad.accumulates(linear_dgrad::dx) || between.dtype != du.dtype ||
        between.cols != dgrad[linear_dgrad::w].cols || between.cols < 1 || between.cols % kRun != 0 ||
        !same_place(between, backward[at::dy]) || !same_place(between, dz))
        return false;
    if (!is_plain(backward.params<DenseParams>()) || backward[at::dbias].present() || !backward[at::saved].present())
        return false;
    return whole_runs(dgrad[linear_dgrad::w]) && whole_runs(backward[at::saved]) && whole_runs(dz);
}

/// Records of up to two pairs of the same shape of rows that stand side by side.
template <class Pair>
std::size_t count_pairs(const Context& c, std::span<const Bound> records, int rows_of_slot, Pair is_pair) {
    std::size_t count = 0;
    while (count / 2 < kMostHeads && count + 1 < records.size() && is_pair(c, records[count], records[count + 1])) {
        const Operand &first = records[0][rows_of_slot], &here = records[count][rows_of_slot];
        if (first.rows != here.rows || first.k != here.k || first.dtype != here.dtype) break;
        count += 2;
    }
    return count;
}

}  // namespace

Match match_heads_forward(const Context& c, const Window& records) {
    return Match::first(count_pairs(c, records, dense_forward::y, is_head));
}

Match match_heads_backward(const Context& c, const Window& records) {
    return Match::first(count_pairs(c, records, linear_dgrad::dz, is_head_back));
}

KernelResult make_heads_forward(Context& c, std::span<const Bound> records) {
    using namespace dense_forward;
    const Operand& first = records[0][y];
    return by_real(first.dtype, [&]<class T>(T) -> KernelResult {
        HeadArgs<T> a{};
        a.rows = first.rows;
        unsigned blocks = 0;
        std::vector<std::shared_ptr<Kernel>> products;
        for (std::size_t r = 0; r < records.size(); r += 2) {
            const Bound &in = records[r], &out = records[r + 1];
            const Operand& z = in[saved].present() ? in[saved] : in[y];
            MILLRACE_LET(product, make_product(c, Product::forward, in[x], in[w], z, false));
            products.push_back(std::move(product));
            int lanes = 1;
            while (lanes < 32 && lanes * kRun < z.cols) lanes *= 2;
            a.heads[a.count++] = {z,      in[bias], out[bias],   in[saved], in[y],  out[y],
                                  out[w], z.cols,   out[y].cols, lanes,     blocks, in.params<DenseParams>().activation};
            blocks += blocks_for(z.rows, kThreads / lanes);
        }
        return make_kernel([stream = c.stream, products, a, grid = dim3(blocks, 1, first.k)] {
            for (const auto& product : products) product->run();
            launch(head_forward_kernel<T>, grid, dim3(kThreads), 0, stream, a);
        });
    });
}

KernelResult make_heads_backward(Context& c, std::span<const Bound> records) {
    const Operand& first = records[0][linear_dgrad::dz];
    return by_real(first.dtype, [&]<class T>(T) -> KernelResult {
        HeadBackArgs<T> a{};
        a.rows = first.rows;
        unsigned blocks = 0;
        for (std::size_t r = 0; r < records.size(); r += 2) {
            const Bound &dgrad = records[r], &back = records[r + 1];
            const Operand& dz = back[dense_backward::dz];
            a.heads[a.count++] = {dgrad[linear_dgrad::dz],
                                  dgrad[linear_dgrad::w],
                                  back[dense_backward::saved],
                                  dz,
                                  dz.cols / kRun,
                                  dgrad[linear_dgrad::dz].cols,
                                  blocks,
                                  back.params<DenseParams>().activation};
            blocks += blocks_for(std::int64_t{dz.rows} * (dz.cols / kRun), kThreads);
        }
        return make_launch(c, head_backward_kernel<T>, dim3(blocks, 1, first.k), dim3(kThreads), 0, a);
    });
}

}  // namespace millrace::ops::cuda
