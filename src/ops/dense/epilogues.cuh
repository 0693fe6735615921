#pragma once
// What follows the products of a dense layer (ops/tile/finish.cuh): bias, activation and dropout; the numbers of batch
// statistics; gradients of inputs and weights; the way back through the layer below.

#include "ops/cuda/activation.cuh"
#include "ops/dense/batch_norm.cuh"
#include "ops/tile/finish.cuh"

namespace millrace::ops::cuda::tiled {

using tile::Problem;
using tile::Unit;

/// Rows between a thread's two runs.
constexpr int kHalf = 8;
using Runs = float[2][8];

/// Eight columns, of which `width` exist. whole: all do, at a multiple of 16 bytes.
template <class T>
__device__ void load_columns(const T* from, int width, bool whole, float (&v)[8]) {
    if (whole) return load_run<8>(from, v);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = i < width ? load(from + i) : 0;
}
template <class T>
__device__ void store_columns(T* to, int width, bool whole, const float (&v)[8]) {
    if (whole) return store_run<8>(to, v);
#pragma unroll
    for (int i = 0; i < 8; ++i)
        if (i < width) store(to + i, v[i]);
}

/// Eight columns as they are stored: until they are needed as float, in words.
template <class T>
struct Stored {
    uint4 words[sizeof(T) / 2];
    __device__ void load(const T* from) {
#pragma unroll
        for (int i = 0; i < static_cast<int>(sizeof(T) / 2); ++i) words[i] = reinterpret_cast<const uint4*>(from)[i];
    }
    __device__ void store(T* to) const {
#pragma unroll
        for (int i = 0; i < static_cast<int>(sizeof(T) / 2); ++i) reinterpret_cast<uint4*>(to)[i] = words[i];
    }
    __device__ void read(float (&v)[8]) const { load_run<8>(reinterpret_cast<const T*>(words), v); }
    /// v becomes what it reads back as after it was stored.
    __device__ void round(float (&v)[8]) {
        store_run<8>(reinterpret_cast<T*>(words), v);
        read(v);
    }
};

/// dense_forward without batch statistics of its own.
template <class T>
struct ForwardEpilogue {
    struct Args {
        LayerForward<T> layer;
        int rows, cols;
        bool whole;
    };
    static constexpr int kConstants = 2, kColumnValues = 0;  ///< u = z scale + shift
    struct Loads {};
    struct Place {
        T *y, *saved;
        std::uint64_t element;
    };
    __device__ static float constant(const Args& a, int k, int g, int which, int col) {
        const LayerForward<T>& l = a.layer;
        const float bias = l.bias ? l.bias.row(k, g, 0)[col] : 0;
        if (l.p.norm != Norm::batch_eval) return which == 0 ? 1 : bias;
        const float scale = l.gamma.row(k, g, 0)[col] * rsqrtf(l.running_var.row(k, g, 0)[col] + l.p.eps);
        return which == 0 ? scale : (bias - l.running_mean.row(k, g, 0)[col]) * scale + l.beta.row(k, g, 0)[col];
    }
    struct Work {
        const Args& a;
        int k, g;
        DropoutKey key;
        __device__ Work(const Args& args, int member, int group)
            : a(args), k(member), g(group), key(dropout_key({a.layer.p.dropout, a.layer.p.op_number}, a.layer.state, member)) {}
        __device__ Place place(int row, int col) const {
            return {a.layer.y.row(k, g, row) + col, a.layer.saved.row(k, g, row) + col,
                    (static_cast<std::uint64_t>(g) * a.rows + row) * a.cols + col};
        }
        __device__ void next(Place& at, int, int) const {
            at.y += tile::kPanelColumns;
            at.saved += tile::kPanelColumns;
            at.element += tile::kPanelColumns;
        }
        __device__ void load(const Place&, int, Loads&) const {}
        __device__ void put(const Place& at, const bool (&there)[2], const Loads (&)[2], const float* constants, int pitch,
                            int width, Runs& v) const {
            const LayerForward<T>& l = a.layer;
            float scale[8], shift[8];
            load_run<8>(constants, scale);
            load_run<8>(constants + pitch, shift);
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int i = 0; i < 8; ++i) v[half][i] = fmaf(v[half][i], scale[i], shift[i]);
            if (l.saved) {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    T* to = at.saved + half * kHalf * l.saved.stride_row;
                    Stored<T> stored;
                    stored.round(v[half]);
                    if (there[half] && a.whole) stored.store(to);
                    if (there[half] && !a.whole) store_columns(to, width, false, v[half]);
                }
            }
            activate_rounded(v, l.p.activation);
            if (l.p.dropout > 0)
                drop_runs(key, dropout_rule(key), at.element, static_cast<std::uint64_t>(kHalf) * a.cols, a.whole, v);
#pragma unroll
            for (int half = 0; half < 2; ++half)
                if (there[half]) store_columns(at.y + half * kHalf * l.y.stride_row, width, a.whole, v[half]);
        }
    };
};

