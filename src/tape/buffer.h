#pragma once
// Buffers of a step program: what they are for, how large, and for which records they live.

#include <cstdint>
#include <string>

#include "tensor/view.h"

namespace millrace::tape {

enum class Role : std::uint8_t {
    parameter,
    gradient,
    optimizer,
    running,
    state,
    metric,
    data,
    activation,
    saved,
    scratch,
    count_
};
constexpr int kRoleCount = static_cast<int>(Role::count_);
const char* name_of(Role role);

/// bf16 and f16 mean such operands with f32 accumulation, masters, norms and losses; f16 has few exponents, so the loss is scaled
/// (MemberState::loss_scale). f64 is the reference backend's.
enum class Precision : std::uint8_t { f64, f32, bf16, f16 };
constexpr tensor::DType real_of(Precision p) {
    constexpr tensor::DType kReal[] = {tensor::DType::f64, tensor::DType::f32, tensor::DType::bf16, tensor::DType::f16};
    return kReal[static_cast<int>(p)];
}
constexpr const char* name_of(Precision p) { return tensor::name_of(real_of(p)); }
/// Whether products read 16-bit copies of the parameters.
constexpr bool has_copies(Precision p) { return tensor::size_of(real_of(p)) == 2; }
constexpr tensor::DType stat_of(Precision p) { return p == Precision::f64 ? tensor::DType::f64 : tensor::DType::f32; }

struct Buffer {
    std::string name;
    Role role = Role::activation;
    tensor::DType dtype = tensor::DType::f32;
    std::int64_t elements = 0;
    std::int64_t row_width = 0;  ///< elements of one row: the column space that gradient bookkeeping works in

    bool kept = false;          ///< its memory is not reused before the program's end
    int first = -1, last = -1;  ///< records that touch it first and last; -1: untouched
    std::int64_t offset = -1;   ///< bytes into the activation arena, set by the planner, or into the store's memory

    [[nodiscard]] std::int64_t bytes() const { return elements * static_cast<std::int64_t>(tensor::size_of(dtype)); }
};

/// `n` rounded up to a multiple of `to`.
constexpr std::int64_t align(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

/// [k, g, rows, cols] in the memory of a buffer, row behind row; `stride_k` elements from member to member, 0: one behind the
/// other.
inline tensor::View contiguous_view(tensor::BufferId buffer, tensor::DType dtype, std::int32_t k, std::int32_t g,
                                    std::int32_t rows, std::int32_t cols, std::int64_t stride_k = 0) {
    tensor::View v;
    v.buffer = buffer;
    v.dtype = dtype;
    v.k = k;
    v.g = g;
    v.rows = rows;
    v.cols = cols;
    v.stride_row = cols;
    v.stride_g = std::int64_t{rows} * cols;
    v.stride_k = stride_k > 0 ? stride_k : v.stride_g * g;
    return v;
}

/// Ids of buffers that belong to one program start here; smaller ids belong to the store.
constexpr tensor::BufferId kLocalBase = 1 << 20;

}  // namespace millrace::tape
