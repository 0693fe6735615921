// Constants and copies of any element type, for the reference and the CPU backend.
#include <algorithm>
#include <cstring>

#include "ops/host_kernels.h"
#include "ops/pointwise/pointwise.h"
#include "tensor/element.h"

namespace millrace::ops {
namespace {

using tensor::Operand;

std::byte* row_address(const Operand& o, int matrix, int row) {
    const std::int64_t element = matrix / o.g * o.stride_k + matrix % o.g * o.stride_g + row * o.stride_row;
    return static_cast<std::byte*>(o.data) + element * static_cast<std::int64_t>(tensor::size_of(o.dtype));
}

template <class>
void fill_row(const Bound& b, int matrix, int row) {
    const Operand& out = b[fill::out];
    std::byte* to = row_address(out, matrix, row);
    const std::size_t size = tensor::size_of(out.dtype), bytes = static_cast<std::size_t>(out.cols) * size;
    if (bytes == 0) return;
    tensor::write_element(to, out.dtype, b.params<FillParams>().value);
    for (std::size_t done = size; done < bytes; done += std::min(done, bytes - done))
        std::memcpy(to + done, to, std::min(done, bytes - done));
}

template <class>
void copy_row(const Bound& b, int matrix, int row) {
    const Operand &in = b[copy::in], &out = b[copy::out];
    const std::byte* from = row_address(in, matrix, row);
    std::byte* to = row_address(out, matrix, row);
    const std::size_t count = static_cast<std::size_t>(out.cols), read = tensor::size_of(in.dtype),
                      written = tensor::size_of(out.dtype);
    if (in.dtype == out.dtype)
        std::memmove(to, from, count * written);
    else
        for (std::size_t i = 0; i < count; ++i)
            tensor::write_element(to + i * written, out.dtype, tensor::read_element(from + i * read, in.dtype));
}

}  // namespace

MILLRACE_HOST_ROWS(fill, out, bound[fill::out].cols, fill_row);
MILLRACE_HOST_ROWS(copy, out, bound[copy::out].cols, copy_row);

}  // namespace millrace::ops
