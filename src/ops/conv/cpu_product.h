#pragma once
// The product inside a convolution, for one map: u [positions, out] = windows of x [positions, taps * in] times weights. The map
// lies padded with zeros, so that the windows of neighbouring positions are rows of one matrix that overlap: nothing is copied
// per tap.

#include <algorithm>
#include <cstdint>

#include "ops/conv/conv.h"
#include "ops/cpu/simd_kernels.h"

namespace millrace::ops::cpu {

class ConvProduct {
public:
    /// From maps of `in` channels to maps of `out`. The backward pass is a product of the same kind, from p.out to p.in channels.
    ConvProduct(const ConvParams& p, const SimdKernels& simd, int in, int out)
        : p_(p), simd_(simd), in_(in), out_(out), taps_h_(p.height, p.kernel_h), taps_w_(p.width, p.kernel_w) {
        pitch_ = p.width + taps_w_.count - 1;
        rows_ = (p.height - 1) * pitch_ + p.width;
        columns_ = whole_tiles(out, simd.nr);
        segments_ = pitch_ == 1 ? 1 : taps_h_.count;
        segment_depth_ = static_cast<int>(depth() / segments_);
    }

    /// Of one map.
    [[nodiscard]] std::int64_t multiplications() const { return std::int64_t{rows_} * depth() * out_; }
    /// Rows of the product: position (h, w) is row h * row_pitch() + w; rows between those are rubbish.
    [[nodiscard]] int rows() const { return rows_; }
    [[nodiscard]] int row_pitch() const { return pitch_; }
    /// Floats from row to row of the result.
    [[nodiscard]] std::int64_t result_stride() const { return columns_; }
    /// Float of the padded map at which position (0, 0) begins.
    [[nodiscard]] std::int64_t first_inside() const { return (std::int64_t{taps_h_.before} * pitch_ + taps_w_.before) * in_; }

    [[nodiscard]] std::size_t padded_floats() const {
        return static_cast<std::size_t>((p_.height + taps_h_.count - 1) * pitch_) * static_cast<std::size_t>(in_);
    }
    [[nodiscard]] std::size_t packed_floats() const {
        return static_cast<std::size_t>(depth()) * static_cast<std::size_t>(columns_);
    }
    [[nodiscard]] std::size_t result_floats() const {
        return static_cast<std::size_t>(whole_tiles(rows_, simd_.mr)) * static_cast<std::size_t>(columns_);
    }
    /// [taps * in, out]; the last tile may reach beyond.
    [[nodiscard]] std::size_t weight_sums_floats() const {
        return (static_cast<std::size_t>(depth()) + kMaxTileRows) * static_cast<std::size_t>(columns_);
    }
    /// Working memory of add_weight_gradients.
    [[nodiscard]] std::size_t gradient_floats() const {
        return static_cast<std::size_t>(rows_) * (static_cast<std::size_t>(columns_) + static_cast<std::size_t>(simd_.mr));
    }

    /// padded = the map with zeros around it.
    void pad(const float* map, float* padded) const noexcept {
        std::fill_n(padded, padded_floats(), 0.0f);
        const std::int64_t line = std::int64_t{p_.width} * in_;
        for (int h = 0; h < p_.height; ++h)
            std::copy_n(map + h * line, line, padded + first_inside() + std::int64_t{h} * pitch_ * in_);
    }
    /// Weights [p.out, p.in * taps] as the product reads them; `back`: those of the backward pass.
    void pack_weights(const float* weights, std::int64_t stride, float* packed, bool back) const noexcept {
        const int nr = simd_.nr;
        const std::int64_t last = std::int64_t{taps_h_.count} * taps_w_.count - 1;
        for (std::int64_t tap = 0; tap <= last; ++tap) {
            // In the backward pass the window is turned round: a gradient meets the last tap first.
            const std::int64_t from = back ? last - tap : tap;
            const std::int64_t i = taps_h_.first + from / taps_w_.count, j = taps_w_.first + from % taps_w_.count;
            for (int c = 0; c < in_; ++c)
                for (int o = 0; o < columns_; ++o) {
                    const std::int64_t row = back ? c : o, channel = back ? o : c;
                    const float value = o < out_ ? weights[row * stride + (channel * p_.kernel_h + i) * p_.kernel_w + j] : 0;
                    packed[(o / nr * depth() + tap * in_ + c) * nr + o % nr] = value;
                }
        }
    }
    void run(const float* padded, const float* packed, float* result) const noexcept {
        const int mr = simd_.mr, nr = simd_.nr;
        for (int col = 0; col < columns_; col += nr)
            for (int row = 0; row < rows_; row += mr)
                for (int s = 0; s < segments_; ++s)
                    simd_.tile_rows(segment_depth_, padded + (row + std::int64_t{s} * pitch_) * in_, in_,
                                    std::min(mr, rows_ - row),
                                    packed + (col / nr * depth() + std::int64_t{s} * segment_depth_) * nr,
                                    result + std::int64_t{row} * columns_ + col, columns_, s > 0);
    }
    /// sums += windows^T dz; dz [rows, out] without holes, zeros in the rows between positions.
    void add_weight_gradients(const float* padded, const float* dz, float* sums, float* scratch) const noexcept {
        const int mr = simd_.mr, nr = simd_.nr;
        float* windows = scratch + std::int64_t{rows_} * columns_;
        for (int col = 0; col < columns_; col += nr)
            simd_.pack_rows(rows_, dz + col, out_, std::min(nr, out_ - col), nr, scratch + std::int64_t{col} * rows_);
        for (int s = 0; s < segments_; ++s)
            for (int d = 0; d < segment_depth_; d += mr) {
                // Beyond the segment's end the panel has zeros, which add nothing to the rows of the next one.
                simd_.pack_rows(rows_, padded + std::int64_t{s} * pitch_ * in_ + d, in_, std::min(mr, segment_depth_ - d), mr,
                                windows);
                for (int col = 0; col < columns_; col += nr)
                    simd_.tile_panels(rows_, windows, scratch + std::int64_t{col} * rows_,
                                      sums + (std::int64_t{s} * segment_depth_ + d) * columns_ + col, columns_, true);
            }
    }

    /// Calls body(column of the weight, row of the sums) for all weights of a channel that meet data.
    template <class Body>
    void for_each_weight(Body&& body) const {
        for (int i = 0; i < taps_h_.count; ++i)
            for (int j = 0; j < taps_w_.count; ++j)
                for (int c = 0; c < in_; ++c)
                    body((c * p_.kernel_h + taps_h_.first + i) * p_.kernel_w + taps_w_.first + j,
                         (std::int64_t{i} * taps_w_.count + j) * in_ + c);
    }

private:
    static int whole_tiles(int value, int unit) { return (value + unit - 1) / unit * unit; }
    [[nodiscard]] std::int64_t depth() const { return std::int64_t{taps_h_.count} * taps_w_.count * in_; }

    ConvParams p_;
    const SimdKernels& simd_;
    int in_, out_;
    LiveTaps taps_h_, taps_w_;
    int pitch_, rows_, columns_;
    int segments_, segment_depth_;  ///< runs of a window that lie without holes
};

}  // namespace millrace::ops::cpu
