#pragma once
// Sums over rows in two stages: partial sums of chunks of rows, then the chunks (ops/cuda/late_sums.h). How rows are cut depends
// on the shape of one matrix alone, so that members do not change each other's bits.

#include "ops/cuda/late_sums.h"
#include "ops/cuda/vector.cuh"

namespace millrace::ops::cuda::column_sums {

constexpr int kThreads = 256;  ///< of a block, at most
constexpr int kBatch = 4;      ///< rows whose loads a thread has under way

/// A matrix cut into blocks, grid (chunks, wide): a block has (lanes, height) threads, a thread one run of columns and every
/// height-th row of its chunk.
struct Plan {
    int lanes = 1, height = kThreads, wide = 1, chunks = 1, chunk_rows = 1;
};
/// Enough blocks to fill a device where each thread still gets `least` rows; about 8 rows a thread in larger matrices, more once
/// there are `most_chunks`.
Plan plan_for(int rows, int cols, int run, int least, int most_chunks);
/// The same for sums.
Plan plan_for_sums(const tensor::Operand& in, int run);

/// Where sums go: those from column `from` on of what was read.
struct Target {
    tensor::Operand out;
    int from;
    bool accumulate;
};

/// Both stages. first_stage(grid, block, plan, partial) launches the kernel that sums the chunks of all matrices with
/// put_partial. Without targets it is the only one and `partial` is null.
template <class F>
KernelResult make_sums(Context& c, const tensor::Operand& in, int run, std::span<const Target> targets, F first_stage) {
    const Plan p = plan_for_sums(in, run);
    const dim3 grid(p.chunks, p.wide, in.k * in.g), block(p.lanes, p.height);
    DeviceTable partial;
    std::vector<ChunkSums> sums;
    if (!targets.empty()) {
        MILLRACE_LET(table, zero_table(c, sizeof(float) * grid.x * grid.z * static_cast<std::size_t>(in.cols)));
        partial = table;
        for (const Target& t : targets)
            sums.push_back({t.out, static_cast<float*>(partial) + t.from, p.chunks, in.cols, t.accumulate, partial});
    }
    auto chunks = make_kernel([=] { first_stage(grid, block, p, static_cast<float*>(partial)); });
    return with_sums(c, std::move(chunks), sums);
}

/// use(row, values) of this thread's rows of the chunk, after load(row, values) of kBatch rows. `use` may write where `load`
/// read.
template <class Values, class Load, class Use>
__device__ void over_rows(int rows, int chunk_rows, Load load, Use use) {
    const int step = static_cast<int>(blockDim.y), begin = static_cast<int>(blockIdx.x) * chunk_rows;
    const int end = min(rows, begin + chunk_rows);
    for (int first = begin + static_cast<int>(threadIdx.y); first < end; first += kBatch * step) {
        Values values[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
            if (first + i * step < end) load(first + i * step, values[i]);
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
            if (first + i * step < end) use(first + i * step, values[i]);
    }
}

/// This thread's first column.
template <int V>
__device__ int first_column() {
    return static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * V;
}

/// The chunk's sums from those of each thread, rows of threads in order. Every thread of the block calls it.
template <int V>
__device__ void put_partial(float* partial, int cols, const float (&sum)[V]) {
    __shared__ __align__(16) float shared[kThreads * V];
    const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x), width = static_cast<int>(blockDim.x) * V;
    const int col0 = static_cast<int>(blockIdx.y) * width;
    store_run<V>(shared + thread * V, sum);
    __syncthreads();
    float* out = partial + (static_cast<std::int64_t>(blockIdx.z) * gridDim.x + blockIdx.x) * cols + col0;
    for (int c = thread; c < min(width, cols - col0); c += static_cast<int>(blockDim.x * blockDim.y)) {
        float total = 0;
        for (int y = 0; y < static_cast<int>(blockDim.y); ++y) total += shared[y * width + c];
        out[c] = total;
    }
}

}  // namespace millrace::ops::cuda::column_sums
