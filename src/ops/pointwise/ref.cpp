#include "ops/pointwise/pointwise.h"
#include "ops/ref/activation.h"
#include "ops/ref/kernels.h"

namespace millrace::ops::ref {
namespace {

template <class Body>
void for_each_element(const tensor::Operand& shape, Body&& body) {
    for_each_matrix(shape, [&](int m, int g) {
        for (int b = 0; b < shape.rows; ++b)
            for (int c = 0; c < shape.cols; ++c) body(m, g, b, c);
    });
}

}  // namespace

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
