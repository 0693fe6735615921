#include <cmath>

#include "ops/norm/layernorm.h"
#include "ops/ref/kernels.h"

namespace millrace::ops::ref {

void run_layernorm_forward(const Bound& bound) {
    namespace at = layernorm_forward;
    const auto &x = bound[at::x], &y = bound[at::y];
    const double eps = bound.params<LayerNormParams>().eps;
    for_each_matrix(x, [&](int m, int g) {
        const double *gamma = bound[at::gamma].at<double>(m, g), *beta = bound[at::beta].at<double>(m, g);
        for (int b = 0; b < x.rows; ++b) {
            const double* row = x.at<double>(m, g, b);
            if (bound[at::residual].present()) {
                double* both = bound[at::sum].at<double>(m, g, b);
                for (int c = 0; c < x.cols; ++c) both[c] = row[c] + bound[at::residual].at<double>(m, g, b)[c];
                row = both;
            }
            double sum = 0, squares = 0;
            for (int c = 0; c < x.cols; ++c) sum += row[c];
            const double mean = sum / x.cols;
            for (int c = 0; c < x.cols; ++c) squares += (row[c] - mean) * (row[c] - mean);
            const double inv_std = 1 / std::sqrt(squares / x.cols + eps);
            for (int c = 0; c < x.cols; ++c) y.at<double>(m, g, b)[c] = gamma[c] * (row[c] - mean) * inv_std + beta[c];
            if (bound[at::mean].present()) *bound[at::mean].at<double>(m, g, b) = mean;
            if (bound[at::inv_std].present()) *bound[at::inv_std].at<double>(m, g, b) = inv_std;
        }
    });
}

namespace {

/// Gradients of gamma and beta: sums over the rows of one matrix.
void layernorm_parameters(const Bound& bound, int m, int g) {
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
        if (bound[at::dgamma].present()) store(bound[at::dgamma].at<double>(m, g)[c], dgamma, bound.accumulates(at::dgamma));
        if (bound[at::dbeta].present()) store(bound[at::dbeta].at<double>(m, g)[c], dbeta, bound.accumulates(at::dbeta));
    }
}

}  // namespace

void run_layernorm_backward(const Bound& bound) {
    namespace at = layernorm_backward;
    const auto &dy = bound[at::dy], &x = bound[at::x];
    for_each_matrix(x, [&](int m, int g) {
        layernorm_parameters(bound, m, g);
        if (!bound[at::dx].present() && !bound[at::dresidual].present()) return;
        const double* gamma = bound[at::gamma].at<double>(m, g);
        for (int b = 0; b < x.rows; ++b) {
            const double mean = *bound[at::mean].at<double>(m, g, b), inv_std = *bound[at::inv_std].at<double>(m, g, b);
            const double *row = x.at<double>(m, g, b), *grad = dy.at<double>(m, g, b);
            double sum = 0, sum_xhat = 0;
            for (int c = 0; c < x.cols; ++c) {
                sum += gamma[c] * grad[c];
                sum_xhat += gamma[c] * grad[c] * (row[c] - mean) * inv_std;
            }
            for (int c = 0; c < x.cols; ++c) {
                const double xhat = (row[c] - mean) * inv_std;
                const double value = inv_std * (gamma[c] * grad[c] - sum / x.cols - xhat * sum_xhat / x.cols);
                for (const int slot : {at::dx, at::dresidual})
                    if (bound[slot].present()) store(bound[slot].at<double>(m, g, b)[c], value, bound.accumulates(slot));
            }
        }
    });
}

}  // namespace millrace::ops::ref
