#pragma once
// What follows the products of a dense layer (ops/tile/finish.cuh): bias, activation and dropout; the numbers of batch
// statistics; on the way back the gradient before activation and dropout with its sums over rows; weight gradients.

#include "ops/cuda/run.cuh"
#include "ops/dense/batch_norm.cuh"
#include "ops/tile/finish.cuh"

namespace millrace::ops::cuda::tiled {

using tile::Problem;
using tile::Unit;

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

template <class T>
__device__ void round_run(float (&v)[8]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = rounded(v[i], static_cast<const T*>(nullptr));
}

__device__ inline void activate_run(float (&v)[8], Activation a) {
    if (a == Activation::none) return;
    if (a == Activation::gelu) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            float slope;
            gelu_and_slope(v[i], v[i], slope);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = activate(v[i], a);
}
/// v times the slopes at u.
__device__ inline void slope_run(float (&v)[8], const float (&u)[8], Activation a) {
    if (a == Activation::none) return;
    if (a == Activation::gelu) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            float value, slope;
            gelu_and_slope(u[i], value, slope);
            v[i] *= slope;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] *= activation_slope(u[i], a);
}

/// v times the factors of elements `element` and following. A whole run begins at a multiple of four elements.
__device__ inline void drop_run(const DropoutKey& key, const DropoutRule& rule, std::uint64_t element, bool whole,
                                float (&v)[8]) {
    if (rule.threshold == 0) return;
    if (!whole) {
#pragma unroll
        for (int i = 0; i < 8; ++i) v[i] *= dropout_factor(key, rule, element + i);
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i += 4) {
        const auto bits =
            base::random_block(key.seed, key.step, key.micro, key.op, static_cast<std::uint32_t>((element + i) >> 2));
#pragma unroll
        for (int j = 0; j < 4; ++j) v[i + j] *= bits.v[j] >= rule.threshold ? rule.factor : 0;
    }
}