/// The product in f32 with the moments of each tile's rows.
struct MomentsEpilogue {
    struct Args {
        Mat<float> z;
        batch_norm::Chunks chunks;
        bool whole;
    };
    static constexpr int kConstants = 0, kColumnValues = 2;
    struct Loads {};
    using Place = float*;
    struct Work {
        const Args& a;
        int k, g;
        bool exists[2];
        Runs own;
        __device__ Work(const Args& args, int member, int group) : a(args), k(member), g(group) {}
        __device__ Place place(int row, int col) const { return a.z.row(k, g, row) + col; }
        __device__ void next(Place& at, int, int) const { at += tile::kPanelColumns; }
        __device__ void load(const Place&, int, Loads&) const {}
        __device__ void put(const Place& z, const bool (&there)[2], const Loads (&)[2], const float*, int, int width, Runs& v) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                exists[half] = there[half];
                if (there[half]) store_columns(z + half * kHalf * a.z.stride_row, width, a.whole, v[half]);
#pragma unroll
                for (int i = 0; i < 8; ++i) own[half][i] = there[half] ? v[half][i] : 0;
            }
        }
        __device__ void end(int count, float (&values)[2]) {
            float sums[8], squares[8];
#pragma unroll
            for (int i = 0; i < 8; ++i) sums[i] = own[0][i] + own[1][i];
            values[0] = tile::sum_over_lines(sums) / static_cast<float>(max(1, count));
            const int lane = static_cast<int>(threadIdx.x & 31);
#pragma unroll
            for (int i = 0; i < 8; ++i) {  // the thread that has the mean of column i
                const float mean = __shfl_sync(0xffffffffu, values[0], lane % 4 + i / 4 * 16 + i / 2 % 2 * 8 + i % 2 * 4);
                const float first = exists[0] ? own[0][i] - mean : 0, second = exists[1] ? own[1][i] - mean : 0;
                squares[i] = first * first + second * second;
            }
            values[1] = tile::sum_over_lines(squares);
        }
    };
    /// `values`: of the first band of 16 rows, [2][pitch]; those of the next are behind.
    __device__ static void merge(const Problem<Args>& p, const Unit& u, int col, int bands, const float* values, int pitch) {
        const int rows = min(p.args.chunks.rows, p.rows - u.row);
        const auto weight = [&](int w) { return static_cast<float>(min(tile::kPanelRows, rows - w * tile::kPanelRows)); };
        float mean = 0, squares = 0;
        for (int w = 0; w < bands; ++w) mean += weight(w) * values[2 * w * pitch];
        mean /= static_cast<float>(rows);
        for (int w = 0; w < bands; ++w) {
            const float apart = values[2 * w * pitch] - mean;
            squares += values[(2 * w + 1) * pitch] + weight(w) * apart * apart;
        }
        float* to = p.args.chunks.values.row(u.k, u.g, u.row_tile) + col;
        to[0] = mean;
        to[p.cols] = squares;
    }
};

/// A gradient, T or float, added to what is there or not.
template <class T>
struct GradientEpilogue {
    struct Args {
        Mat<T> out;
        bool add, whole;
        float* squares = nullptr;  ///< [K][tiles of a member][warps]: sums of squares of what was written; null: not computed
    };
    static constexpr int kConstants = 0, kColumnValues = 0;
    struct Loads {
        Stored<T> before;
    };
    using Place = T*;
    struct Work {
        const Args& a;
        int k, g;
        float squares = 0;
        __device__ Work(const Args& args, int member, int group) : a(args), k(member), g(group) {}
        __device__ Place place(int row, int col) const { return a.out.row(k, g, row) + col; }
        __device__ void next(Place& at, int, int) const { at += tile::kPanelColumns; }
        __device__ void load(const Place& out, int half, Loads& to) const {
            if (a.add && a.whole) to.before.load(out + half * kHalf * a.out.stride_row);
        }
        __device__ void put(const Place& out, const bool (&there)[2], const Loads (&loads)[2], const float*, int, int width,
                            Runs& v) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                if (!there[half]) continue;
                T* to = out + half * kHalf * a.out.stride_row;
                if (a.add) {
                    float before[8];
                    if (a.whole)
                        loads[half].before.read(before);
                    else
                        load_columns(to, width, false, before);
#pragma unroll
                    for (int i = 0; i < 8; ++i) v[half][i] += before[i];
                }
                store_columns(to, width, a.whole, v[half]);
                if constexpr (std::is_same_v<T, float>)
#pragma unroll
                    for (int i = 0; i < 8; ++i) squares += i < width ? v[half][i] * v[half][i] : 0;
            }
        }
        __device__ void done(const Unit& u, int warp, int warps) {
            if constexpr (std::is_same_v<T, float>) {
                if (a.squares == nullptr) return;
                for (int d = 16; d > 0; d /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, d);
                if ((threadIdx.x & 31) == 0) a.squares[std::int64_t{u.tile} * warps + warp] = squares;
            }
        }
    };
};

/// A weight gradient. The sums of dz's columns, which are the rows of the product's left operand, are the bias's.
struct WeightEpilogue : GradientEpilogue<float> {
    struct Args : GradientEpilogue<float>::Args {
        Mat<float> bias;
        bool add_bias;
    };
    __device__ static bool wants_rows(const Args& a) { return a.bias.data != nullptr; }
    __device__ static void put_row(const Args& a, int k, int g, int row, float sum) {
        put(a.bias.row(k, g, 0) + row, sum, a.add_bias);
    }
};

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
