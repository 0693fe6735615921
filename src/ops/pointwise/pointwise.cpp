#include "ops/pointwise/pointwise.h"

#include <algorithm>
#include <cstring>

#include "ops/host_kernels.h"
#include "ops/kernels.h"
#include "ops/ref/kernels.h"
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

template <class T>
void add_row(const Bound& bound, int matrix, int row, const host::Loops<T>& loops) {
    const Operand &first = bound[add::a], &second = bound[add::b], &out = bound[add::out];
    const int member = matrix / out.g, group = matrix % out.g;
    loops.add_rows(out.cols, first.at<T>(member, group, row), second.present() ? second.at<T>(member, group, row) : nullptr,
                   out.at<T>(member, group, row), bound.accumulates(add::out));
}

void forward_row(const Bound& bound, int matrix, int row, const host::PlainLoops&) {
    using namespace pointwise_forward;
    const auto& p = bound.params<PointwiseParams>();
    const Operand& out = bound[y];
    const ref::Dropout dropout(p.dropout, p.op_number, bound[state]);
    const int m = matrix / out.g, g = matrix % out.g;
    const double* in = bound[x].at<double>(m, g, row);
    for (int c = 0; c < out.cols; ++c)
        out.at<double>(m, g, row)[c] = ref::activate(p.activation, in[c]) * dropout.factor(m, ref::element_of(out, g, row, c));
}
void forward_row_in_blocks(const Bound& bound, int matrix, int row, const cpu::SimdKernels& simd) {
    using namespace pointwise_forward;
    const auto& p = bound.params<PointwiseParams>();
    const Operand& out = bound[y];
    const int m = matrix / out.g, g = matrix % out.g;
    for (int col = 0; col < out.cols; col += cpu::kMaxColumns) {
        cpu::ColumnPass pass{};
        pass.rows = 1;
        pass.cols = std::min(cpu::kMaxColumns, out.cols - col);
        pass.x = bound[x].at<float>(m, g, row) + col;
        pass.y = out.at<float>(m, g, row) + col;
        pass.activation = static_cast<std::uint8_t>(p.activation);
        cpu::set_dropout(pass, p, bound[state], out, {m, g, row, col});
        simd.column_pass(pass);
    }
}

void backward_row(const Bound& bound, int matrix, int row, const host::PlainLoops&) {
    using namespace pointwise_backward;
    const auto& p = bound.params<PointwiseParams>();
    const Operand& out = bound[dx];
    const ref::Dropout dropout(p.dropout, p.op_number, bound[state]);
    const int m = matrix / out.g, g = matrix % out.g;
    const double *in = bound[x].at<double>(m, g, row), *gradient = bound[dy].at<double>(m, g, row);
    for (int c = 0; c < out.cols; ++c) {
        const double factor = dropout.factor(m, ref::element_of(out, g, row, c));
        ref::store(out.at<double>(m, g, row)[c], gradient[c] * factor * ref::slope(p.activation, in[c]), bound.accumulates(dx));
    }
}
void backward_row_in_blocks(const Bound& bound, int matrix, int row, const cpu::SimdKernels& simd) {
    using namespace pointwise_backward;
    const auto& p = bound.params<PointwiseParams>();
    const Operand& out = bound[dx];
    const int m = matrix / out.g, g = matrix % out.g;
    for (int col = 0; col < out.cols; col += cpu::kMaxColumns) {
        float du[cpu::kMaxColumns], sum[cpu::kMaxColumns];
        cpu::ColumnBackward pass{};
        pass.rows = 1;
        pass.cols = std::min(cpu::kMaxColumns, out.cols - col);
        pass.dy = bound[dy].at<float>(m, g, row) + col;
        pass.saved = bound[x].at<float>(m, g, row) + col;
        pass.du = du;
        pass.sum = sum;
        pass.activation = static_cast<std::uint8_t>(p.activation);
        cpu::set_dropout(pass, p, bound[state], out, {m, g, row, col});
        simd.column_backward(pass);
        simd.add_rows(pass.cols, du, nullptr, out.at<float>(m, g, row) + col, bound.accumulates(dx));
    }
}

}  // namespace

MILLRACE_OPERATOR(fill, {}, {"out", write});
MILLRACE_OPERATOR(copy, {}, {"in"}, {"out", write});
MILLRACE_OPERATOR(add, {}, {"a"}, {"b"}, {"out", add});
MILLRACE_OPERATOR(pointwise_forward, Phase::forward, {"x"}, {"state"}, {"y", write});
MILLRACE_OPERATOR(pointwise_backward, Phase::backward, {"dy"}, {"x"}, {"state"}, {"dx", add});

void fill::check(Checker& c) { c.require({out}, number, c.shape(out)).params<FillParams>(); }
void copy::check(Checker& c) { c.require({in, out}, number, c.shape(out)); }
void add::check(Checker& c) { c.require({a, out}, real, c.shape(out)).allow({b}, real, c.shape(out)); }
void pointwise_forward::check(Checker& c) {
    c.require({x, y}, real, c.shape(y)).dropout(c.params<PointwiseParams>().dropout, state, c.shape(y).k);
}
void pointwise_backward::check(Checker& c) {
    c.require({dy, x, dx}, real, c.shape(dx)).dropout(c.params<PointwiseParams>().dropout, state, c.shape(dx).k);
}

MILLRACE_HOST_ROWS(fill, out, bound[fill::out].cols, fill_row);
MILLRACE_HOST_ROWS(copy, out, bound[copy::out].cols, copy_row);
MILLRACE_HOST_ROWS(add, out, bound[add::out].cols, add_row);
MILLRACE_HOST_KERNELS(pointwise_forward, host::run_rows(bound, pointwise_forward::y, host::each_row(forward_row)),
                      host::make_rows(context, bound, pointwise_forward::y, bound[pointwise_forward::y].cols,
                                      host::each_row(forward_row_in_blocks)));
MILLRACE_HOST_KERNELS(pointwise_backward, host::run_rows(bound, pointwise_backward::dx, host::each_row(backward_row)),
                      host::make_rows(context, bound, pointwise_backward::dx, bound[pointwise_backward::dx].cols,
                                      host::each_row(backward_row_in_blocks)));

MILLRACE_REWRITE(fills, fill, 0);

}  // namespace millrace::ops
