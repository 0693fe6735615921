#include <algorithm>
#include <cmath>

#include "ops/dense/dense.h"
#include "ops/ref/kernels.h"

namespace millrace::ops::ref {
namespace {

namespace fwd = dense_forward;
namespace bwd = dense_backward;
using tensor::Operand;

/// y = x w^T, for one matrix: y is where z lives until it is finished.
void product(const Bound& bound, int m, int g) {
    const auto &x = bound[fwd::x], &w = bound[fwd::w], &y = bound[fwd::y];
    for (int b = 0; b < y.rows; ++b)
        for (int o = 0; o < y.cols; ++o) {
            const double* left = x.at<double>(m, g, b);
            const double* right = w.at<double>(m, g, o);
            double sum = 0;
            for (int i = 0; i < x.cols; ++i) sum += left[i] * right[i];
            y.at<double>(m, g, b)[o] = sum;
        }
}

/// Of a column over some rows: the mean, and the sum of squared distances from it.
struct Moments {
    double mean = 0, squares = 0;
};

Moments moments_of(const Operand& z, int m, int g, int o, int begin, int end) {
    double sum = 0, squares = 0;
    for (int b = begin; b < end; ++b) sum += z.at<double>(m, g, b)[o];
    const double mean = sum / (end - begin);
    for (int b = begin; b < end; ++b) {
        const double centred = z.at<double>(m, g, b)[o] - mean;
        squares += centred * centred;
    }
    return {mean, squares};
}

/// Of all rows from those of the chunks.
Moments joined_moments(const Operand& chunks, int m, int g, int o, int rows) {
    Moments all;
    for (int c = 0; c < chunks.rows; ++c) {
        const double* chunk = chunks.at<double>(m, g, c);
        const double before = c * kMomentRows, here = std::min<double>(kMomentRows, rows - before);
        const double apart = chunk[o] - all.mean;
        all.mean += apart * here / (before + here);
        all.squares += chunk[chunks.cols / 2 + o] + apart * apart * before * here / (before + here);
    }
    return all;
}

/// What is subtracted from a column, and what it is multiplied by then.
struct Scaling {
    double mean = 0, inv_std = 1;
};

/// By the moments of its batch, without the bias; the running ones move.
Scaling batch_scaling(const Bound& bound, const Moments& batch, int m, int g, int o, double bias) {
    const auto& params = bound.params<DenseParams>();
    const int rows = bound[fwd::y].rows;
    const double mean = batch.mean + bias, variance = batch.squares / rows, momentum = params.momentum;
    const double unbiased = rows > 1 ? batch.squares / (rows - 1) : variance;
    double& running_mean = bound[fwd::running_mean].at<double>(m, g)[o];
    double& running_var = bound[fwd::running_var].at<double>(m, g)[o];
    if (std::isfinite(mean) && std::isfinite(unbiased)) {
        running_mean = (1 - momentum) * running_mean + momentum * mean;
        running_var = (1 - momentum) * running_var + momentum * unbiased;
    }
    const double inv_std = 1 / std::sqrt(variance + params.eps);
    bound[fwd::inv_std].at<double>(m, g)[o] = inv_std;
    return {mean, inv_std};
}

Scaling running_scaling(const Bound& bound, int m, int g, int o) {
    const double variance = bound[fwd::running_var].at<double>(m, g)[o];
    return {bound[fwd::running_mean].at<double>(m, g)[o], 1 / std::sqrt(variance + bound.params<DenseParams>().eps)};
}

/// Bias, norm, activation and dropout of column `o` of z, which may be y, for dense_forward and batch_apply.
void finish_column(const Bound& bound, const Operand& z, const Moments& batch, int m, int g, int o) {
    const auto& params = bound.params<DenseParams>();
    const auto &y = bound[fwd::y], &saved = bound[fwd::saved];
    const Dropout dropout(params.dropout, params.op_number, bound[fwd::state]);
    const double bias = bound[fwd::bias].present() ? bound[fwd::bias].at<double>(m, g)[o] : 0;
    const bool normed = params.norm != Norm::none;
    Scaling by;
    if (params.norm == Norm::batch_train) by = batch_scaling(bound, batch, m, g, o, bias);
    if (params.norm == Norm::batch_eval) by = running_scaling(bound, m, g, o);
    for (int b = 0; b < y.rows; ++b) {
        const double value = z.at<double>(m, g, b)[o] + bias, xhat = (value - by.mean) * by.inv_std;
        const double u = normed ? bound[fwd::gamma].at<double>(m, g)[o] * xhat + bound[fwd::beta].at<double>(m, g)[o] : value;
        if (saved.present()) saved.at<double>(m, g, b)[o] = params.norm == Norm::batch_train ? xhat : u;
        y.at<double>(m, g, b)[o] = activate(params.activation, u) * dropout.factor(m, element_of(y, g, b, o));
    }
}

/// du of one element.
double gradient_at(const Bound& bound, int m, int g, int b, int o) {
    const auto& params = bound.params<DenseParams>();
    const auto &dy = bound[bwd::dy], &saved = bound[bwd::saved];
    const Dropout dropout(params.dropout, params.op_number, bound[bwd::state]);
    double u = saved.present() ? saved.at<double>(m, g, b)[o] : 0;
    if (params.norm == Norm::batch_train) u = bound[bwd::gamma].at<double>(m, g)[o] * u + bound[bwd::beta].at<double>(m, g)[o];
    return dy.at<double>(m, g, b)[o] * dropout.factor(m, element_of(dy, g, b, o)) * slope(params.activation, u);
}

/// Of a column over some rows: of du, and of du times what is saved.
struct Sums {
    double du = 0, dot = 0;
};

Sums gradient_sums(const Bound& bound, int m, int g, int o, int begin, int end) {
    const auto& saved = bound[bwd::saved];
    Sums sums;
    for (int b = begin; b < end; ++b) {
        const double du = gradient_at(bound, m, g, b, o);
        sums.du += du;
        sums.dot += du * (saved.present() ? saved.at<double>(m, g, b)[o] : 0);
    }
    return sums;
}

/// Parameters' gradients and dz of column `o` from the sums over all rows, for dense_backward and batch_apply_backward.
void finish_gradient(const Bound& bound, const Sums& sums, int m, int g, int o) {
    const auto &saved = bound[bwd::saved], &dz = bound[bwd::dz];
    const bool normed = bound.params<DenseParams>().norm == Norm::batch_train;
    const auto add_to = [&](int slot, double value) {
        if (bound[slot].present()) store(bound[slot].at<double>(m, g)[o], value, bound.accumulates(slot));
    };
    if (normed) {
        add_to(bwd::dgamma, sums.dot);
        add_to(bwd::dbeta, sums.du);
    } else {
        add_to(bwd::dbias, sums.du);
    }
    const double rows = dz.rows;
    const double factor = normed ? bound[bwd::gamma].at<double>(m, g)[o] * bound[bwd::inv_std].at<double>(m, g)[o] / rows : 1;
    for (int b = 0; b < dz.rows; ++b) {
        const double du = gradient_at(bound, m, g, b, o);
        dz.at<double>(m, g, b)[o] = normed ? factor * (rows * du - sums.du - saved.at<double>(m, g, b)[o] * sums.dot) : du;
    }
}

/// Calls body(m, g, o) for every column of every matrix.
template <class Body>
void for_each_column(const Operand& shape, Body body) {
    for_each_matrix(shape, [&](int m, int g) {
        for (int o = 0; o < shape.cols; ++o) body(m, g, o);
    });
}

/// Fills moments [K,G,chunks,2 cols] with both numbers of moments_of_rows(m, g, o, begin, end) for every chunk of `rows` rows.
template <class MomentsOfRows>
void fill_moments(const Operand& moments, int rows, MomentsOfRows moments_of_rows) {
    const int cols = moments.cols / 2;
    for_each_matrix(moments, [&](int m, int g) {
        for (int chunk = 0; chunk < moments.rows; ++chunk)
            for (int o = 0; o < cols; ++o) {
                double* to = moments.at<double>(m, g, chunk);
                const int begin = chunk * kMomentRows;
                const auto [first, second] = moments_of_rows(m, g, o, begin, std::min(rows, begin + kMomentRows));
                to[o] = first;
                to[cols + o] = second;
            }
    });
}

}  // namespace

void run_dense_forward(const Bound& bound) {
    const auto& y = bound[fwd::y];
    const bool batch = bound.params<DenseParams>().norm == Norm::batch_train;
    for_each_matrix(y, [&](int m, int g) { product(bound, m, g); });
    for_each_column(
        y, [&](int m, int g, int o) { finish_column(bound, y, batch ? moments_of(y, m, g, o, 0, y.rows) : Moments{}, m, g, o); });
}

void run_batch_moments(const Bound& bound) {
    const auto& z = bound[batch_moments::z];
    fill_moments(bound[batch_moments::moments], z.rows,
                 [&](int m, int g, int o, int begin, int end) { return moments_of(z, m, g, o, begin, end); });
}

void run_batch_apply(const Bound& bound) {
    const auto &z = bound[batch_apply::z], &moments = bound[batch_apply::moments];
    for_each_column(z, [&](int m, int g, int o) { finish_column(bound, z, joined_moments(moments, m, g, o, z.rows), m, g, o); });
}

void run_dense_backward(const Bound& bound) {
    const auto& dz = bound[bwd::dz];
    for_each_column(dz, [&](int m, int g, int o) { finish_gradient(bound, gradient_sums(bound, m, g, o, 0, dz.rows), m, g, o); });
}

void run_batch_moments_backward(const Bound& bound) {
    fill_moments(bound[batch_moments_backward::sums], bound[bwd::dy].rows,
                 [&](int m, int g, int o, int begin, int end) { return gradient_sums(bound, m, g, o, begin, end); });
}

void run_batch_apply_backward(const Bound& bound) {
    const auto& chunks = bound[batch_apply_backward::sums];
    for_each_column(bound[bwd::dz], [&](int m, int g, int o) {
        Sums sums;
        for (int c = 0; c < chunks.rows; ++c) {
            sums.du += chunks.at<double>(m, g, c)[o];
            sums.dot += chunks.at<double>(m, g, c)[chunks.cols / 2 + o];
        }
        finish_gradient(bound, sums, m, g, o);
    });
}

void run_linear_dgrad(const Bound& bound) {
    const auto &dz = bound[linear_dgrad::dz], &w = bound[linear_dgrad::w], &dx = bound[linear_dgrad::dx];
    const bool accumulate = bound.accumulates(linear_dgrad::dx);
    for_each_matrix(dx, [&](int m, int g) {
        for (int b = 0; b < dx.rows; ++b)
            for (int i = 0; i < dx.cols; ++i) {
                double sum = 0;
                for (int o = 0; o < dz.cols && i < w.cols; ++o) sum += dz.at<double>(m, g, b)[o] * w.at<double>(m, g, o)[i];
                store(dx.at<double>(m, g, b)[i], sum, accumulate);
            }
    });
}

void run_linear_wgrad(const Bound& bound) {
    const auto &dz = bound[linear_wgrad::dz], &x = bound[linear_wgrad::x], &dw = bound[linear_wgrad::dw];
    const auto& dbias = bound[linear_wgrad::dbias];
    const bool accumulate = bound.accumulates(linear_wgrad::dw);
    for_each_matrix(dw, [&](int m, int g) {
        for (int o = 0; o < dw.rows; ++o) {
            for (int i = 0; i < dw.cols; ++i) {
                double sum = 0;
                for (int b = 0; b < dz.rows; ++b) sum += dz.at<double>(m, g, b)[o] * x.at<double>(m, g, b)[i];
                store(dw.at<double>(m, g, o)[i], sum, accumulate);
            }
            double sum = 0;
            for (int b = 0; b < dz.rows; ++b) sum += dz.at<double>(m, g, b)[o];
            if (dbias.present()) store(dbias.at<double>(m, g)[o], sum, bound.accumulates(linear_wgrad::dbias));
        }
    });
}

void run_column_sum(const Bound& bound) {
    using namespace column_sum;
    for (int slot = out; slot <= third; ++slot) {
        const Operand &from = bound[in], &to = bound[slot];
        const int first = bound.params<ColumnSumParams>().from[slot - out];
        if (!to.present()) continue;
        for_each_column(to, [&](int m, int g, int c) {
            double sum = 0;
            for (int row = 0; row < from.rows; ++row) sum += from.at<double>(m, g, row)[first + c];
            store(to.at<double>(m, g)[c], sum, bound.accumulates(slot));
        });
    }
}

}  // namespace millrace::ops::ref
