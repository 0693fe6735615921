// Sums over rows in two stages: partial sums of chunks of rows, then the chunks. How rows are cut depends on the shape of one
// matrix alone, so that members do not change each other's bits.

#include "ops/cuda/context.h"
#include "ops/cuda/vector.cuh"
#include "ops/dense/dense.h"

namespace millrace::ops::cuda {
namespace {

using tensor::DType;
using tensor::Operand;

constexpr int kThreads = 256, kMostChunks = 512, kFinalLanes = 8;

/// blockIdx: block of columns, chunk of rows, matrix. threadIdx: run of V columns, row.
template <class T, int V>
__global__ void column_chunk_kernel(Mat<const T> in, float* partial, int groups, int first, int rows, int cols, int chunk_rows) {
    __shared__ float shared[kThreads * V];
    begin_kernel();
    const int matrix = first + static_cast<int>(blockIdx.z), k = matrix / groups, g = matrix % groups;
    const int width = static_cast<int>(blockDim.x) * V, col0 = static_cast<int>(blockIdx.x) * width;
    const int col = col0 + static_cast<int>(threadIdx.x) * V;
    const int begin = static_cast<int>(blockIdx.y) * chunk_rows, end = min(rows, begin + chunk_rows);
    float sum[V] = {};
    if (col < cols) {
#pragma unroll 4
        for (int r = begin + static_cast<int>(threadIdx.y); r < end; r += static_cast<int>(blockDim.y)) {
            float v[V];
            load_run<V>(in.row(k, g, r) + col, v);
#pragma unroll
            for (int i = 0; i < V; ++i) sum[i] += v[i];
        }
    }
#pragma unroll
    for (int i = 0; i < V; ++i) shared[threadIdx.y * width + threadIdx.x * V + i] = sum[i];
    __syncthreads();
    float* out = partial + (static_cast<std::int64_t>(blockIdx.z) * gridDim.y + blockIdx.y) * cols + col0;
    for (int c = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x); c < width && col0 + c < cols; c += kThreads) {
        float total = 0;
        for (int y = 0; y < static_cast<int>(blockDim.y); ++y) total += shared[y * width + c];
        out[c] = total;
    }
}

/// Where sums go: `cols` of them, from column `from` of what was read on.
struct Target {
    Mat<float> out;
    int from, cols;
    bool accumulate;
};
constexpr int kMostTargets = 4;
struct Targets {
    Target all[kMostTargets];
};

/// blockIdx.y: target.
__global__ void column_final_kernel(const float* partial, const __grid_constant__ Targets targets, int groups, int first,
                                    int chunks, int cols) {
    begin_kernel();
    const Target& target = targets.all[blockIdx.y];
    const int matrix = first + static_cast<int>(blockIdx.z), col = static_cast<int>(blockIdx.x * 32 + threadIdx.x);
    const float* from = partial + static_cast<std::int64_t>(blockIdx.z) * chunks * cols + target.from;
    double sum = 0;
    for (int chunk = static_cast<int>(threadIdx.y); col < target.cols && chunk < chunks; chunk += kFinalLanes)
        sum += from[static_cast<std::int64_t>(chunk) * cols + col];
    const double total = sum_over_y<kFinalLanes>(sum);
    if (threadIdx.y != 0 || col >= target.cols) return;
    float* at = target.out.row(matrix / groups, matrix % groups, 0) + col;
    *at = static_cast<float>(target.accumulate ? *at + total : total);
}

struct Plan {
    int lanes = 1, height = kThreads, chunks = 1, chunk_rows = 1;
};

Plan plan_for(const Operand& in, int run, std::size_t workspace) {
    Plan p;
    while (p.lanes < 32 && p.lanes * run < in.cols) p.lanes *= 2;
    p.height = kThreads / p.lanes;
    const auto fitting = static_cast<int>(
        std::min<std::int64_t>(kMostChunks, static_cast<std::int64_t>(workspace / sizeof(float)) / (4 * std::int64_t{in.cols})));
    p.chunks = std::clamp(in.rows / (8 * p.height), 1, std::max(fitting, 1));
    p.chunk_rows = (in.rows + p.chunks - 1) / p.chunks;
    return p;
}

template <class T, int V>
KernelResult make_sum(Context& c, const Operand& in, const Targets& targets, int count) {
    const Plan p = plan_for(in, V, c.workspace_bytes);
    const std::size_t bytes = static_cast<std::size_t>(p.chunks) * static_cast<std::size_t>(in.cols) * sizeof(float);
    const int at_once = static_cast<int>(std::min<std::size_t>(c.workspace_bytes / bytes, 65535));
    if (at_once == 0) return base::Error{"column_sum over " + std::to_string(in.cols) + " columns: more than its scratch holds"};
    int widest = 0;
    for (int t = 0; t < count; ++t) widest = std::max(widest, targets.all[t].cols);
    return make_kernel([stream = c.stream, partial = static_cast<float*>(c.workspace), p, in, targets, count, widest, at_once] {
        for (int first = 0; first < in.k * in.g; first += at_once) {
            const auto depth = static_cast<unsigned>(std::min(at_once, in.k * in.g - first));
            launch(column_chunk_kernel<T, V>, dim3(blocks_for(in.cols, p.lanes * V), p.chunks, depth), dim3(p.lanes, p.height), 0,
                   stream, in, partial, in.g, first, in.rows, in.cols, p.chunk_rows);
            launch(column_final_kernel, dim3(blocks_for(widest, 32), count, depth), dim3(32, kFinalLanes), 0, stream, partial,
                   targets, in.g, first, p.chunks, in.cols);
        }
    });
}

KernelResult make_sums(Context& c, const Operand& in, const Targets& targets, int count) {
    return by_real(in.dtype, [&]<class T>(T) -> KernelResult {
        constexpr int kRun = 16 / sizeof(T);
        if (whole_runs(in) && in.cols % kRun == 0) return make_sum<T, kRun>(c, in, targets, count);
        return make_sum<T, 1>(c, in, targets, count);
    });
}

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

std::size_t match_column_sums(const Context& c, std::span<const Bound> records) {
    std::size_t count = 0;
    Span span;
    // Pinned runs sum every record by itself: the cut of its rows depends on its own columns.
    while (!c.deterministic && count < records.size() && count < kMostTargets && records[count].record->op == &column_sum::kDef) {
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
    return count > 1 ? count : 0;
}

KernelResult make_column_sums(Context& c, std::span<const Bound> records) {
    Operand all = records[0][column_sum::in];
    Targets targets{};
    std::int64_t low = 0, high = 0, begin = 0, end = 0;
    for (const Bound& b : records) {
        (void)window_of(records[0][column_sum::in], b[column_sum::in], begin, end);
        low = std::min(low, begin);
        high = std::max(high, end);
    }
    all.data = static_cast<std::byte*>(all.data) + low * static_cast<std::int64_t>(tensor::size_of(all.dtype));
    all.cols = static_cast<std::int32_t>(high - low);
    for (std::size_t i = 0; i < records.size(); ++i) {
        const Bound& b = records[i];
        (void)window_of(records[0][column_sum::in], b[column_sum::in], begin, end);
        targets.all[i] = {b[column_sum::out], static_cast<int>(begin - low), b[column_sum::in].cols,
                          b.accumulates(column_sum::out)};
    }
    return make_sums(c, all, targets, static_cast<int>(records.size()));
}

KernelResult make_column_sum(Context& c, const Bound& b) {
    return make_column_sum(c, b[column_sum::in], b[column_sum::out], b.accumulates(column_sum::out));
}

KernelResult make_column_sum(Context& c, const Operand& in, const Operand& out, bool accumulate) {
    if (out.count() == 0) return make_kernel([] {});
    Targets targets{};
    targets.all[0] = {out, 0, out.cols, accumulate};
    return make_sums(c, in, targets, 1);
}

}  // namespace millrace::ops::cuda
