// Heads over very many rows: a layer with an activation followed by one with at most four outputs. What comes behind the first
// layer's product is a matter of bandwidth, so that both heads of a state share one launch forward and one back. The gradient of
// such a layer's input alone is the same kernel.

#include "ops/cuda/activation.cuh"
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
        float v[1][kRun];
        load_run<kRun>(h.z.row(k, 0, row) + c, v[0]);
#pragma unroll
        for (int i = 0; i < kRun; ++i) {
            v[0][i] += h.bias ? h.bias.row(k, 0, 0)[c + i] : 0.0f;
            if (h.saved) v[0][i] = rounded(v[0][i], static_cast<const T*>(nullptr));
        }
        if (h.saved) store_run<kRun>(h.saved.row(k, 0, row) + c, v[0]);
        activate_run<T>(v, h.activation);
#pragma unroll
        for (int i = 0; i < kRun; ++i) v[0][i] = rounded(v[0][i], static_cast<const T*>(nullptr));
        store_run<kRun>(h.y.row(k, 0, row) + c, v[0]);
#pragma unroll
        for (int o = 0; o < kMostOutputs; ++o)
            if (o < h.outputs) {
                float w[kRun];
                load_run<kRun>(h.w.row(k, 0, o) + c, w);
#pragma unroll
                for (int i = 0; i < kRun; ++i) sum[o] += w[i] * v[0][i];
            }
    }
#pragma unroll
    for (int o = 0; o < kMostOutputs; ++o) {
        if (o >= h.outputs) break;
        for (int d = h.lanes / 2; d > 0; d /= 2) sum[o] += __shfl_xor_sync(0xffffffffu, sum[o], d);
        if (valid && lane == 0) store(h.out.row(k, 0, row) + o, sum[o] + (h.out_bias ? h.out_bias.row(k, 0, 0)[o] : 0.0f));
    }
}

template <class T, class Out>
struct HeadBack {
    Mat<const T> du, w, saved;  ///< saved may be absent
    Mat<Out> dz;
    int runs, outputs;  ///< runs of columns in a row
    unsigned begin;
    Activation activation;
    bool add;
};

template <class T, class Out>
struct HeadBackArgs {
    HeadBack<T, Out> heads[kMostHeads];
    int count, rows, groups;
};

/// dz (+)= (du w) act'(saved), a thread per run of V columns.
template <class T, class Out, int V>
__global__ void __launch_bounds__(kThreads) head_backward_kernel(const __grid_constant__ HeadBackArgs<T, Out> a) {
    begin_kernel();
    const HeadBack<T, Out>& h = a.heads[a.count > 1 && blockIdx.x >= a.heads[1].begin ? 1 : 0];
    const std::int64_t index = static_cast<std::int64_t>(blockIdx.x - h.begin) * kThreads + threadIdx.x;
    const int row = static_cast<int>(index / h.runs), c = static_cast<int>(index % h.runs) * V;
    const int k = blockIdx.z / a.groups, g = blockIdx.z % a.groups;
    if (row >= a.rows) return;
    Out* to = h.dz.row(k, g, row) + c;
    float d[1][V] = {}, u[1][V] = {};
    if (h.add) load_run<V>(to, d[0]);
    if (h.saved) load_run<V>(h.saved.row(k, g, row) + c, u[0]);
#pragma unroll
    for (int o = 0; o < kMostOutputs; ++o)
        if (o < h.outputs) {
            const float from = load(h.du.row(k, g, row) + o);
            float w[V];
            load_run<V>(h.w.row(k, g, o) + c, w);
#pragma unroll
            for (int i = 0; i < V; ++i) d[0][i] += from * w[i];
        }
    slope_run<T>(d, u, h.activation);
    store_run<V>(to, d[0]);
}

template <class T, class Out, int V>
KernelResult make_narrow(Context& c, const Operand& dz, const Operand& w, const Operand& dx, bool accumulate) {
    HeadBackArgs<T, Out> a{};
    a.heads[0] = {dz, w, {}, dx, dx.cols / V, dz.cols, 0, Activation::none, accumulate};
    a.count = 1;
    a.rows = dx.rows;
    a.groups = dx.g;
    const dim3 grid(blocks_for(std::int64_t{dx.rows} * a.heads[0].runs, kThreads), 1, dx.k * dx.g);
    return make_launch(c, head_backward_kernel<T, Out, V>, grid, dim3(kThreads), 0, a);
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

bool is_narrow(const Context& c, const Operand& dz) {
    return dz.rows >= c.library_rows && dz.cols > 0 && dz.cols <= kMostOutputs;
}

KernelResult make_narrow_dgrad(Context& c, const Operand& dz, const Operand& w, const Operand& dx, bool accumulate) {
    if (dx.count() == 0) return make_kernel([] {});
    const bool whole = dx.cols % kRun == 0 && whole_runs(w) && whole_runs(dx);
    return by_real(dz.dtype, [&]<class T>(T) -> KernelResult {
        if (dx.dtype == DType::f32)
            return whole ? make_narrow<T, float, kRun>(c, dz, w, dx, accumulate)
                         : make_narrow<T, float, 1>(c, dz, w, dx, accumulate);
        return whole ? make_narrow<T, T, kRun>(c, dz, w, dx, accumulate) : make_narrow<T, T, 1>(c, dz, w, dx, accumulate);
    });
}

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
        Kernels steps;
        for (std::size_t r = 0; r < records.size(); r += 2) {
            const Bound &in = records[r], &out = records[r + 1];
            const Operand& z = in[saved].present() ? in[saved] : in[y];
            MILLRACE_LET(product, make_product(c, Product::forward, in[x], in[w], z, false));
            steps.push_back(std::move(product));
            int lanes = 1;
            while (lanes < 32 && lanes * kRun < z.cols) lanes *= 2;
            a.heads[a.count++] = {z,      in[bias], out[bias],   in[saved], in[y],  out[y],
                                  out[w], z.cols,   out[y].cols, lanes,     blocks, in.params<DenseParams>().activation};
            blocks += blocks_for(z.rows, kThreads / lanes);
        }
        steps.push_back(make_launch(c, head_forward_kernel<T>, dim3(blocks, 1, first.k), dim3(kThreads), 0, a));
        return in_order(std::move(steps));
    });
}

KernelResult make_heads_backward(Context& c, std::span<const Bound> records) {
    const Operand& first = records[0][linear_dgrad::dz];
    return by_real(first.dtype, [&]<class T>(T) -> KernelResult {
        HeadBackArgs<T, T> a{};
        a.rows = first.rows;
        a.groups = 1;
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
                                  back.params<DenseParams>().activation,
                                  false};
            blocks += blocks_for(std::int64_t{dz.rows} * (dz.cols / kRun), kThreads);
        }
        return make_launch(c, head_backward_kernel<T, T, kRun>, dim3(blocks, 1, first.k), dim3(kThreads), 0, a);
    });
}

}  // namespace millrace::ops::cuda
