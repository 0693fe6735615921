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
    bool add_dgamma = false, add_dbeta = false, add_dbias = false;
    States state = {};
    DenseParams p = {};

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
    LayerBackward<T> a{b[dy], b[saved], b[gamma], b[beta], b[inv_std], b[dz], b[dgamma], b[dbeta], b[dbias]};
    a.add_dgamma = b.accumulates(dgamma);
    a.add_dbeta = b.accumulates(dbeta);
    a.add_dbias = b.accumulates(dbias);
    a.state = b[state];
    a.p = b.params<DenseParams>();
    return a;
}

/// A layer with its product in one kernel; blocks own `row_tile` rows.
template <class T>
struct FusedForward : LayerForward<T> {
    Mat<const T> x, w;
    int rows, in, out, row_tile, row_tiles;
    bool early;  ///< parameters may be read before the predecessor is done
};

template <class T>
FusedForward<T> fused_forward(const Context& c, const Bound& b, int row_tile, int row_tiles) {
    using namespace dense_forward;
    const bool early = c.reads_early({&b[w], &b[bias], &b[gamma], &b[beta]});
    return {layer_forward<T>(b), b[x], b[w], b[y].rows, b[x].cols, b[y].cols, row_tile, row_tiles, early};
}

/// The same of linear_dgrad of the layer above and dense_backward. Without the layer `dz` is null and dx is written; without the
/// product `dz_above` is null and dy is read.
template <class T>
struct FusedBackward : LayerBackward<T> {
    Mat<const T> dz_above, w;
    Mat<T> dx;
    int summed, product_cols;  ///< columns of one group of dz_above, of dx (of dy without a product)
    int cols;                  ///< columns of one group of dz
    int rows, row_tile, row_tiles;
    bool add_dx, early;
};

template <class T>
FusedBackward<T> fused_backward(const Context& c, const Bound* d, const Bound* b, int row_tile, int row_tiles) {
    FusedBackward<T> a{};
    if (b) {
        static_cast<LayerBackward<T>&>(a) = layer_backward<T>(*b);
        a.cols = (*b)[dense_backward::dz].cols;
        a.rows = (*b)[dense_backward::dz].rows;
        a.product_cols = (*b)[dense_backward::dy].cols;
    }
    if (d) {
        using namespace linear_dgrad;
        a.dz_above = (*d)[dz];
        a.w = (*d)[w];
        a.dx = (*d)[dx];
        a.summed = (*d)[dz].cols;
        a.product_cols = (*d)[dx].cols;
        a.rows = (*d)[dx].rows;
        a.add_dx = d->accumulates(dx);
    }
    a.row_tile = row_tile;
    a.row_tiles = row_tiles;
    a.early = d == nullptr || c.reads_early({&(*d)[linear_dgrad::w]});
    return a;
}

}  // namespace millrace::ops::cuda
