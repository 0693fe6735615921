// Tokens and positions become vectors; the mean over positions and back.

#include "ops/gather/windows.cuh"
#include "ops/rewrite.h"
#include "ops/step/step.h"
#include "ops/text/embed.cuh"
#include "ops/text/text.h"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

constexpr int kRows = 16;  ///< rows of a block

template <class T>
struct EmbedArgs {
    Mat<const float> table, position;
    Mat<const T> before;
    Mat<const std::int32_t> ids, lengths;
    States state;
    Mat<T> y;
    EmbedShape shape;
    int vocabulary;
    Windows windows;  ///< with a stream: what ids and lengths are, which are written then; there is no prefix
    bool early;       ///< windows are found before the launch in front is done
};

/// One block per kRows rows of y and tile of columns.
template <class T, int W>
__global__ void __launch_bounds__(kLanes* kRows) embed_kernel(const __grid_constant__ EmbedArgs<T> a) {
    __shared__ TokenWindow found[kRows];
    const EmbedShape& shape = a.shape;
    const bool gathers = static_cast<bool>(a.windows.stream);
    const int first = blockIdx.x * kRows, row = first + threadIdx.y, k = blockIdx.z, c = (blockIdx.y * kLanes + threadIdx.x) * W;
    const int sequence = row / shape.positions(), at = row % shape.positions(), t = at - shape.prefix;
    const int first_sequence = first / shape.positions();
    if (!a.early) begin_kernel();
    if (gathers) {
        static_assert(kLanes >= kRows);  // a thread for each sequence of the block
        const int mine = first_sequence + threadIdx.x;
        if (threadIdx.y == 0 && mine < shape.sequences && mine * shape.positions() < first + kRows)
            found[threadIdx.x] = a.windows.find(k, mine);
        __syncthreads();
    }
    if (a.early) begin_kernel();
    if (row >= shape.sequences * shape.positions() || c >= shape.cols) return;
    const TokenWindow& window = found[sequence - first_sequence];
    std::int32_t id = 0;  // read at once: it does not wait for the length
    if (t >= 0) id = gathers ? a.windows.token(window, t) : a.ids.row(k, 0, sequence)[t];
    const int tokens = gathers ? a.windows.length(window) : tokens_of(a.lengths, k, sequence, shape.tokens);
    float v[W] = {}, where[W];
    if (at < shape.prefix + tokens) {
        load_run(a.position.row(k, 0, at) + c, where);
        if (t < 0)
            load_run(a.before.row(k, 0, sequence) + at * shape.cols + c, v);
        else if (id >= 0 && id < a.vocabulary)
            load_run(a.table.row(k, 0, id) + c, v);
        else if (c == 0)
            atomicOr(&a.state[k].nonfinite, 1u);
        add_run(v, where);
    }
    store_run(a.y.row(k, 0, row) + c, v);
    if (!gathers || c > 0) return;
    std::int32_t* out = a.windows.out.row(k, 0, sequence);
    out[t] = id;
    if (t + 1 < shape.tokens) return;
    out[t + 1] = a.windows.token(window, t + 1);  // the last target
    *a.windows.lengths.row(k, 0, sequence) = tokens;
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

KernelResult make_embed(Context& c, const Bound& b, const Windows& windows, bool early) {
    namespace at = token_embed;
    const Operand &t = b[at::table], &p = b[at::position], &before = b[at::before], &ids = b[at::ids], &l = b[at::lengths],
                  &s = b[at::state], &y = b[at::y];
    const EmbedShape shape{l.rows, ids.cols, b.params<TokenParams>().prefix, y.cols};
    return by_width(y.dtype, y.cols, {t, p, before, y}, [&]<class T, int W>(T, std::integral_constant<int, W>) -> KernelResult {
        const EmbedArgs<T> a{t, p, before, ids, l, s, y, shape, t.rows, windows, early};
        return make_launch(c, embed_kernel<T, W>, dim3(blocks_for(y.rows, kRows), column_tiles(y.cols, W), y.k),
                           dim3(kLanes, kRows), 0, a);
    });
}

}  // namespace

KernelResult make_token_embed(Context& c, const Bound& b) {
    if (b[token_embed::y].count() == 0) return make_kernel([] {});
    return make_embed(c, b, {}, false);
}

/// Every block finds its windows again: where more blocks wait than run at once, that takes longer than a launch.
Match match_window_embed(const Context& c, const Window& records) {
    if (records.size() < 2 || records[1].record->op != &token_embed::kDef) return {};
    const Bound &gather = records[0], &embed = records[1];
    Operand inputs = gather[gather_windows::out];
    inputs.cols -= 1;  // without the last target
    const Operand& y = embed[token_embed::y];
    constexpr int kWidest = 8, kAtOnce = 2048 / (kLanes * kRows);  // columns of a thread, blocks of a multiprocessor
    const auto blocks = std::int64_t{blocks_for(y.rows, kRows)} * column_tiles(y.cols, kWidest) * y.k;
    const bool fits = blocks <= kAtOnce * c.multiprocessors && embed[token_embed::ids] == inputs &&
                      embed[token_embed::lengths] == gather[gather_windows::lengths] && embed[token_embed::y].count() > 0 &&
                      embed.params<TokenParams>().prefix == 0;
    return Match::first(fits ? 2 : 0);
}

KernelResult make_window_embed(Context& c, std::span<const Bound> records) {
    const Bound& gather = records[0];
    // A step begins without a change to seed, epoch and position, all of the state that is read.
    const bool behind_begin = c.at > c.border && c.records[c.at - 1].record->op == &step_begin::kDef,
               early = behind_begin && c.reads_early({&gather[gather_windows::stream], &gather[gather_windows::ranges]});
    return make_embed(c, records[1], windows_of(gather), early);
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