/// Columns from one panel to the next, and rows between a thread's two runs.
constexpr int kNext = tile::kPanelColumns, kHalf = 8;

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
    __device__ static float constant(const Args& a, int k, int g, int which, int col) {
        const LayerForward<T>& l = a.layer;
        const float bias = l.bias ? l.bias.row(k, g, 0)[col] : 0;
        if (l.p.norm != Norm::batch_eval) return which == 0 ? 1 : bias;
        const float scale = l.gamma.row(k, g, 0)[col] / sqrtf(l.running_var.row(k, g, 0)[col] + l.p.eps);
        return which == 0 ? scale : (bias - l.running_mean.row(k, g, 0)[col]) * scale + l.beta.row(k, g, 0)[col];
    }
    struct Work {
        const Args& a;
        T *y, *saved;
        std::uint64_t element;
        DropoutKey key;
        DropoutRule rule;
        __device__ Work(const Args& args, int k, int g, int row, int col)
            : a(args),
              y(a.layer.y.row(k, g, row) + col),
              saved(a.layer.saved ? a.layer.saved.row(k, g, row) + col : nullptr),
              element((static_cast<std::uint64_t>(g) * a.rows + row) * a.cols + col),
              key(dropout_key({a.layer.p.dropout, a.layer.p.op_number}, a.layer.state, k)),
              rule(dropout_rule(key)) {}
        __device__ void load(Loads&, int, int) {}
        __device__ void put(int half, const Loads&, const float* constants, int pitch, int width, float (&v)[8]) {
            float scale[8], shift[8];
            load_run<8>(constants, scale);
            load_run<8>(constants + pitch, shift);
#pragma unroll
            for (int i = 0; i < 8; ++i) v[i] = fmaf(v[i], scale[i], shift[i]);
            if (saved) {
                round_run<T>(v);
                store_columns(saved + half * kHalf * a.layer.saved.stride_row, width, a.whole, v);
            }
            activate_run(v, a.layer.p.activation);
            drop_run(key, rule, element + static_cast<std::uint64_t>(half * kHalf) * a.cols, a.whole, v);
            store_columns(y + half * kHalf * a.layer.y.stride_row, width, a.whole, v);
        }
        __device__ void next() {
            y += kNext;
            if (saved) saved += kNext;
            element += kNext;
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
    struct Work {
        const Args& a;
        float* z;
        bool there[2];
        float own[2][8];
        __device__ Work(const Args& args, int k, int g, int row, int col) : a(args), z(a.z.row(k, g, row) + col) {
            there[0] = there[1] = false;
        }
        __device__ void load(Loads&, int, int) {}
        __device__ void put(int half, const Loads&, const float*, int, int width, float (&v)[8]) {
            store_columns(z + half * kHalf * a.z.stride_row, width, a.whole, v);
            there[half] = true;
#pragma unroll
            for (int i = 0; i < 8; ++i) own[half][i] = v[i];
        }
        __device__ void end(int count, float (&values)[2][8]) {
#pragma unroll
            for (int i = 0; i < 8; ++i) values[0][i] = (there[0] ? own[0][i] : 0) + (there[1] ? own[1][i] : 0);
            tile::sum_over_lines(values[0]);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                values[0][i] /= static_cast<float>(max(1, count));
                const float first = there[0] ? own[0][i] - values[0][i] : 0, second = there[1] ? own[1][i] - values[0][i] : 0;
                values[1][i] = first * first + second * second;
            }
            tile::sum_over_lines(values[1]);
            there[0] = there[1] = false;
        }
        __device__ void next() { z += kNext; }
    };
    /// `values`: of the first warp, [2][pitch]; those of the next are behind.
    __device__ static void merge(const Problem<Args>& p, const Unit& u, int col, int warps, const float* values, int pitch) {
        const int rows = min(p.args.chunks.rows, p.rows - u.row);
        const auto weight = [&](int w) { return static_cast<float>(min(tile::kPanelRows, rows - w * tile::kPanelRows)); };
        float mean = 0, squares = 0;
        for (int w = 0; w < warps; ++w) mean += weight(w) * values[2 * w * pitch];
        mean /= static_cast<float>(rows);
        for (int w = 0; w < warps; ++w) {
            const float apart = values[2 * w * pitch] - mean;
            squares += values[(2 * w + 1) * pitch] + weight(w) * apart * apart;
        }
        float* to = p.args.chunks.at(u.k * p.groups + u.g, u.row_tile, p.cols) + col;
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
        Run<T, 8> before;
    };
    struct Work {
        const Args& a;
        T* out;
        float squares = 0;
        __device__ Work(const Args& args, int k, int g, int row, int col) : a(args), out(a.out.row(k, g, row) + col) {}
        __device__ void load(Loads& to, int half, int panels) {
            if (a.add && a.whole) to.before = load_as_stored<8>(out + half * kHalf * a.out.stride_row + panels * kNext);
        }
        __device__ void put(int half, const Loads& loads, const float*, int, int width, float (&v)[8]) {
            T* to = out + half * kHalf * a.out.stride_row;
            if (a.add) {
                float before[8];
                if (a.whole)
                    load_run<8>(loads.before.v, before);
                else
                    load_columns(to, width, false, before);
#pragma unroll
                for (int i = 0; i < 8; ++i) v[i] += before[i];
            }
            store_columns(to, width, a.whole, v);
            if constexpr (std::is_same_v<T, float>)
#pragma unroll
                for (int i = 0; i < 8; ++i) squares += i < width ? v[i] * v[i] : 0;
        }
        __device__ void next() { out += kNext; }
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
        Run<T, 8> saved, before;
    };
    /// Groups of the product and of the layer lie side by side in a row.
    __device__ static float constant(const Args& a, int k, int product_g, int which, int col) {
        if (a.layer.p.norm != Norm::batch_train) return which == 0 ? 1 : 0;
        const int across = product_g * a.product_cols + col, g = across / a.cols;
        return (which == 0 ? a.layer.gamma : a.layer.beta).row(k, g, 0)[across - g * a.cols];
    }
    struct Work {
        const Args& a;
        int k, row, across;  ///< column of all groups
        T* dx;
        DropoutKey key;
        DropoutRule rule;
        float sum[8], dot[8];
        __device__ Work(const Args& args, int member, int product_g, int first, int col)
            : a(args),
              k(member),
              row(first),
              across(product_g * a.product_cols + col),
              dx(a.dx.row(k, product_g, row) + col),
              key(dropout_key({a.layer.p.dropout, a.layer.p.op_number}, a.layer.state, member)),
              rule(dropout_rule(key)) {
            clear();
        }
        __device__ void clear() {
#pragma unroll
            for (int i = 0; i < 8; ++i) sum[i] = dot[i] = 0;
        }
        __device__ void load(Loads& to, int half, int panels) {
            const int at = across + panels * kNext, g = at / a.cols;
            if (a.layer.saved) to.saved = load_as_stored<8>(a.layer.saved.row(k, g, row + half * kHalf) + (at - g * a.cols));
            if (a.add) to.before = load_as_stored<8>(dx + half * kHalf * a.dx.stride_row + panels * kNext);
        }
        __device__ void put(int half, const Loads& loads, const float* constants, int pitch, int, float (&v)[8]) {
            const LayerBackward<T>& l = a.layer;
            const int g = across / a.cols, at = across - g * a.cols, r = row + half * kHalf;
            const bool batch = l.p.norm == Norm::batch_train;
            if (a.add) {
                float before[8];
                load_run<8>(loads.before.v, before);
#pragma unroll
                for (int i = 0; i < 8; ++i) v[i] += before[i];
            }
            round_run<T>(v);
            if (batch) store_run<8>(dx + half * kHalf * a.dx.stride_row, v);
            float xhat[8] = {}, u[8];
            if (l.saved) load_run<8>(loads.saved.v, xhat);
            float gamma[8], beta[8];
            load_run<8>(constants, gamma);
            load_run<8>(constants + pitch, beta);
#pragma unroll
            for (int i = 0; i < 8; ++i) u[i] = fmaf(gamma[i], xhat[i], beta[i]);
            slope_run(v, u, l.p.activation);
            drop_run(key, rule, (static_cast<std::uint64_t>(g) * a.rows + r) * a.cols + at, true, v);
            if (!batch) store_run<8>(l.dz.row(k, g, r) + at, v);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                sum[i] += v[i];
                if (batch) dot[i] += v[i] * xhat[i];
            }
        }
        __device__ void end(int, float (&values)[2][8]) {
            const bool batch = a.layer.p.norm == Norm::batch_train;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                values[0][i] = sum[i];
                values[1][i] = dot[i];
            }
            clear();
            if (a.sums == nullptr) return;
            tile::sum_over_lines(values[0]);
            if (batch) tile::sum_over_lines(values[1]);
        }
        __device__ void next() {
            dx += kNext;
            across += kNext;
        }
    };
    __device__ static void merge(const Problem<Args>& p, const Unit& u, int col, int warps, const float* values, int pitch) {
        const Args& a = p.args;
        if (a.sums == nullptr) return;
        const int across = u.g * a.product_cols + col, g = across / a.cols, count = a.layer.p.norm == Norm::batch_train ? 2 : 1;
        float* to =
            a.sums + (std::int64_t{u.k * a.groups + g} * a.row_tiles + u.row_tile) * count * a.cols + (across - g * a.cols);
        for (int s = 0; s < count; ++s) {
            float sum = 0;
            for (int w = 0; w < warps; ++w) sum += values[(2 * w + s) * pitch];
            to[s * a.cols] = sum;
        }
    }
};

}  // namespace millrace::ops::cuda::tiled
