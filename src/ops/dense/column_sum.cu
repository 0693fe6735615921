// column_sum, and the same of operands of other records.

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

using column_sums::make_sums_of;
using column_sums::Target;
using tensor::Operand;

KernelResult make_column_sum(Context& c, const Bound& b) {
    using namespace column_sum;
    const auto& p = b.params<ColumnSumParams>();
    std::vector<Target> targets;
    for (int slot = out; slot <= third; ++slot)
        if (b[slot].present() && b[slot].count() > 0) targets.push_back({b[slot], p.from[slot - out], b.accumulates(slot)});
    return targets.empty() ? make_kernel([] {}) : make_sums_of(c, b[in], targets);
}

KernelResult make_column_sum(Context& c, const Operand& in, const Operand& out, bool accumulate) {
    if (out.count() == 0) return make_kernel([] {});
    const Target target{out, 0, accumulate};
    return make_sums_of(c, in, std::span(&target, 1));
}

}  // namespace millrace::ops::cuda
