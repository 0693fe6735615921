#include "ops/cuda/packed_weights.h"

#include <algorithm>

#include "ops/cuda/tile_product.cuh"
#include "ops/tile/element.cuh"

namespace millrace::ops::cuda {
namespace {

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

base::Result<std::shared_ptr<PackedWeights>> PackedWeights::of(Context& c, const std::vector<tensor::Operand>& weights,
                                                               const PackShape& shape, Kernels& before) {
    std::vector<Source> key;
    for (const tensor::Operand& w : weights) key.push_back({w.data, w.rows, w.cols, w.stride_row});
    const auto are_current = [&](std::size_t since) {
        return std::all_of(weights.begin(), weights.end(), [&](const tensor::Operand& w) { return c.is_current(w, since); });
    };
    for (const auto& known : c.packed)
        if (known->key_ == key && known->shape_ == shape && are_current(known->made_)) return known;
    // What the region itself writes cannot be packed ahead of it, nor for others.
    const bool shared = are_current(c.copied_at());
    auto* const ahead = shared ? c.ahead : nullptr;
    auto made = std::make_shared<PackedWeights>();
    made->key_ = std::move(key);
    made->made_ = c.copied_at();
    made->shape_ = shape;
    int blocks = 0;
    for (const tensor::Operand& w : weights) {
        made->first_.push_back(blocks);
        blocks += ((shape.transposed ? w.rows : w.cols) + kTileDepth - 1) / kTileDepth;
    }
    const std::size_t elements =
        static_cast<std::size_t>(blocks) * static_cast<std::size_t>(shape.tiles * shape.groups * kTileGroup * kTileDepth);
    MILLRACE_LET(table, zero_table(c, elements * sizeof(bf16)));
    made->table_ = std::move(table);
    for (std::size_t i = 0; i < weights.size(); ++i) {
        const tensor::Operand& w = weights[i];
        PackArgs a{static_cast<const bf16*>(w.data), w.stride_row, shape.transposed ? w.rows : w.cols, made->first_[i], shape,
                   static_cast<bf16*>(made->table_)};
        const dim3 grid(shape.tiles, blocks_for(a.depth, kTileDepth));
        const cudaStream_t stream = ahead != nullptr ? c.ahead_stream : c.stream;
        (ahead != nullptr ? *ahead : before).push_back(make_kernel([stream, grid, a, made] {
            launch(pack_kernel, grid, dim3(256), 0, stream, a);
        }));
    }
    if (shared) c.packed.push_back(made);
    return made;
}

}  // namespace millrace::ops::cuda
