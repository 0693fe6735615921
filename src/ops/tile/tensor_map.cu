#include "ops/tile/tensor_map.cuh"

#include <cuda_runtime.h>

#include <algorithm>

namespace millrace::ops::cuda::tile {
namespace {

using tensor::Operand;

constexpr int kBoxColumns = 64;

/// Matrices along an axis that differ.
std::int64_t matrices(std::int32_t count, std::int64_t stride) { return stride == 0 ? 1 : count; }

}  // namespace

bool has_tensor_map(const Operand& o) {
    const auto whole = [](std::int64_t stride) { return stride % 8 == 0; };
    return tensor::size_of(o.dtype) == 2 && reinterpret_cast<std::uintptr_t>(o.data) % 16 == 0 && o.rows > 0 && o.cols > 0 &&
           whole(o.stride_row) && o.stride_row > 0 && (o.g <= 1 || whole(o.stride_g)) && (o.k <= 1 || whole(o.stride_k));
}

bool make_tensor_map(CUtensorMap& map, const Operand& o, int box_rows) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found) != cudaSuccess ||
        found != cudaDriverEntryPointSuccess)
        return false;
    const std::int64_t groups = matrices(o.g, o.stride_g), members = matrices(o.k, o.stride_k), row = o.stride_row * 2;
    // A stride along an axis of one matrix is never used, but has to be a valid one.
    const std::int64_t group = groups > 1 ? o.stride_g * 2 : row * o.rows, member = members > 1 ? o.stride_k * 2 : group * groups;
    const auto size = [](std::int64_t value) { return static_cast<cuuint64_t>(value); };
    const cuuint64_t sizes[] = {size(o.cols), size(o.rows), size(groups), size(members)},
                     strides[] = {size(row), size(group), size(member)};
    const cuuint32_t box[] = {kBoxColumns, static_cast<cuuint32_t>(box_rows), 1, 1}, steps[] = {1, 1, 1, 1};
    const auto type = o.dtype == tensor::DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry)(
               &map, type, 4, o.data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace millrace::ops::cuda::tile
