// Which convolutions the kernels along one column do.

#include "models/leak_cnn/ops/lines.cuh"
#include "ops/rewrite.h"

namespace millrace::ops::cuda {
namespace {

constexpr int kSumElements = 32, kSumParts = 8;

/// dw and dbias: each element's slabs in kSumParts parts, and these in order.
__global__ void line_sums_kernel(ConvParams p, WeightSums sums, int members, Mat<float> dw, Mat<float> dbias, bool add_dw,
                                 bool add_dbias) {
    begin_kernel();
    __shared__ float parts[kSumParts][kSumElements];
    const int k = blockIdx.y, i = blockIdx.x * kSumElements + threadIdx.x, all = (sums.depth + 1) * p.out;
    float sum = 0;
#pragma unroll 4
    for (int slab = threadIdx.y; slab < sums.slabs && i < all; slab += kSumParts) sum += __ldcg(sums.at(p, members, slab, k) + i);
    parts[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || i >= all) return;
    for (int part = 1; part < kSumParts; ++part) sum += parts[part][threadIdx.x];
    const int o = i % p.out, d = i / p.out;
    if (d == sums.depth) {
        float* to = dbias.row(k, 0, 0) + o;
        if (dbias) *to = add_dbias ? *to + sum : sum;
        return;
    }
    const LiveTaps taps_h(p.height, p.kernel_h), taps_w(p.width, p.kernel_w);
    const int tap = d / p.in, live_h = taps_h.first + tap / taps_w.count, live_w = taps_w.first + tap % taps_w.count;
    float* to = dw.row(k, 0, o) + std::int64_t{d % p.in} * p.kernel_h * p.kernel_w;
    float* live = to + live_h * p.kernel_w + live_w;
    *live = add_dw ? *live + sum : sum;
    if (tap > 0 || add_dw) return;
    for (int h = 0; h < p.kernel_h; ++h)  // taps that meet nothing but the outside
        for (int w = 0; w < p.kernel_w; ++w)
            if (h < taps_h.first || h >= taps_h.first + taps_h.count || w < taps_w.first || w >= taps_w.first + taps_w.count)
                to[h * p.kernel_w + w] = 0;
}

Match match_lines(const Context& c, const tensor::Operand& like, const ConvArgs<bf16>& a) {
    const bool fits =
        like.dtype == tensor::DType::bf16 && (takes_first_line(c, a) || (takes_lines(c, a) && has_line_channels(a.p)));
    return Match::first(fits ? 1 : 0);
}

}  // namespace

KernelResult make_conv_forward(Context& c, const Bound& b);
KernelResult make_conv_backward(Context& c, const Bound& b);

Match match_line_forward(const Context& c, const Window& records) {
    return match_lines(c, records[0][conv_forward::y], conv_forward_args<bf16>(records[0]));
}

Match match_line_backward(const Context& c, const Window& records) {
    return match_lines(c, records[0][conv_backward::dy], conv_backward_args<bf16>(records[0]));
}

KernelResult make_line_forward(Context& c, std::span<const Bound> records) {
    const auto a = conv_forward_args<bf16>(records[0]);
    if (takes_first_line(c, a)) return make_first_line_forward(c, a);
    MILLRACE_LET(made, make_line_forward(c, a));
    return made ? KernelResult(std::move(made)) : make_conv_forward(c, records[0]);
}

KernelResult make_line_backward(Context& c, std::span<const Bound> records) {
    using namespace conv_backward;
    const Bound& b = records[0];
    const auto a = conv_backward_args<bf16>(b);
    const bool first = takes_first_line(c, a);
    WeightSums sums;
    sums.depth = LiveTaps(a.p.height, a.p.kernel_h).count * LiveTaps(a.p.width, a.p.kernel_w).count * a.p.in;
    sums.slabs = std::min(first ? first_line_slabs(a.rows) : line_slabs(a.p, a.rows), a.rows);
    const int elements = (sums.depth + 1) * a.p.out;
    MILLRACE_LET(table, zero_table(c, sizeof(float) * std::size_t(sums.slabs) * a.members * elements));
    sums.data = static_cast<float*>(table.get());
    MILLRACE_LET(slabs, first ? make_first_line_backward(c, a, sums) : make_line_backward(c, a, sums));
    if (!slabs) return make_conv_backward(c, b);
    const dim3 grid(blocks_for(elements, kSumElements), static_cast<unsigned>(a.members)), block(kSumElements, kSumParts);
    auto joined = make_launch(c, line_sums_kernel, grid, block, 0, a.p, sums, a.members, b[dw], b[dbias], b.accumulates(dw),
                              b.accumulates(dbias));
    return in_order({std::move(slabs), std::move(joined)}, table);
}

}  // namespace millrace::ops::cuda
