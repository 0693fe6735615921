// Tokens and positions become vectors; the mean over positions and back.

#include "ops/text/embed.cuh"
#include "ops/text/text.h"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

constexpr int kRows = 16;  ///< rows of a block

/// One block per kRows rows of y and tile of columns.
template <class T, int W>
__global__ void __launch_bounds__(kLanes* kRows)
    embed_kernel(Mat<const float> table, Mat<const float> position, Mat<const T> before, Mat<const std::int32_t> ids,
                 Mat<const std::int32_t> lengths, States state, Mat<T> y, EmbedShape shape, int vocabulary) {
    begin_kernel();
    const int row = blockIdx.x * kRows + threadIdx.y, k = blockIdx.z, c = (blockIdx.y * kLanes + threadIdx.x) * W;
    if (row >= shape.sequences * shape.positions() || c >= shape.cols) return;
    const int sequence = row / shape.positions(), at = row % shape.positions(), t = at - shape.prefix;
    const std::int32_t id = t >= 0 ? ids.row(k, 0, sequence)[t] : 0;  // read at once: it does not wait for the length
    float v[W] = {}, where[W];
    if (at < shape.prefix + tokens_of(lengths, k, sequence, shape.tokens)) {
        load_run(position.row(k, 0, at) + c, where);
        if (t < 0)
            load_run(before.row(k, 0, sequence) + at * shape.cols + c, v);
        else if (id >= 0 && id < vocabulary)
            load_run(table.row(k, 0, id) + c, v);
        else if (c == 0)
            atomicOr(&state[k].nonfinite, 1u);
        add_run(v, where);
    }
    store_run(y.row(k, 0, row) + c, v);
}

/// One block per sequence and 64 columns.
template <class T>
__global__ void mean_kernel(Mat<const T> x, Mat<const std::int32_t> lengths, Mat<T> y, int positions, int prefix, int cols) {
    begin_kernel();
    const int sequence = blockIdx.x, k = blockIdx.z, c = blockIdx.y * 64 + threadIdx.x;
    if (c >= cols) return;
    const int filled = prefix + tokens_of(lengths, k, sequence, positions - prefix);
    float sum = 0;
    for (int at = 0; at < filled; ++at) sum += load(x.row(k, 0, std::int64_t{sequence} * positions + at) + c);
    store(y.row(k, 0, sequence) + c, filled > 0 ? sum / static_cast<float>(filled) : 0.0f);
}

/// One block per row of dx.
template <class T>
__global__ void mean_backward_kernel(Mat<const T> dy, Mat<const std::int32_t> lengths, Mat<T> dx, int positions, int prefix,
                                     int cols, bool accumulate) {
    begin_kernel();
    const int row = blockIdx.x, k = blockIdx.z, sequence = row / positions;
    const int filled = prefix + tokens_of(lengths, k, sequence, positions - prefix);
    const float share = row % positions < filled ? 1 / static_cast<float>(filled) : 0;
    if (share == 0 && accumulate) return;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        const float v = share == 0 ? 0 : load(dy.row(k, 0, sequence) + c) * share;
        put(dx.row(k, 0, row) + c, v, accumulate);
    }
}

}  // namespace

KernelResult make_token_embed(Context& c, const Bound& b) {
    namespace at = token_embed;
    const Operand &t = b[at::table], &p = b[at::position], &before = b[at::before], &ids = b[at::ids], &l = b[at::lengths],
                  &s = b[at::state], &y = b[at::y];
    const EmbedShape shape{l.rows, ids.cols, b.params<TokenParams>().prefix, y.cols};
    if (y.count() == 0) return make_kernel([] {});
    return by_width(y.dtype, y.cols, {t, p, before, y}, [&]<class T, int W>(T, std::integral_constant<int, W>) -> KernelResult {
        return make_launch(c, embed_kernel<T, W>, dim3(blocks_for(y.rows, kRows), column_tiles(y.cols, W), y.k),
                           dim3(kLanes, kRows), 0, t, p, before, ids, l, s, y, shape, t.rows);
    });
}

KernelResult make_masked_mean(Context& c, const Bound& b) {
    namespace at = masked_mean;
    const Operand &x = b[at::x], &l = b[at::lengths], &y = b[at::y];
    const int prefix = b.params<TokenParams>().prefix, positions = positions_of(x, l);
    if (y.count() == 0) return make_kernel([] {});
    return by_real(y.dtype, [&]<class T>(T) {
        return make_launch(c, mean_kernel<T>, dim3(y.rows, blocks_for(y.cols, 64), y.k), dim3(64), 0, x, l, y, positions, prefix,
                           y.cols);
    });
}

KernelResult make_masked_mean_backward(Context& c, const Bound& b) {
    namespace at = masked_mean_backward;
    const Operand &dy = b[at::dy], &l = b[at::lengths], &dx = b[at::dx];
    const int prefix = b.params<TokenParams>().prefix, positions = positions_of(dx, l);
    if (dx.count() == 0) return make_kernel([] {});
    return by_real(dx.dtype, [&]<class T>(T) {
        return make_launch(c, mean_backward_kernel<T>, dim3(dx.rows, 1, dx.k), dim3(128), 0, dy, l, dx, positions, prefix,
                           dx.cols, b.accumulates(at::dx));
    });
}

}  // namespace millrace::ops::cuda
