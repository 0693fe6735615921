#include <cstddef>
#include <cstdint>

#include "models/energy_flow/ops/neuron_loops.h"

namespace millrace::ops::cpu::MILLRACE_ISA {

#include "ops/cpu/vector.inl"

namespace {

constexpr int kTile = kNeuronTile, kFeatures = 64, kHidden = 32, kRowVectors = kTile / kWidth;
static_assert(kTile % kWidth == 0 && kHidden % kWidth == 0);

/// out [Cols, Rows] = in [Rows, Cols], transposed.
template <int Rows, int Cols>
inline void tile_transpose(const float* __restrict in, float* __restrict out) {
    for (int c = 0; c < Cols; c += 4)
        for (int r = 0; r < Rows; r += 4) transpose_quad(in + r * Cols + c, Cols, out + c * Rows + r, Rows);
}

/// y[o] = b[o] + w[o] x over the rows of a tile; x [In][kTile], y [Out][kTile], w [Out, In].
template <int In, int Out>
inline void tile_affine(const float* __restrict w, const float* __restrict b, const float* __restrict x, float* __restrict y) {
    for (int o = 0; o < Out; ++o) {
        Vector sum[kRowVectors];
        for (int v = 0; v < kRowVectors; ++v) sum[v] = Vector{} + b[o];
        for (int i = 0; i < In; ++i) {
#pragma GCC unroll 8
            for (int v = 0; v < kRowVectors; ++v) sum[v] += load(x + i * kTile + v * kWidth) * w[o * In + i];
        }
        for (int v = 0; v < kRowVectors; ++v) store(y + o * kTile + v * kWidth, sum[v]);
    }
}

/// dx[i] = sum over o of w[o][i] dy[o].
template <int In, int Out>
inline void tile_back(const float* __restrict w, const float* __restrict dy, float* __restrict dx) {
    for (int i = 0; i < In; ++i) {
        Vector sum[kRowVectors] = {};
        for (int o = 0; o < Out; ++o) {
#pragma GCC unroll 8
            for (int v = 0; v < kRowVectors; ++v) sum[v] += load(dy + o * kTile + v * kWidth) * w[o * In + i];
        }
        for (int v = 0; v < kRowVectors; ++v) store(dx + i * kTile + v * kWidth, sum[v]);
    }
}

/// dw[o] += sum over the rows of left[row][o] right[row]; left [kTile, Out], right [kTile, kHidden], dw [Out, kHidden].
template <int Out>
inline void tile_outer(const float* __restrict left, const float* __restrict right, float* __restrict dw) {
    constexpr int kVectors = kHidden / kWidth;
    for (int o = 0; o < Out; ++o) {
        Vector sum[kVectors];
        for (int v = 0; v < kVectors; ++v) sum[v] = load(dw + o * kHidden + v * kWidth);
        for (int row = 0; row < kTile; ++row) {
#pragma GCC unroll 8
            for (int v = 0; v < kVectors; ++v) sum[v] += load(right + row * kHidden + v * kWidth) * left[row * Out + o];
        }
        for (int v = 0; v < kVectors; ++v) store(dw + o * kHidden + v * kWidth, sum[v]);
    }
}

/// Sum over the rows of a tile, in an order that no vector width changes.
inline float tile_total(const float* __restrict v) {
    float lane[8];
    for (int j = 0; j < 8; ++j) lane[j] = (v[j] + v[8 + j]) + (v[16 + j] + v[24 + j]);
    return ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

/// One hidden layer behind its product: LayerNorm over the features, then GELU. All [kHidden][kTile].
struct TileNorm {
    float hat[kHidden * kTile], shifted[kHidden * kTile], out[kHidden * kTile], scale[kTile];

    void forward(const float* __restrict z, const float* __restrict gain, const float* __restrict shift) {
        float mean[kTile] = {}, variance[kTile] = {};
        for (int f = 0; f < kHidden; ++f)
            for (int i = 0; i < kTile; ++i) mean[i] += z[f * kTile + i];
        for (int i = 0; i < kTile; ++i) mean[i] *= 1.0f / kHidden;
        for (int f = 0; f < kHidden; ++f)
            for (int i = 0; i < kTile; ++i) {
                hat[f * kTile + i] = z[f * kTile + i] - mean[i];
                variance[i] += hat[f * kTile + i] * hat[f * kTile + i];
            }
        for (int i = 0; i < kTile; ++i) scale[i] = 1.0f / __builtin_sqrtf(variance[i] * (1.0f / kHidden) + 1e-5f);
        for (int f = 0; f < kHidden; ++f)
            for (int i = 0; i < kTile; ++i) {
                hat[f * kTile + i] *= scale[i];
                shifted[f * kTile + i] = gain[f] * hat[f * kTile + i] + shift[f];
            }
        for (int i = 0; i < kHidden * kTile; ++i) out[i] = gelu_of(shifted[i]);
    }

    /// d: gradient of out on entry, of z on exit.
    void backward(float* __restrict d, const float* __restrict gain, float* __restrict dgain, float* __restrict dshift) const {
        float sum[kTile] = {}, dot[kTile] = {};
        for (int i = 0; i < kHidden * kTile; ++i) d[i] *= gelu_slope(shifted[i]);
        for (int f = 0; f < kHidden; ++f) {
            float product[kTile];
            for (int i = 0; i < kTile; ++i) product[i] = d[f * kTile + i] * hat[f * kTile + i];
            dgain[f] += tile_total(product);
            dshift[f] += tile_total(d + f * kTile);
            for (int i = 0; i < kTile; ++i) {
                d[f * kTile + i] *= gain[f];
                sum[i] += d[f * kTile + i];
                dot[i] += product[i] * gain[f];
            }
        }
        for (int i = 0; i < kTile; ++i) {
            sum[i] *= 1.0f / kHidden;
            dot[i] *= 1.0f / kHidden;
        }
        for (int f = 0; f < kHidden; ++f)
            for (int i = 0; i < kTile; ++i)
                d[f * kTile + i] = scale[i] * (d[f * kTile + i] - sum[i] - hat[f * kTile + i] * dot[i]);
    }
};

struct NeuronPass {
    float in[4 * kTile];
    TileNorm first, second;

    void hidden(const NeuronWeights& w, const float* __restrict flow) {
        float z[kHidden * kTile];
        tile_affine<3, 3>(w.place_w, w.place_b, flow, in);
        for (int i = 0; i < kTile; ++i) in[3 * kTile + i] = flow[3 * kTile + i];
        tile_affine<4, kHidden>(w.w0, w.b0, in, z);
        first.forward(z, w.gain1, w.shift1);
        tile_affine<kHidden, kHidden>(w.w3, w.b3, first.out, z);
        second.forward(z, w.gain4, w.shift4);
    }
};

void neuron_forward(const NeuronWeights& w, const float* flow, float* out) {
    NeuronPass pass;
    float features[kFeatures * kTile];
    pass.hidden(w, flow);
    tile_affine<kHidden, kFeatures>(w.w6, w.b6, pass.second.out, features);
    tile_transpose<kFeatures, kTile>(features, out);
}

void neuron_backward(const NeuronWeights& w, const float* flow, const float* dout, const NeuronGradients& d, float* dflow) {
    NeuronPass pass;
    float gradient[kFeatures * kTile], back[kHidden * kTile], rows[kTile * kHidden], right[kTile * kHidden];
    pass.hidden(w, flow);
    tile_transpose<kTile, kFeatures>(dout, gradient);
    for (int o = 0; o < kFeatures; ++o) d.b6[o] += tile_total(gradient + o * kTile);
    tile_transpose<kHidden, kTile>(pass.second.out, right);
    tile_outer<kFeatures>(dout, right, d.w6);
    tile_back<kHidden, kFeatures>(w.w6, gradient, back);

    pass.second.backward(back, w.gain4, d.gain4, d.shift4);
    for (int o = 0; o < kHidden; ++o) d.b3[o] += tile_total(back + o * kTile);
    tile_transpose<kHidden, kTile>(back, rows);
    tile_transpose<kHidden, kTile>(pass.first.out, right);
    tile_outer<kHidden>(rows, right, d.w3);
    tile_back<kHidden, kHidden>(w.w3, back, gradient);

    pass.first.backward(gradient, w.gain1, d.gain1, d.shift1);
    for (int o = 0; o < kHidden; ++o) d.b0[o] += tile_total(gradient + o * kTile);
    const auto total_of_products = [](const float* __restrict left, const float* __restrict right_row) {
        float product[kTile];
        for (int i = 0; i < kTile; ++i) product[i] = left[i] * right_row[i];
        return tile_total(product);
    };
    for (int o = 0; o < kHidden; ++o)
        for (int i = 0; i < 4; ++i) d.w0[o * 4 + i] += total_of_products(gradient + o * kTile, pass.in + i * kTile);
    float din[4 * kTile];
    tile_back<4, kHidden>(w.w0, gradient, din);
    for (int o = 0; o < 3; ++o) {
        d.place_b[o] += tile_total(din + o * kTile);
        for (int i = 0; i < 3; ++i) d.place_w[o * 3 + i] += total_of_products(din + o * kTile, flow + i * kTile);
    }
    tile_back<3, 3>(w.place_w, din, dflow);
    for (int i = 0; i < kTile; ++i) dflow[3 * kTile + i] = din[3 * kTile + i];
}

}  // namespace

constexpr NeuronLoops neuron_loops = {neuron_forward, neuron_backward};

}  // namespace millrace::ops::cpu::MILLRACE_ISA
