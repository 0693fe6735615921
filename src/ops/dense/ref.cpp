#include <cmath>

#include "ops/dense/dense.h"
#include "ops/ref/activation.h"
#include "ops/ref/kernels.h"

namespace millrace::ops::ref {
namespace {

namespace fwd = dense_forward;
namespace bwd = dense_backward;

/// y = x w^T + bias, for one matrix: y is where z lives until the norm has been applied.
void product(const Bound& bound, int m, int g) {
    const auto &x = bound[fwd::x], &w = bound[fwd::w], &bias = bound[fwd::bias], &y = bound[fwd::y];
    for (int b = 0; b < y.rows; ++b)
        for (int o = 0; o < y.cols; ++o) {
            const double* left = x.at<double>(m, g, b);
            const double* right = w.at<double>(m, g, o);
            double sum = 0;
            for (int i = 0; i < x.cols; ++i) sum += left[i] * right[i];
            y.at<double>(m, g, b)[o] = sum + (bias.present() ? bias.at<double>(m, g)[o] : 0);
        }
}

struct Moments {
    double mean = 0, inv_std = 0;
};

/// Statistics of column `o` of z over the batch; the running ones move.
Moments batch_moments(const Bound& bound, int m, int g, int o) {
    const auto& params = bound.params<DenseParams>();
    const auto& z = bound[fwd::y];
    const int rows = z.rows;
    double sum = 0, squares = 0;
    for (int b = 0; b < rows; ++b) sum += z.at<double>(m, g, b)[o];
    const double mean = sum / rows;
    for (int b = 0; b < rows; ++b) {
        const double centred = z.at<double>(m, g, b)[o] - mean;
        squares += centred * centred;
    }
    const double variance = squares / rows;
    const double unbiased = rows > 1 ? squares / (rows - 1) : variance;
    const double momentum = params.momentum;
    double& running_mean = bound[fwd::running_mean].at<double>(m, g)[o];
    double& running_var = bound[fwd::running_var].at<double>(m, g)[o];
    if (std::isfinite(mean) && std::isfinite(unbiased)) {
        running_mean = (1 - momentum) * running_mean + momentum * mean;
        running_var = (1 - momentum) * running_var + momentum * unbiased;
    }
    return {mean, 1 / std::sqrt(variance + params.eps)};
}

Moments running_moments(const Bound& bound, int m, int g, int o) {
    const double variance = bound[fwd::running_var].at<double>(m, g)[o];
    return {bound[fwd::running_mean].at<double>(m, g)[o], 1 / std::sqrt(variance + bound.params<DenseParams>().eps)};
}

/// Norm, activation and dropout of column `o`, in place on y.
void finish_column(const Bound& bound, int m, int g, int o) {
    const auto& params = bound.params<DenseParams>();
    const auto &y = bound[fwd::y], &saved = bound[fwd::saved];
    const Dropout dropout(params.dropout, params.op_number, bound[fwd::state]);
    const bool normed = params.norm != Norm::none;
    Moments moments;
    if (params.norm == Norm::batch_train) {
        moments = batch_moments(bound, m, g, o);
        bound[fwd::inv_std].at<double>(m, g)[o] = moments.inv_std;
    } else if (params.norm == Norm::batch_eval) {
        moments = running_moments(bound, m, g, o);
    }
    for (int b = 0; b < y.rows; ++b) {
        double& value = y.at<double>(m, g, b)[o];
        const double xhat = (value - moments.mean) * moments.inv_std;
        const double u = normed ? bound[fwd::gamma].at<double>(m, g)[o] * xhat + bound[fwd::beta].at<double>(m, g)[o] : value;
        if (saved.present()) saved.at<double>(m, g, b)[o] = params.norm == Norm::batch_train ? xhat : u;
        value = activate(params.activation, u) * dropout.factor(m, element_of(y, g, b, o));
    }
}

/// Column `o` from dy to du, which is left in dz, and on to dz.
void backward_column(const Bound& bound, int m, int g, int o) {
    const auto& params = bound.params<DenseParams>();
    const auto &dy = bound[bwd::dy], &saved = bound[bwd::saved], &dz = bound[bwd::dz];
    const Dropout dropout(params.dropout, params.op_number, bound[bwd::state]);
    const bool normed = params.norm == Norm::batch_train;
    const double gamma = normed ? bound[bwd::gamma].at<double>(m, g)[o] : 1;
    const double beta = normed ? bound[bwd::beta].at<double>(m, g)[o] : 0;
    double sum = 0, sum_xhat = 0;
    for (int b = 0; b < dz.rows; ++b) {
        const double kept = saved.present() ? saved.at<double>(m, g, b)[o] : 0;
        const double u = normed ? gamma * kept + beta : kept;
        const double du = dy.at<double>(m, g, b)[o] * dropout.factor(m, element_of(dz, g, b, o)) * slope(params.activation, u);
        dz.at<double>(m, g, b)[o] = du;
        sum += du;
        sum_xhat += du * kept;
    }
    const auto add_to = [&](int slot, double value) {
        if (bound[slot].present()) store(bound[slot].at<double>(m, g)[o], value, bound.accumulates(slot));
    };
    if (!normed) {
        add_to(bwd::dbias, sum);
        return;
    }
    add_to(bwd::dgamma, sum_xhat);
    add_to(bwd::dbeta, sum);
    const double rows = dz.rows, inv_std = bound[bwd::inv_std].at<double>(m, g)[o];
    for (int b = 0; b < dz.rows; ++b) {
        double& value = dz.at<double>(m, g, b)[o];
        value = gamma * inv_std / rows * (rows * value - sum - saved.at<double>(m, g, b)[o] * sum_xhat);
    }
}

}  // namespace

void run_dense_forward(const Bound& bound) {
    const auto& y = bound[fwd::y];
    for_each_matrix(y, [&](int m, int g) {
        product(bound, m, g);
        for (int o = 0; o < y.cols; ++o) finish_column(bound, m, g, o);
    });
}

void run_dense_backward(const Bound& bound) {
    const auto& dz = bound[bwd::dz];
    for_each_matrix(dz, [&](int m, int g) {
        for (int o = 0; o < dz.cols; ++o) backward_column(bound, m, g, o);
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
    namespace at = column_sum;
    const auto &in = bound[at::in], &out = bound[at::out];
    for_each_matrix(in, [&](int m, int g) {
        for (int c = 0; c < in.cols; ++c) {
            double sum = 0;
            for (int row = 0; row < in.rows; ++row) sum += in.at<double>(m, g, row)[c];
            store(out.at<double>(m, g)[c], sum, bound.accumulates(at::out));
        }
    });
}

}  // namespace millrace::ops::ref
