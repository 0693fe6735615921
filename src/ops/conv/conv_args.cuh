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
    bool whole_x, whole_y;  ///< runs of channels of 16 bytes lie at multiples of 16 bytes in x and dx; in y, dy and chosen

    [[nodiscard]] __device__ Dropout dropout() const { return {p.dropout, p.op_number}; }
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
