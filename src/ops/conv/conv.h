#pragma once
// Convolution of maps with what usually follows it: pooling, relu, dropout. Conventions: ops/op.h.

#include <algorithm>

#include "ops/op.h"

namespace millrace::ops {

// clang-format off

/// A map of height x width positions with C channels is a row of a matrix, channels last: column (h * width + w) * C + c.
/// conv_forward. u[h, w, o] = bias[o] + sum over i, j, c of x[h + i - kernel_h / 2, w + j - kernel_w / 2, c] * weight[o][(c * kernel_h + i) *
/// kernel_w + j]; x is zero outside of its map. Then the largest u of every pool_h x pool_w window (the first one on ties; rows and columns that
/// fill no window are left out), relu, dropout. Kernels are odd, windows have at most 255 positions.
/// Slots: x real [K,1,B,height*width*in]; w real [K,1,out,in*kernel_h*kernel_w]; bias stat [K,1,1,out] optional; state (with dropout); chosen u8
/// [K,1,B,P*out] (training, with a window, relu or dropout), P = (height / pool_h) * (width / pool_w): where in its window the largest lies, row by
/// row, or 255 where relu or dropout gave zero; y real [K,1,B,P*out], channels last, or with channels_first column o * P + p. chosen lies as y does.
/// conv_backward. From dy real [K,1,B,P*out], which dropout scales by 1 / (1 - p): dx (+) real [K,1,B,height*width*in] optional; dw (+) stat [K,1,out,in*kernel_h*kernel_w], weights that
/// meet nothing but the outside of the map get zero; dbias (+) stat [K,1,1,out] optional. Sums over rows run in pieces fixed by the shape alone.
struct ConvParams {
    std::int32_t height = 1, width = 1, in = 1, out = 1, kernel_h = 3, kernel_w = 3, pool_h = 1, pool_w = 1;
    bool relu = true, channels_first = false;
    float dropout = 0;
    std::uint32_t op_number = 0;

    [[nodiscard]] constexpr std::int32_t pooled_h() const { return height / pool_h; }
    [[nodiscard]] constexpr std::int32_t pooled_w() const { return width / pool_w; }
    [[nodiscard]] constexpr std::int32_t in_columns() const { return height * width * in; }
    [[nodiscard]] constexpr std::int32_t out_columns() const { return pooled_h() * pooled_w() * out; }
    [[nodiscard]] constexpr std::int32_t weights() const { return in * kernel_h * kernel_w; }
    [[nodiscard]] constexpr bool chooses() const { return relu || pool_h * pool_w > 1 || dropout > 0; }
    /// Column of y of channel o at pooled position p.
    [[nodiscard]] constexpr std::int64_t column(std::int32_t p, std::int32_t o) const {
        return channels_first ? std::int64_t{o} * pooled_h() * pooled_w() + p : std::int64_t{p} * out + o;
    }
};
namespace conv_forward { enum Slot { x, w, bias, state, chosen, y, slots }; extern const OpDef kDef; }
namespace conv_backward { enum Slot { dy, chosen, x, w, state, dx, dw, dbias, slots }; extern const OpDef kDef; }
constexpr int kNothingChosen = 255;

// clang-format on

/// The taps of a kernel along one axis that reach into a map of `extent` positions from some position of it.
struct LiveTaps {
    std::int32_t first = 0, count = 1, before = 0;  ///< before: positions of padding in front of the map

    constexpr LiveTaps(std::int32_t extent, std::int32_t kernel)
        : first(std::max(0, kernel / 2 - (extent - 1))), count(kernel - 2 * first), before(kernel / 2 - first) {}
};

}  // namespace millrace::ops
