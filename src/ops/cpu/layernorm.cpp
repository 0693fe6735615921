#include <algorithm>
#include <cmath>

#include "ops/cpu/kernel.h"

namespace millrace::ops::cpu {
namespace {

using tensor::DType;
using tensor::Operand;

constexpr int kSumRows = 64;  ///< as in the column loops: long sums go in pieces

template <class Term>
float sum_terms(int n, Term&& term) {
    float lanes[8] = {};
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int j = 0; j < 8; ++j) lanes[j] += term(i + j);
    }
    for (int j = 0; i < n; ++i, ++j) lanes[j] += term(i);
    return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

template <class Body>
void for_each_row(Context& context, const Operand& shape, Body&& body) noexcept {
    const bool parallel = shape.count() >= kParallelElements;
    const Blocks rows(shape.rows, 1, parallel ? 4 * context.pool.threads() : 1);
    context.pool.for_each_if(parallel, shape.k * shape.g * rows.count, [&](int task, int) {
        const int part = task % rows.count, batch = task / rows.count;
        for (int row = rows.begin(part); row < rows.end(part); ++row) body(batch / shape.g, batch % shape.g, row);
    });
}

/// dgamma and dbeta: sums over rows, per column.
class ParameterSums {
public:
    explicit ParameterSums(const Bound& bound) : b_(bound) {}

    void columns(int member, int group, int col, int cols) const noexcept {
        using namespace layernorm_backward;
        float sum[kMaxColumns] = {}, sum_hat[kMaxColumns] = {};
        const Operand& in = b_[x];
        for (int begin = 0; begin < in.rows; begin += kSumRows) {
            float part[kMaxColumns] = {}, part_hat[kMaxColumns] = {};
            for (int row = begin; row < std::min(in.rows, begin + kSumRows); ++row) {
                const float* grad = b_[dy].at<float>(member, group, row) + col;
                const float* value = in.at<float>(member, group, row) + col;
                const float centre = *b_[mean].at<float>(member, group, row), scale = *b_[inv_std].at<float>(member, group, row);
                for (int i = 0; i < cols; ++i) {
                    part[i] += grad[i];
                    part_hat[i] += grad[i] * ((value[i] - centre) * scale);
                }
            }
            for (int i = 0; i < cols; ++i) {
                sum[i] += part[i];
                sum_hat[i] += part_hat[i];
            }
        }
        put(dbeta, member, group, col, cols, sum);
        put(dgamma, member, group, col, cols, sum_hat);
    }

private:
    void put(int slot, int member, int group, int col, int cols, const float* values) const noexcept {
        if (!b_[slot].present()) return;
        float* out = b_[slot].at<float>(member, group) + col;
        const bool add = b_.accumulates(slot);
        for (int i = 0; i < cols; ++i) out[i] = add ? out[i] + values[i] : values[i];
    }
    const Bound& b_;
};

void input_gradient(const Bound& b, int member, int group, int row) noexcept {
    using namespace layernorm_backward;
    const int cols = b[x].cols;
    const float* grad = b[dy].at<float>(member, group, row);
    const float* value = b[x].at<float>(member, group, row);
    const float* weight = b[gamma].at<float>(member, group);
    const float centre = *b[mean].at<float>(member, group, row), scale = *b[inv_std].at<float>(member, group, row);
    const auto n = static_cast<float>(cols);
    const float sum = sum_terms(cols, [&](int i) { return grad[i] * weight[i]; }) / n;
    const float sum_hat = sum_terms(cols, [&](int i) { return grad[i] * weight[i] * ((value[i] - centre) * scale); }) / n;
    float* out = b[dx].at<float>(member, group, row);
    const bool add = b.accumulates(dx);
    for (int i = 0; i < cols; ++i) {
        const float d = scale * (grad[i] * weight[i] - sum - (value[i] - centre) * scale * sum_hat);
        out[i] = add ? out[i] + d : d;
    }
}

}  // namespace

KernelResult make_layernorm_forward(Context& context, const Bound& bound) {
    using namespace layernorm_forward;
    const Operand out = bound[y];
    Checker check(bound);
    check.require(y, DType::f32, out.k, out.g, out.rows, out.cols).like(x, y);
    for (const int slot : {gamma, beta}) check.require(slot, DType::f32, out.k, out.g, 1, out.cols);
    for (const int slot : {mean, inv_std}) check.require(slot, DType::f32, out.k, out.g, out.rows, 1);
    MILLRACE_TRY(check.status());
    return make_kernel([&context, b = bound, out, eps = bound.params<LayerNormParams>().eps]() noexcept {
        for_each_row(context, out, [&](int member, int group, int row) {
            const float* value = b[x].at<float>(member, group, row);
            const auto n = static_cast<float>(out.cols);
            const float centre = sum_terms(out.cols, [&](int i) { return value[i]; }) / n;
            const float variance = sum_terms(out.cols, [&](int i) { return (value[i] - centre) * (value[i] - centre); }) / n;
            const float scale = 1.0f / std::sqrt(variance + eps);
            *b[mean].at<float>(member, group, row) = centre;
            *b[inv_std].at<float>(member, group, row) = scale;
            const float *weight = b[gamma].at<float>(member, group), *offset = b[beta].at<float>(member, group);
            float* to = out.at<float>(member, group, row);
            for (int i = 0; i < out.cols; ++i) to[i] = (value[i] - centre) * scale * weight[i] + offset[i];
        });
    });
}

KernelResult make_layernorm_backward(Context& context, const Bound& bound) {
    using namespace layernorm_backward;
    const Operand in = bound[x];
    Checker check(bound);
    check.require(x, DType::f32, in.k, in.g, in.rows, in.cols)
        .like(dy, x)
        .allow_like(dx, x)
        .require(gamma, DType::f32, in.k, in.g, 1, in.cols);
    for (const int slot : {mean, inv_std}) check.require(slot, DType::f32, in.k, in.g, in.rows, 1);
    for (const int slot : {dgamma, dbeta}) check.allow(slot, DType::f32, in.k, in.g, 1, in.cols);
    MILLRACE_TRY(check.status());
    return make_kernel([&context, b = bound, in]() noexcept {
        const bool parallel = in.count() >= kParallelElements;
        const Blocks columns(in.cols, 16, parallel ? 2 * context.pool.threads() : 1, kMaxColumns);
        context.pool.for_each_if(parallel, in.k * in.g * columns.count, [&](int task, int) {
            const int part = task % columns.count, batch = task / columns.count;
            ParameterSums(b).columns(batch / in.g, batch % in.g, columns.begin(part), columns.end(part) - columns.begin(part));
        });
        // Last, because dx may be the memory of dy.
        if (b[dx].present())
            for_each_row(context, in, [&](int member, int group, int row) { input_gradient(b, member, group, row); });
    });
}

}  // namespace millrace::ops::cpu
