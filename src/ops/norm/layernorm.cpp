#include "ops/norm/layernorm.h"

#include "ops/host_kernels.h"
#include "ops/kernels.h"
#include "ops/ref/kernels.h"

namespace millrace::ops {
namespace {

using tensor::Operand;

template <class T>
void normalize_rows(const Bound& b, int matrix, int begin, int end, const host::Loops<T>& loops) {
    using namespace layernorm_forward;
    const Operand& out = b[y];
    const int member = matrix / out.g, group = matrix % out.g;
    const float eps = b.params<LayerNormParams>().eps;
    for (int row = begin; row < end; ++row) {
        const T* in = b[x].at<T>(member, group, row);
        if (b[residual].present()) {
            T* both = b[sum].at<T>(member, group, row);
            loops.add_rows(out.cols, in, b[residual].at<T>(member, group, row), both, false);
            in = both;
        }
        const auto norm = loops.layernorm_row(out.cols, in, b[gamma].at<T>(member, group), b[beta].at<T>(member, group), eps,
                                              out.at<T>(member, group, row));
        *b[mean].at<T>(member, group, row) = norm.mean;
        *b[inv_std].at<T>(member, group, row) = norm.inv_std;
    }
}

/// Behind the gradients of the parameters, and dx behind dresidual, because dx may be the memory of dy.
template <class T>
void rows_back(const Bound& b, int matrix, int begin, int end, const host::Loops<T>& loops) {
    using namespace layernorm_backward;
    const Operand& in = b[x];
    const int member = matrix / in.g, group = matrix % in.g;
    for (int row = begin; row < end; ++row)
        for (const int slot : {dresidual, dx})
            if (b[slot].present())
                loops.layernorm_row_backward(in.cols, b[dy].at<T>(member, group, row), in.at<T>(member, group, row),
                                             b[gamma].at<T>(member, group),
                                             {*b[mean].at<T>(member, group, row), *b[inv_std].at<T>(member, group, row)},
                                             b[slot].at<T>(member, group, row), b.accumulates(slot));
}

/// dgamma and dbeta: sums over rows, per column.
void add_parameters(const cpu::SimdKernels& simd, const Bound& b, int member, int group, int col, int cols) noexcept {
    using namespace layernorm_backward;
    float sum[cpu::kMaxColumns], sum_hat[cpu::kMaxColumns];
    cpu::LayerNormSums pass{};
    pass.rows = b[x].rows;
    pass.cols = cols;
    pass.dy = b[dy].at<float>(member, group) + col;
    pass.dy_stride = b[dy].stride_row;
    pass.x = b[x].at<float>(member, group) + col;
    pass.x_stride = b[x].stride_row;
    pass.mean = b[mean].at<float>(member, group);
    pass.mean_stride = b[mean].stride_row;
    pass.inv_std = b[inv_std].at<float>(member, group);
    pass.inv_std_stride = b[inv_std].stride_row;
    pass.sum = sum;
    pass.sum_hat = sum_hat;
    simd.layernorm_column_sums(pass);
    cpu::put_columns(b, dbeta, member, group, col, cols, sum);
    cpu::put_columns(b, dgamma, member, group, col, cols, sum_hat);
}

/// The same for all columns of one matrix.
void add_parameters(const Bound& bound, int m, int g) {
    namespace at = layernorm_backward;
    const auto &dy = bound[at::dy], &x = bound[at::x];
    for (int c = 0; c < x.cols; ++c) {
        double dgamma = 0, dbeta = 0;
        for (int b = 0; b < x.rows; ++b) {
            const double xhat =
                (x.at<double>(m, g, b)[c] - *bound[at::mean].at<double>(m, g, b)) * *bound[at::inv_std].at<double>(m, g, b);
            dgamma += dy.at<double>(m, g, b)[c] * xhat;
            dbeta += dy.at<double>(m, g, b)[c];
        }
        if (bound[at::dgamma].present()) ref::store(bound[at::dgamma].at<double>(m, g)[c], dgamma, bound.accumulates(at::dgamma));
        if (bound[at::dbeta].present()) ref::store(bound[at::dbeta].at<double>(m, g)[c], dbeta, bound.accumulates(at::dbeta));
    }
}

void run_backward(const Bound& bound) {
    ref::for_each_matrix(bound[layernorm_backward::x], [&](int m, int g) { add_parameters(bound, m, g); });
    host::run_rows(bound, layernorm_backward::x, rows_back<double>);
}
KernelResult make_backward(cpu::Context& context, const Bound& bound) {
    using namespace layernorm_backward;
    const Operand& in = bound[x];
    MILLRACE_LET(rows, host::make_rows(context, bound, x, in.cols, rows_back<float>));
    const bool wants_rows = bound[dx].present() || bound[dresidual].present();
    return cpu::make_kernel([&context, b = bound, in, wants_rows, rows = std::move(rows)]() noexcept {
        cpu::for_each_columns(context, in, [&](int member, int group, int col, int cols) {
            add_parameters(context.simd, b, member, group, col, cols);
        });
        if (wants_rows) rows->run();
    });
}

}  // namespace

MILLRACE_OPERATOR(layernorm_forward, Phase::forward, {"x"}, {"residual"}, {"gamma"}, {"beta"}, {"mean", write},
                  {"inv_std", write}, {"sum", write}, {"y", write});
MILLRACE_OPERATOR(layernorm_backward, Phase::backward, {"dy"}, {"x"}, {"gamma"}, {"mean"}, {"inv_std"}, {"dx", add},
                  {"dresidual", add}, {"dgamma", add}, {"dbeta", add});

MILLRACE_REWRITE(norms_forward, layernorm_forward, 0);
MILLRACE_REWRITE(norms_backward, layernorm_backward, 0);

void layernorm_forward::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(y);
    c.require({x, y}, real, c.shape(y)).allow({residual, sum}, real, c.shape(y));
    c.needs({sum}, c[residual].present()).needs({residual}, c[sum].present());
    c.require({gamma, beta}, stat, {k, g, 1, cols}).require({mean, inv_std}, stat, {k, g, rows, 1}).params<LayerNormParams>();
}

void layernorm_backward::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(x);
    c.require({x, dy}, real, c.shape(x)).allow({dx, dresidual}, real, c.shape(x));
    c.require({gamma}, stat, {k, g, 1, cols}).allow({dgamma, dbeta}, stat, {k, g, 1, cols});
    c.require({mean, inv_std}, stat, {k, g, rows, 1});
}

MILLRACE_HOST_PIECES(layernorm_forward, y, bound[layernorm_forward::y].cols, normalize_rows);
MILLRACE_HOST_KERNELS(layernorm_backward, run_backward(bound), make_backward(context, bound));

}  // namespace millrace::ops
