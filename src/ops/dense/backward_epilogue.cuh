#pragma once
// What follows the product of an input gradient: the way back through the layer below.

#include "ops/dense/epilogues.cuh"

namespace millrace::ops::cuda::tiled {

/// linear_dgrad and dense_backward behind it. Without a norm it writes dz and the sums of dz over the rows of each tile; with
/// batch statistics it writes dx and both sums of batch_norm::Chunks. Runs are whole.
template <class T>
struct BackwardEpilogue {
    struct Args {
        LayerBackward<T> layer;
        Mat<T> dx;
        float* sums;  ///< [matrix of the layer][row tile][1 or 2][cols]; null: none wanted
        int rows, cols, groups, product_cols, row_tiles;
        bool add;
    };
    static constexpr int kConstants = 2, kColumnValues = 2;  ///< gamma, beta
    struct Loads {
        Stored<T> saved;
    };
    struct Place {
        const T* saved;
        T* dz;
        int row, col;  ///< of the product
    };
    /// Groups of the product and of the layer lie side by side in a row.
    struct Column {
        int g, col;
        __device__ Column(const Args& a, int product_g, int product_col) : g(0), col(product_g * a.product_cols + product_col) {
            if (a.groups == 1) return;
            g = col / a.cols;
            col -= g * a.cols;
        }
    };
    __device__ static float constant(const Args& a, int k, int product_g, int which, int col) {
        if (a.layer.p.norm != Norm::batch_train) return which == 0 ? 1 : 0;
        const Column c(a, product_g, col);
        return (which == 0 ? a.layer.gamma : a.layer.beta).row(k, c.g, 0)[c.col];
    }
    struct Work {
        const Args& a;
        int k, product_g;
        DropoutKey key;
        float sum[8], dot[8];
        __device__ Work(const Args& args, int member, int group)
            : a(args),
              k(member),
              product_g(group),
              key(dropout_key({a.layer.p.dropout, a.layer.p.op_number}, a.layer.state, member)) {}
        __device__ Place place(int row, int col) const {
            const Column c(a, product_g, col);
            return {a.layer.saved.row(k, c.g, row) + c.col, a.layer.dz.row(k, c.g, row) + c.col, row, col};
        }
        __device__ void next(Place& at, int row, int col) const {
            if (a.groups > 1) {
                at = place(row, col);
                return;
            }
            at.saved += tile::kPanelColumns;
            at.dz += tile::kPanelColumns;
            at.col = col;
        }
        __device__ void load(const Place& at, int half, Loads& to) const {
            if (a.layer.saved) to.saved.load(at.saved + half * kHalf * a.layer.saved.stride_row);
        }
        __device__ void put(const Place& at, const bool (&there)[2], const Loads (&loads)[2], const float* constants, int pitch,
                            int, Runs& v) {
            const LayerBackward<T>& l = a.layer;
            const bool batch = l.p.norm == Norm::batch_train;
            Runs u = {};
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                T* dx = a.dx.row(k, product_g, at.row + half * kHalf) + at.col;
                if (a.add && there[half]) {
                    float before[8];
                    load_run<8>(dx, before);
#pragma unroll
                    for (int i = 0; i < 8; ++i) v[half][i] += before[i];
                }
                Stored<T> stored;
                stored.round(v[half]);
                if (batch && there[half]) stored.store(dx);
                if (l.saved && there[half]) loads[half].saved.read(u[half]);
            }
            if (batch) {
                float gamma[8], beta[8];
                load_run<8>(constants, gamma);
                load_run<8>(constants + pitch, beta);
#pragma unroll
                for (int i = 0; i < 16; ++i) u[i / 8][i % 8] = fmaf(gamma[i % 8], u[i / 8][i % 8], beta[i % 8]);
            }
            slope_rounded(v, u, l.p.activation);
            if (l.p.dropout > 0) {
                const Column c(a, product_g, at.col);
                const std::uint64_t element = (static_cast<std::uint64_t>(c.g) * a.rows + at.row) * a.cols + c.col;
                drop_runs(key, dropout_rule(key), element, static_cast<std::uint64_t>(kHalf) * a.cols, true, v);
            }
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                if (!batch && there[half]) store_run<8>(at.dz + half * kHalf * l.dz.stride_row, v[half]);
#pragma unroll
                for (int i = 0; i < 8; ++i) v[half][i] = there[half] ? v[half][i] : 0;
            }
            if (batch) {  // where there is no row nothing was loaded, and 0 times that may be no number
                if (there[0]) loads[0].saved.read(u[0]);
                if (there[1]) loads[1].saved.read(u[1]);
            }
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                sum[i] = v[0][i] + v[1][i];
                dot[i] = batch ? fmaf(v[1][i], u[1][i], v[0][i] * u[0][i]) : 0;
            }
        }
        __device__ void end(int, float (&values)[2]) {
            values[0] = values[1] = 0;
            if (a.sums == nullptr) return;
            values[0] = tile::sum_over_lines(sum);
            if (a.layer.p.norm == Norm::batch_train) values[1] = tile::sum_over_lines(dot);
        }
    };
    __device__ static void merge(const Problem<Args>& p, const Unit& u, int col, int bands, const float* values, int pitch) {
        const Args& a = p.args;
        if (a.sums == nullptr) return;
        const Column c(a, u.g, col);
        const int count = a.layer.p.norm == Norm::batch_train ? 2 : 1;
        float* to = a.sums + (std::int64_t{u.k * a.groups + c.g} * a.row_tiles + u.row_tile) * count * a.cols + c.col;
        for (int s = 0; s < count; ++s) {
            float sum = 0;
            for (int w = 0; w < bands; ++w) sum += values[(2 * w + s) * pitch];
            to[s * a.cols] = sum;
        }
    }
};

}  // namespace millrace::ops::cuda::tiled
