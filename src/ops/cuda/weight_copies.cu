#include "ops/cuda/weight_copies.h"

#include <algorithm>

#include "ops/cuda/tile_product.cuh"
#include "ops/tile/element.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

struct PackArgs {
    const bf16* w;
    std::int64_t stride;
    int depth, first;
    PackShape shape;
    bf16* packed;
};

/// A block per tile; neighbouring threads take neighbouring outputs, which lie together where w is transposed.
__global__ void pack_kernel(const __grid_constant__ PackArgs a) {
    begin_kernel();
    const int rows = a.shape.groups * kTileGroup, block = static_cast<int>(blockIdx.y), tile = static_cast<int>(blockIdx.x);
    bf16* to = a.packed + (std::int64_t{a.first + block} * a.shape.tiles + tile) * rows * kTileDepth;
    for (int i = static_cast<int>(threadIdx.x); i < rows * (kTileDepth / 8); i += static_cast<int>(blockDim.x)) {
        const int row = a.shape.transposed ? i % rows : i / 8, piece = a.shape.transposed ? i / rows : i % 8;
        const int output = row / kTileGroup * a.shape.group_stride + tile * a.shape.tile_stride + packed_column(row % kTileGroup);
        std::uint32_t words[4] = {};
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const int k = block * kTileDepth + piece * 8 + j;
            if (k >= a.depth) break;
            const bf16 value = a.shape.transposed ? a.w[k * a.stride + output] : a.w[output * a.stride + k];
            words[j / 2] |= static_cast<std::uint32_t>(__bfloat16_as_ushort(value)) << 16 * (j % 2);
        }
        *reinterpret_cast<uint4*>(to + packed_offset(row, piece * 8)) = make_uint4(words[0], words[1], words[2], words[3]);
    }
}

template <class T>
__global__ void pad_kernel(Mat<const T> in, Mat<T> out, int groups, int rows, int in_cols, int out_cols) {
    begin_kernel();
    const int k = blockIdx.z / groups, g = blockIdx.z % groups;
    for (int r = static_cast<int>(blockIdx.x); r < rows; r += static_cast<int>(gridDim.x))
        for (int c = static_cast<int>(threadIdx.x); c < out_cols; c += static_cast<int>(blockDim.x))
            out.row(k, g, r)[c] = c < in_cols ? in.row(k, g, r)[c] : T(0.0f);
}

/// The memory of a copy that is known, or else of a new one of `bytes` bytes: make(i, stream, memory) is the kernel that
/// brings number i of `wanted.of` there.
template <class Make>
base::Result<DeviceTable> share_copy(Context& c, WeightCopy wanted, std::size_t bytes, Kernels& steps, Make make) {
    const auto are_current = [&](std::size_t since) {
        return std::ranges::all_of(wanted.of, [&](const Operand& w) { return c.is_current(w, since); });
    };
    for (const auto& known : c.copies)
        if (known->of == wanted.of && known->shape == wanted.shape && known->cols == wanted.cols && are_current(known->made)) {
            steps.push_back(make_kernel([held = known->memory] {}));
            return known->memory;
        }
    MILLRACE_LET(memory, zero_table(c, bytes));
    // What the region itself writes cannot be copied ahead of it, nor for others.
    const bool shared = are_current(wanted.made), ahead = shared && c.ahead != nullptr;
    for (std::size_t i = 0; i < wanted.of.size(); ++i)
        (ahead ? *c.ahead : steps).push_back(make(i, ahead ? c.ahead_stream : c.stream, memory));
    if (ahead) steps.push_back(make_kernel([held = memory] {}));
    wanted.memory = memory;
    if (shared) c.copies.push_back(std::make_shared<WeightCopy>(std::move(wanted)));
    return memory;
}

#ifdef MILLRACE_HOPPER
constexpr int kMarkerThreads = 64;
#else
constexpr int kMarkerThreads = 32;
#endif
/// Its largest block says for which devices the kernels of this program were compiled.
__global__ void __launch_bounds__(kMarkerThreads) marker_kernel() {}

}  // namespace

bool has_tile_products() {
    static const bool there = [] {
        cudaFuncAttributes compiled{};
        return cudaFuncGetAttributes(&compiled, marker_kernel) == cudaSuccess && compiled.maxThreadsPerBlock == 64;
    }();
    return there;
}

bool tile::has_element(tensor::DType type) {
    static const bool there = [] {
        cudaFuncAttributes compiled{};
        return cudaFuncGetAttributes(&compiled, marker_kernel) == cudaSuccess &&
               std::min(compiled.ptxVersion, compiled.binaryVersion) >= 80;
    }();
    return there && (type == tensor::DType::bf16 || type == tensor::DType::f16 || type == tensor::DType::f32);
}

base::Result<PackedWeights> pack_weights(Context& c, const std::vector<Operand>& weights, const PackShape& shape,
                                         Kernels& steps) {
    const auto depth_of = [&](const Operand& w) { return shape.transposed ? w.rows : w.cols; };
    PackedWeights packed{};
    int blocks = 0;
    for (const Operand& w : weights) {
        packed.first.push_back(blocks);
        blocks += static_cast<int>(blocks_for(depth_of(w), kTileDepth));
    }
    const std::size_t elements =
        static_cast<std::size_t>(blocks) * static_cast<std::size_t>(shape.tiles * shape.groups * kTileGroup * kTileDepth);
    const auto pack = [&](std::size_t i, cudaStream_t stream, const DeviceTable& to) {
        const Operand& w = weights[i];
        const PackArgs a{
            static_cast<const bf16*>(w.data), w.stride_row, depth_of(w), packed.first[i], shape, static_cast<bf16*>(to)};
        const dim3 grid(shape.tiles, blocks_for(a.depth, kTileDepth));
        return make_kernel([=, held = to] { launch(pack_kernel, grid, dim3(256), 0, stream, a); });
    };
    MILLRACE_LET(memory, share_copy(c, {weights, shape, 0, c.copied_at()}, elements * sizeof(bf16), steps, pack));
    packed.data = memory.get();
    return packed;
}

base::Status pad_weights(Context& c, const Operand& in, int cols, Operand& out, Kernels& steps) {
    out = in;
    out.cols = cols;
    out.stride_row = (cols + 7) / 8 * 8;
    const std::int64_t matrix = out.stride_row * in.rows;
    out.stride_g = in.stride_g == 0 ? 0 : matrix;  // what is one matrix for all stays one
    out.stride_k = in.stride_k == 0 ? 0 : matrix * in.g;
    const std::size_t bytes = static_cast<std::size_t>(matrix * in.g * in.k) * tensor::size_of(in.dtype);
    const dim3 grid(std::clamp(in.rows, 1, 4096), 1, in.k * in.g);
    const auto pad = [&](std::size_t, cudaStream_t stream, const DeviceTable& table) {
        Operand to = out;
        to.data = table.get();
        return by_real(in.dtype, [&]<class T>(T) {
            return make_kernel([=, held = table] {
                launch(pad_kernel<T>, grid, dim3(128), 0, stream, in, to, in.g, in.rows, in.cols, to.cols);
            });
        });
    };
    MILLRACE_LET(memory, share_copy(c, {{in}, {}, cols, c.copied_at()}, bytes, steps, pad));
    out.data = memory.get();
    return base::ok();
}

}  // namespace millrace::ops::cuda
