// Constants and copies of any element type, for the reference and the CPU backend.
#include <algorithm>
#include <cstring>

#include "ops/cpu/kernel.h"
#include "ops/pointwise/pointwise.h"
#include "ops/ref/kernels.h"
#include "tensor/element.h"

namespace millrace::ops {
namespace {

using tensor::Operand;

std::byte* row_address(const Operand& o, int member, int group, int row) {
    const std::int64_t element = member * o.stride_k + group * o.stride_g + row * o.stride_row;
    return static_cast<std::byte*>(o.data) + element * static_cast<std::int64_t>(tensor::size_of(o.dtype));
}

void fill_row(const Operand& out, int member, int group, int row, double value) {
    std::byte* to = row_address(out, member, group, row);
    const std::size_t size = tensor::size_of(out.dtype), bytes = static_cast<std::size_t>(out.cols) * size;
    if (bytes == 0) return;
    tensor::write_element(to, out.dtype, value);
    for (std::size_t done = size; done < bytes; done += std::min(done, bytes - done))
        std::memcpy(to + done, to, std::min(done, bytes - done));
}

void copy_row(const Operand& in, const Operand& out, int member, int group, int row) {
    const std::byte* from = row_address(in, member, group, row);
    std::byte* to = row_address(out, member, group, row);
    const std::size_t count = static_cast<std::size_t>(out.cols), read = tensor::size_of(in.dtype),
                      written = tensor::size_of(out.dtype);
    if (in.dtype == out.dtype)
        std::memmove(to, from, count * written);
    else
        for (std::size_t i = 0; i < count; ++i)
            tensor::write_element(to + i * written, out.dtype, tensor::read_element(from + i * read, in.dtype));
}

}  // namespace

namespace ref {

void run_fill(const Bound& bound) {
    const Operand& out = bound[fill::out];
    for_each_matrix(out, [&](int m, int g) {
        for (int row = 0; row < out.rows; ++row) fill_row(out, m, g, row, bound.params<FillParams>().value);
    });
}

void run_copy(const Bound& bound) {
    const Operand& out = bound[copy::out];
    for_each_matrix(out, [&](int m, int g) {
        for (int row = 0; row < out.rows; ++row) copy_row(bound[copy::in], out, m, g, row);
    });
}

}  // namespace ref

namespace cpu {

KernelResult make_fill(Context& context, const Bound& bound) {
    return make_kernel([&context, out = bound[fill::out], value = bound.params<FillParams>().value]() noexcept {
        for_each_row(context, out, [&](int member, int group, int row) { fill_row(out, member, group, row, value); });
    });
}

KernelResult make_copy(Context& context, const Bound& bound) {
    return make_kernel([&context, in = bound[copy::in], out = bound[copy::out]]() noexcept {
        for_each_row(context, out, [&](int member, int group, int row) { copy_row(in, out, member, group, row); });
    });
}

}  // namespace cpu
}  // namespace millrace::ops
