#include <cmath>

#include "ops/recurrent/gru.h"
#include "ops/ref/activation.h"
#include "ops/ref/kernels.h"

namespace millrace::ops::ref {
namespace {

/// bias[row] + sum over the columns of w.
double affine(const tensor::Operand& w, const tensor::Operand& bias, int member, int row, const double* x) {
    double sum = bias.at<double>(member)[row];
    const double* weights = w.at<double>(member, 0, row);
    for (int i = 0; i < w.cols; ++i) sum += weights[i] * x[i];
    return sum;
}

bool takes_part(const tensor::Operand& mask, const tensor::Operand& flag, int member, int row) {
    return (!mask.present() || *mask.at<double>(member, 0, row) != 0) && (!flag.present() || *flag.at<std::int32_t>(member) != 0);
}

}  // namespace

void run_gru_forward(const Bound& bound) {
    namespace at = gru_forward;
    const auto &x = bound[at::x], &h = bound[at::h], &out = bound[at::out], &gates = bound[at::gates];
    const int width = h.cols;
    for (int m = 0; m < h.k; ++m)
        for (int row = 0; row < h.rows; ++row) {
            const double *input = x.at<double>(m, 0, row), *old = h.at<double>(m, 0, row);
            double* next = out.at<double>(m, 0, row);
            const bool live = takes_part(bound[at::mask], bound[at::flag], m, row);
            for (int j = 0; j < width; ++j) {
                if (!live) {
                    next[j] = old[j];
                    continue;
                }
                const auto both = [&](int gate) {
                    return affine(bound[at::w_ih], bound[at::b_ih], m, gate * width + j, input) +
                           affine(bound[at::w_hh], bound[at::b_hh], m, gate * width + j, old);
                };
                const double r = sigmoid(both(0)), z = sigmoid(both(1));
                const double hn = affine(bound[at::w_hh], bound[at::b_hh], m, 2 * width + j, old);
                const double n = std::tanh(affine(bound[at::w_ih], bound[at::b_ih], m, 2 * width + j, input) + r * hn);
                next[j] = (1 - z) * n + z * old[j];
                if (!gates.present()) continue;
                double* saved = gates.at<double>(m, 0, row);
                saved[j] = r;
                saved[width + j] = z;
                saved[2 * width + j] = n;
                saved[3 * width + j] = hn;
            }
        }
}

void run_gru_backward(const Bound& bound) {
    namespace at = gru_backward;
    const auto &h = bound[at::h], &dh = bound[at::dh];
    const int width = h.cols;
    const bool begins = bound.params<GruBackwardParams>().begins;
    for (int m = 0; m < h.k; ++m)
        for (int row = 0; row < h.rows; ++row) {
            const double *old = h.at<double>(m, 0, row), *saved = bound[at::gates].at<double>(m, 0, row);
            double *back = bound[at::dgates].at<double>(m, 0, row), *gradient = dh.at<double>(m, 0, row);
            const bool live = takes_part(bound[at::mask], bound[at::flag], m, row);
            for (int j = 0; j < width; ++j) {
                double d = begins ? 0 : gradient[j];
                for (int pair = 0; pair < kGruPairs; ++pair) {
                    const auto &a = bound[at::a0 + 2 * pair], &w = bound[at::w0 + 2 * pair];
                    if (!a.present()) break;
                    for (int i = 0; i < a.cols; ++i) d += a.at<double>(m, 0, row)[i] * w.at<double>(m, 0, i)[j];
                }
                gradient[j] = d;
                for (int gate = 0; gate < 4; ++gate) back[gate * width + j] = 0;
                if (!live) continue;
                const double r = saved[j], z = saved[width + j], n = saved[2 * width + j], hn = saved[3 * width + j];
                const double dn = d * (1 - z) * (1 - n * n);
                back[j] = dn * hn * r * (1 - r);
                back[width + j] = d * (old[j] - n) * z * (1 - z);
                back[2 * width + j] = dn;
                back[3 * width + j] = dn * r;
                gradient[j] = d * z;
            }
        }
}

}  // namespace millrace::ops::ref
