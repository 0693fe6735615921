#pragma once
// What the kernels of a dense layer read and write besides its product, as ops/dense/dense.h names it.

#include "ops/cuda/device.cuh"
#include "ops/dense/dense.h"

namespace millrace::ops::cuda {

template <class T>
struct LayerForward {
    Mat<const float> bias, gamma, beta;
    Mat<float> running_mean, running_var, inv_std;
    Mat<T> saved, y;
    States state;
    DenseParams p;
};

template <class T>
LayerForward<T> layer_forward(const Bound& b) {
    using namespace dense_forward;
    return {b[bias],    b[gamma], b[beta], b[running_mean], b[running_var],
            b[inv_std], b[saved], b[y],    b[state],        b.params<DenseParams>()};
}

template <class T>
struct LayerBackward {
    Mat<const T> dy, saved;
    Mat<const float> gamma, beta, inv_std;
    Mat<T> dz;
    Mat<float> dgamma, dbeta, dbias;
    bool add_dgamma, add_dbeta, add_dbias;
    States state;
    DenseParams p;

    /// The gradients of one column's parameters from the sums of du and of du * xhat over all rows.
    __device__ void put_gradients(int k, int g, int column, float sum, float dot) const {
        const bool batch = p.norm == Norm::batch_train;
        if (batch && dgamma) put(dgamma.row(k, g, 0) + column, dot, add_dgamma);
        if (batch && dbeta) put(dbeta.row(k, g, 0) + column, sum, add_dbeta);
        if (!batch && dbias) put(dbias.row(k, g, 0) + column, sum, add_dbias);
    }
};

template <class T>
LayerBackward<T> layer_backward(const Bound& b) {
    using namespace dense_backward;
    return {b[dy],
            b[saved],
            b[gamma],
            b[beta],
            b[inv_std],
            b[dz],
            b[dgamma],
            b[dbeta],
            b[dbias],
            b.accumulates(dgamma),
            b.accumulates(dbeta),
            b.accumulates(dbias),
            b[state],
            b.params<DenseParams>()};
}

}  // namespace millrace::ops::cuda
