#include <array>
#include <cmath>

#include "models/energy_flow/ops/flow.h"
#include "models/energy_flow/ops/flow_rule.h"
#include "ops/ref/kernels.h"

namespace millrace::ops::ref {
namespace {

constexpr int kHidden = kNeuronHidden, kFeatures = kNeuronFeatures, kIn = 4;
constexpr double kEps = 1e-5;
enum Tensor { kPlaceW, kPlaceB, kW0, kB0, kG1, kS1, kW3, kB3, kG4, kS4, kW6, kB6 };

using Hidden = std::array<double, kHidden>;

/// y = w x + b, w [Out, In] row-major.
void affine(const double* w, const double* b, const double* x, int in, double* y, int out) {
    for (int o = 0; o < out; ++o) {
        y[o] = b[o];
        for (int i = 0; i < in; ++i) y[o] += w[o * in + i] * x[i];
    }
}

/// dx = w^T dy; dw += dy x^T; db += dy.
void affine_back(const double* w, const double* x, int in, const double* dy, int out, double* dx, double* dw, double* db) {
    for (int i = 0; i < in; ++i) dx[i] = 0;
    for (int o = 0; o < out; ++o) {
        db[o] += dy[o];
        for (int i = 0; i < in; ++i) {
            dx[i] += w[o * in + i] * dy[o];
            dw[o * in + i] += dy[o] * x[i];
        }
    }
}

/// A hidden layer behind its product: LayerNorm, then GELU.
struct Normed {
    Hidden hat{}, shifted{}, out{};
    double inv_std = 0;
};

Normed norm_forward(const Hidden& z, const double* gain, const double* shift) {
    Normed n;
    double mean = 0, variance = 0;
    for (const double v : z) mean += v / kHidden;
    for (const double v : z) variance += (v - mean) * (v - mean) / kHidden;
    n.inv_std = 1 / std::sqrt(variance + kEps);
    for (std::size_t i = 0; i < kHidden; ++i) {
        n.hat[i] = (z[i] - mean) * n.inv_std;
        n.shifted[i] = gain[i] * n.hat[i] + shift[i];
        n.out[i] = activate(Activation::gelu, n.shifted[i]);
    }
    return n;
}

Hidden norm_back(const Normed& n, const double* gain, const Hidden& dout, double* dgain, double* dshift) {
    Hidden dhat{}, dz{};
    double sum = 0, dot = 0;
    for (std::size_t i = 0; i < kHidden; ++i) {
        const double d = dout[i] * slope(Activation::gelu, n.shifted[i]);
        dgain[i] += d * n.hat[i];
        dshift[i] += d;
        dhat[i] = d * gain[i];
        sum += dhat[i] / kHidden;
        dot += dhat[i] * n.hat[i] / kHidden;
    }
    for (std::size_t i = 0; i < kHidden; ++i) dz[i] = n.inv_std * (dhat[i] - sum - n.hat[i] * dot);
    return dz;
}

struct Pass {
    std::array<double, kIn> in{};
    Normed first, second;
    std::array<double, kFeatures> out{};
};

Pass forward(const double* flow, const double* params, const std::int32_t* at) {
    Pass p;
    affine(params + at[kPlaceW], params + at[kPlaceB], flow, 3, p.in.data(), 3);
    p.in[3] = flow[flow::energy];
    Hidden z{};
    affine(params + at[kW0], params + at[kB0], p.in.data(), kIn, z.data(), kHidden);
    p.first = norm_forward(z, params + at[kG1], params + at[kS1]);
    affine(params + at[kW3], params + at[kB3], p.first.out.data(), kHidden, z.data(), kHidden);
    p.second = norm_forward(z, params + at[kG4], params + at[kS4]);
    affine(params + at[kW6], params + at[kB6], p.second.out.data(), kHidden, p.out.data(), kFeatures);
    return p;
}

}  // namespace

void run_flow_neuron_forward(const Bound& bound) {
    namespace at = flow_neuron_forward;
    const auto &table = bound[at::flow], &out = bound[at::out];
    const std::int32_t* offsets = bound.params<NeuronParams>().offsets;
    for (int m = 0; m < table.k; ++m)
        for (int row = 0; row < table.rows; ++row) {
            double* x = out.at<double>(m, 0, row);
            for (int c = 0; c < out.cols; ++c) x[c] = 0;
            if (table.at<double>(m, 0, row)[flow::active] == 0 || has_stopped(bound[at::counters], m)) continue;
            const double* flow = table.at<double>(m, 0, row);
            const Pass pass = forward(flow, bound[at::params].at<double>(m), offsets);
            for (std::size_t c = 0; c < kFeatures; ++c) x[c] = pass.out[c];
            x[kFeatures] = flow[flow::energy];
        }
}

void run_flow_neuron_backward(const Bound& bound) {
    namespace at = flow_neuron_backward;
    const auto& table = bound[at::flow];
    const std::int32_t* o = bound.params<NeuronParams>().offsets;
    const bool add = bound.accumulates(at::dparams), add_flow = bound.accumulates(at::dflow);
    for (int m = 0; m < table.k; ++m) {
        const double* params = bound[at::params].at<double>(m);
        double* d = bound[at::dparams].at<double>(m);
        for (std::size_t t = 0; t < kNeuronTensors && !add; ++t)
            for (int i = 0; i < kNeuronSizes[t]; ++i) d[o[t] + i] = 0;
        for (int row = 0; row < table.rows; ++row) {
            double* dflow = bound[at::dflow].at<double>(m, 0, row);
            for (int c = 0; c < kFlowColumns && !add_flow; ++c) dflow[c] = 0;
            if (table.at<double>(m, 0, row)[flow::active] == 0 || has_stopped(bound[at::counters], m)) continue;
            const double *flow = table.at<double>(m, 0, row), *dout = bound[at::dout].at<double>(m, 0, row);
            const Pass p = forward(flow, params, o);
            Hidden back{};
            affine_back(params + o[kW6], p.second.out.data(), kHidden, dout, kFeatures, back.data(), d + o[kW6], d + o[kB6]);
            Hidden dz = norm_back(p.second, params + o[kG4], back, d + o[kG4], d + o[kS4]);
            affine_back(params + o[kW3], p.first.out.data(), kHidden, dz.data(), kHidden, back.data(), d + o[kW3], d + o[kB3]);
            dz = norm_back(p.first, params + o[kG1], back, d + o[kG1], d + o[kS1]);
            std::array<double, kIn> din{};
            affine_back(params + o[kW0], p.in.data(), kIn, dz.data(), kHidden, din.data(), d + o[kW0], d + o[kB0]);
            std::array<double, 3> dplace{};
            affine_back(params + o[kPlaceW], flow, 3, din.data(), 3, dplace.data(), d + o[kPlaceW], d + o[kPlaceB]);
            for (std::size_t i = 0; i < 3; ++i) dflow[i] += dplace[i];
            dflow[flow::energy] += din[3] + dout[kFeatures];
        }
    }
}

}  // namespace millrace::ops::ref
