// column_sum, alone and several windows of one matrix at once.

#include "ops/dense/column_sum.cuh"

#include "ops/dense/dense.h"

namespace millrace::ops::cuda {
namespace column_sums {
namespace {

using tensor::Operand;

constexpr int kMostChunks = 512;
constexpr int kBlocks = 264;  ///< two for each multiprocessor of an H200; a constant, so that sums do not depend on the device

template <class T, int V>
__global__ void column_chunk_kernel(Mat<const T> in, float* partial, int groups, int rows, int cols, int chunk_rows) {
    begin_kernel();
    const int k = blockIdx.z / groups, g = blockIdx.z % groups, col = first_column<V>();
    float sum[V] = {};
    const auto load = [&](int r, Run<T, V>& at) { at = load_as_stored<V>(in.row(k, g, r) + col); };
    const auto add = [&](int, const Run<T, V>& at) {
        float v[V];
        load_run<V>(at.v, v);
#pragma unroll
        for (int i = 0; i < V; ++i) sum[i] += v[i];
    };
    if (col < cols) over_rows<Run<T, V>>(rows, chunk_rows, load, add);
    put_partial<V>(partial, cols, sum);
}

template <class T, int V>
KernelResult make_sums_of(Context& c, const Operand& in, std::span<const Target> targets) {
    return make_sums(c, in, V, targets, [in, stream = c.stream](dim3 grid, dim3 block, const Plan& p, float* partial) {
        launch(column_chunk_kernel<T, V>, grid, block, 0, stream, in, partial, in.g, in.rows, in.cols, p.chunk_rows);
    });
}

KernelResult make_sums_of(Context& c, const Operand& in, std::span<const Target> targets) {
    return by_real(in.dtype, [&]<class T>(T) -> KernelResult {
        constexpr int kRun = 16 / sizeof(T);
        if (whole_runs(in) && in.cols % kRun == 0) return make_sums_of<T, kRun>(c, in, targets);
        return make_sums_of<T, 1>(c, in, targets);
    });
}

}  // namespace

Plan plan_for(int rows, int cols, int run, int least, int most_chunks) {
    Plan p;
    const int runs = std::max(1, (cols + run - 1) / run);
    p.wide = (runs + 31) / 32;
    p.lanes = (runs + p.wide - 1) / p.wide;
    p.height = kThreads / p.lanes;
    const int wanted = std::max(kBlocks / p.wide, rows / (8 * p.height));
    const int chunks = std::clamp(std::min(wanted, rows / (least * p.height)), 1, std::max(most_chunks, 1));
    const int rows_each = (rows + chunks - 1) / chunks;
    p.chunk_rows = std::max(1, (rows_each + p.height - 1) / p.height) * p.height;
    p.chunks = std::max(1, (rows + p.chunk_rows - 1) / p.chunk_rows);
    return p;
}

Plan plan_for_sums(const Operand& in, int run) {
    constexpr int kMostPartial = 1 << 21;  // of a matrix
    return plan_for(in.rows, in.cols, run, 2, std::min(kMostChunks, kMostPartial / std::max(1, in.cols)));
}

}  // namespace column_sums

namespace {

using column_sums::make_sums_of;
using column_sums::Target;
using tensor::Operand;

constexpr std::size_t kMostWindows = 4;  ///< of one matrix that are summed at once

/// Columns [begin, end) of the matrix rows in which the window `at` lies, counted from the window `origin`; false when the two
/// are not windows of one matrix.
bool window_of(const Operand& origin, const Operand& at, std::int64_t& begin, std::int64_t& end) {
    if (origin.dtype != at.dtype || origin.k != at.k || origin.g != 1 || at.g != 1 || origin.rows != at.rows ||
        origin.stride_row != at.stride_row || (origin.k > 1 && origin.stride_k != at.stride_k))
        return false;
    const std::int64_t bytes = static_cast<const std::byte*>(at.data) - static_cast<const std::byte*>(origin.data);
    const auto size = static_cast<std::int64_t>(tensor::size_of(at.dtype));
    if (bytes % size != 0) return false;
    begin = bytes / size;
    end = begin + at.cols;
    return true;
}

bool meet(const Operand& a, const Operand& b) {
    const auto *left = static_cast<const float*>(a.data), *right = static_cast<const float*>(b.data);
    return left < right + b.cols && right < left + a.cols;
}

/// The columns that the first `count` records read, from those of records[0] on.
struct Span {
    std::int64_t begin = 0, end = 0, read = 0;
};

}  // namespace

Match match_column_sums(const Context& c, const Window& records) {
    std::size_t count = 0;
    Span span;
    // Pinned runs sum every record by itself: the cut of its rows depends on its own columns.
    while (!c.deterministic && count < records.size() && count < kMostWindows && records[count].record->op == &column_sum::kDef) {
        std::int64_t begin = 0, end = 0;
        const Operand& in = records[count][column_sum::in];
        if (in.count() == 0 || !window_of(records[0][column_sum::in], in, begin, end)) break;
        if (std::any_of(records.begin(), records.begin() + static_cast<std::ptrdiff_t>(count),
                        [&](const Bound& earlier) { return meet(earlier[column_sum::out], records[count][column_sum::out]); }))
            break;
        const std::int64_t low = std::min(span.begin, begin), high = std::max(span.end, end);
        if (high - low > in.stride_row || high - low > span.read + in.cols)
            break;  // another row's, or columns that no record sums
        span = {low, high, span.read + in.cols};
        ++count;
    }
    return Match::first(count > 1 ? count : 0);
}

KernelResult make_column_sums(Context& c, std::span<const Bound> records) {
    Operand all = records[0][column_sum::in];
    std::vector<Target> targets;
    std::int64_t low = 0, high = 0, begin = 0, end = 0;
    for (const Bound& b : records) {
        (void)window_of(records[0][column_sum::in], b[column_sum::in], begin, end);
        low = std::min(low, begin);
        high = std::max(high, end);
    }
    all.data = static_cast<std::byte*>(all.data) + low * static_cast<std::int64_t>(tensor::size_of(all.dtype));
    all.cols = static_cast<std::int32_t>(high - low);
    for (const Bound& b : records) {
        (void)window_of(records[0][column_sum::in], b[column_sum::in], begin, end);
        targets.push_back({b[column_sum::out], static_cast<int>(begin - low), b.accumulates(column_sum::out)});
    }
    return make_sums_of(c, all, targets);
}

KernelResult make_column_sum(Context& c, const Bound& b) {
    return make_column_sum(c, b[column_sum::in], b[column_sum::out], b.accumulates(column_sum::out));
}

KernelResult make_column_sum(Context& c, const Operand& in, const Operand& out, bool accumulate) {
    if (out.count() == 0) return make_kernel([] {});
    const Target target{out, 0, accumulate};
    return make_sums_of(c, in, std::span(&target, 1));
}

}  // namespace millrace::ops::cuda
