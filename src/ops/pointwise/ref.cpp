#include <cmath>

#include "ops/pointwise/pointwise.h"
#include "ops/ref/activation.h"
#include "ops/ref/kernels.h"
#include "tensor/element.h"

namespace millrace::ops::ref {
namespace {

void* address(const tensor::Operand& o, int m, int g, int b, int c) {
    const std::int64_t element = m * o.stride_k + g * o.stride_g + b * o.stride_row + c;
    return static_cast<std::byte*>(o.data) + element * static_cast<std::int64_t>(tensor::size_of(o.dtype));
}

double load(const tensor::Operand& o, int m, int g, int b, int c) {
    return tensor::read_element(address(o, m, g, b, c), o.dtype);
}

void save(const tensor::Operand& o, int m, int g, int b, int c, double value) {
    tensor::write_element(address(o, m, g, b, c), o.dtype, value);
}

template <class Body>
void for_each_element(const tensor::Operand& shape, Body&& body) {
    for_each_matrix(shape, [&](int m, int g) {
        for (int b = 0; b < shape.rows; ++b)
            for (int c = 0; c < shape.cols; ++c) body(m, g, b, c);
    });
}

}  // namespace

void run_fill(const Bound& bound) {
    const auto& out = bound[fill::out];
    for_each_element(out, [&](int m, int g, int b, int c) { save(out, m, g, b, c, bound.params<FillParams>().value); });
}

void run_copy(const Bound& bound) {
    const auto &in = bound[copy::in], &out = bound[copy::out];
    for_each_element(out, [&](int m, int g, int b, int c) { save(out, m, g, b, c, load(in, m, g, b, c)); });
}

void run_add(const Bound& bound) {
    const auto &first = bound[add::a], &second = bound[add::b], &out = bound[add::out];
    for_each_element(out, [&](int m, int g, int b, int c) {
        const double sum = first.at<double>(m, g, b)[c] + (second.present() ? second.at<double>(m, g, b)[c] : 0);
        store(out.at<double>(m, g, b)[c], sum, bound.accumulates(add::out));
    });
}

void run_pointwise_forward(const Bound& bound) {
    namespace at = pointwise_forward;
    const auto& params = bound.params<PointwiseParams>();
    const auto &x = bound[at::x], &y = bound[at::y];
    const Dropout dropout(params.dropout, params.op_number, bound[at::state]);
    for_each_element(y, [&](int m, int g, int b, int c) {
        y.at<double>(m, g, b)[c] =
            activate(params.activation, x.at<double>(m, g, b)[c]) * dropout.factor(m, element_of(y, g, b, c));
    });
}

void run_pointwise_backward(const Bound& bound) {
    namespace at = pointwise_backward;
    const auto& params = bound.params<PointwiseParams>();
    const auto &dy = bound[at::dy], &x = bound[at::x], &dx = bound[at::dx];
    const Dropout dropout(params.dropout, params.op_number, bound[at::state]);
    for_each_element(dx, [&](int m, int g, int b, int c) {
        const double u = x.present() ? x.at<double>(m, g, b)[c] : 0;
        const double value = dy.at<double>(m, g, b)[c] * dropout.factor(m, element_of(dx, g, b, c)) * slope(params.activation, u);
        store(dx.at<double>(m, g, b)[c], value, bound.accumulates(at::dx));
    });
}

}  // namespace millrace::ops::ref
