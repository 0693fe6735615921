#pragma once
// What the kernels of a convolution know of their record.

#include "ops/conv/conv.h"
#include "ops/cuda/device.cuh"

namespace millrace::ops::cuda {

/// Of both directions; absent slots are null. Real: element type of activations.
template <class Real>
struct ConvArgs {
    ConvParams p;
    Mat<const Real> x, w, dy;
    Mat<Real> y, dx;
    Mat<const float> bias;
    Mat<std::uint8_t> chosen;
    States state;
    int rows, members;
    bool add_dx;

    [[nodiscard]] __device__ Dropout dropout() const { return {p.dropout, p.op_number}; }
    /// The gradient before pooling and relu, without the scale of dropout, at a position of member k's map `row`.
    [[nodiscard]] __device__ float dz(int k, std::int64_t row, int h, int w, int o) const {
        const int ph = h / p.pool_h, pw = w / p.pool_w;
        if (ph >= p.pooled_h() || pw >= p.pooled_w()) return 0;
        const std::int64_t column = p.column(ph * p.pooled_w() + pw, o);
        if (chosen && chosen.row(k, 0, row)[column] != (h - ph * p.pool_h) * p.pool_w + (w - pw * p.pool_w)) return 0;
        return load(dy.row(k, 0, row) + column);
    }
};

template <class Real>
ConvArgs<Real> conv_forward_args(const Bound& b) {
    using namespace conv_forward;
    ConvArgs<Real> a{};
    a.p = b.params<ConvParams>();
    a.x = b[x];
    a.w = b[w];
    a.bias = b[bias];
    a.chosen = b[chosen];
    a.y = b[y];
    a.state = b[state];
    a.rows = b[y].rows;
    a.members = b[y].k;
    return a;
}

template <class Real>
ConvArgs<Real> conv_backward_args(const Bound& b) {
    using namespace conv_backward;
    ConvArgs<Real> a{};
    a.p = b.params<ConvParams>();
    a.x = b[x];
    a.w = b[w];
    a.dy = b[dy];
    if (a.p.chooses()) a.chosen = b[chosen];
    a.dx = b[dx];
    a.state = b[state];
    a.rows = b[dy].rows;
    a.members = b[dy].k;
    a.add_dx = b.accumulates(dx);
    return a;
}

}  // namespace millrace::ops::cuda
