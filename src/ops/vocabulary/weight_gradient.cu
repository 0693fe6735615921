// Adds what the blocks that share the rows for the same entries of the vocabulary left, in order.

#include "ops/vocabulary/tiles.cuh"

namespace millrace::ops::cuda::vocabulary {
namespace {

constexpr int kAddThreads = 256;

/// Adds the parts, four columns per thread; `whole`: rows of dweight start on 16 bytes.
__global__ void add_parts_kernel(const __grid_constant__ Args a, bool whole) {
    __shared__ float shared[32];
    begin_kernel();
    const int k = blockIdx.z, vocabulary = a.shape.vocabulary, fours = a.cols / 4;
    const float share = a.shares[k];
    const int first = blockIdx.x * kAddThreads + threadIdx.x, step = gridDim.x * kAddThreads;
    if (a.dbias)
        for (int v = first; v < vocabulary; v += step) {
            float sum = 0;
            for (int p = 0; p < a.weight_parts; ++p) sum += a.bias_sums()[(std::int64_t{p} * a.members + k) * vocabulary + v];
            put(a.dbias.row(k, 0, 0) + v, sum * share, a.add_bias);
        }
    if (!a.dweight) return;
    float squares = 0;
    for (std::int64_t i = first; i < std::int64_t{vocabulary} * fours; i += step) {
        const auto row = static_cast<int>(i / fours), column = 4 * static_cast<int>(i - std::int64_t{row} * fours);
        float4 sum = make_float4(0, 0, 0, 0);
        const float* from = a.sums + (std::int64_t{k} * vocabulary + row) * a.cols + column;
        for (int p = 0; p < a.weight_parts; ++p, from += std::int64_t{a.members} * vocabulary * a.cols) {
            const float4 part = *reinterpret_cast<const float4*>(from);
            sum = make_float4(sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w);
        }
        sum = make_float4(sum.x * share, sum.y * share, sum.z * share, sum.w * share);
        float* to = a.dweight.row(k, 0, row) + column;
        if (whole) {
            const float4 before = a.add_weight ? *reinterpret_cast<const float4*>(to) : make_float4(0, 0, 0, 0);
            sum = make_float4(before.x + sum.x, before.y + sum.y, before.z + sum.z, before.w + sum.w);
            *reinterpret_cast<float4*>(to) = sum;
            squares += sum.x * sum.x + sum.y * sum.y + (sum.z * sum.z + sum.w * sum.w);
        } else {
            put(to, sum.x, a.add_weight);
            put(to + 1, sum.y, a.add_weight);
            put(to + 2, sum.z, a.add_weight);
            put(to + 3, sum.w, a.add_weight);
        }
    }
    if (a.squares == nullptr) return;
    squares = block_sum(squares, shared);
    if (threadIdx.x == 0) a.squares[std::int64_t{k} * a.square_parts + blockIdx.x] = squares;
}

dim3 add_grid(const Args& a) {
    return dim3(std::min(blocks_for(std::int64_t{a.shape.vocabulary} * (a.cols / 4), kAddThreads), 1024u), 1,
                static_cast<unsigned>(a.members));
}

}  // namespace

int square_parts(const Args& a) {
    if (!a.direct) return static_cast<int>(add_grid(a).x);
    return 8 * static_cast<int>(blocks_for(a.shape.vocabulary, 128));
}

KernelResult make_weight_gradient(Context& c, const Args& a, const warpgroups::Maps& maps, tensor::DType type, bool aligned) {
    MILLRACE_LET(parts, make_warpgroup_weight_gradient(c, a, maps, type));
    if (a.direct) return KernelResult(std::move(parts));
    return make_kernel([stream = c.stream, parts = std::shared_ptr<Kernel>(std::move(parts)), a, aligned, grid = add_grid(a)] {
        parts->run();
        launch(add_parts_kernel, grid, dim3(kAddThreads), 0, stream, a, aligned);
    });
}

}  // namespace millrace::ops::cuda::vocabulary
