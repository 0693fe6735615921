#include "ops/conv/cpu_product.h"

#include <algorithm>

namespace millrace::ops::cpu {
namespace {

int whole_tiles(int value, int unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

ConvProduct::ConvProduct(const ConvParams& p, const SimdKernels& simd, int in, int out)
    : p_(p), simd_(simd), in_(in), out_(out), taps_h_(p.height, p.kernel_h), taps_w_(p.width, p.kernel_w) {
    pitch_ = p.width + taps_w_.count - 1;
    rows_ = (p.height - 1) * pitch_ + p.width;
    columns_ = whole_tiles(out, simd.nr);
    segments_ = pitch_ == 1 ? 1 : taps_h_.count;
    segment_depth_ = static_cast<int>(depth() / segments_);
}

std::size_t ConvProduct::padded_floats() const {
    return static_cast<std::size_t>((p_.height + taps_h_.count - 1) * pitch_) * static_cast<std::size_t>(in_);
}
std::size_t ConvProduct::packed_floats() const { return static_cast<std::size_t>(depth()) * static_cast<std::size_t>(columns_); }
std::size_t ConvProduct::result_floats() const {
    return static_cast<std::size_t>(whole_tiles(rows_, simd_.mr)) * static_cast<std::size_t>(columns_);
}
std::size_t ConvProduct::weight_sums_floats() const {  // the last tile may reach beyond
    return (static_cast<std::size_t>(depth()) + kMaxTileRows) * static_cast<std::size_t>(columns_);
}
std::size_t ConvProduct::gradient_floats() const {
    return static_cast<std::size_t>(rows_) * (static_cast<std::size_t>(columns_) + static_cast<std::size_t>(simd_.mr));
}

void ConvProduct::pad(const float* map, float* padded) const noexcept {
    std::fill_n(padded, padded_floats(), 0.0f);
    const std::int64_t line = std::int64_t{p_.width} * in_;
    for (int h = 0; h < p_.height; ++h)
        std::copy_n(map + h * line, line, padded + first_inside() + std::int64_t{h} * pitch_ * in_);
}

void ConvProduct::pack_weights(const float* weights, std::int64_t stride, float* packed, bool back) const noexcept {
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

void ConvProduct::run(const float* padded, const float* packed, float* result) const noexcept {
    const int mr = simd_.mr, nr = simd_.nr;
    for (int col = 0; col < columns_; col += nr)
        for (int row = 0; row < rows_; row += mr)
            for (int s = 0; s < segments_; ++s)
                simd_.tile_rows(segment_depth_, padded + (row + std::int64_t{s} * pitch_) * in_, in_, std::min(mr, rows_ - row),
                                packed + (col / nr * depth() + std::int64_t{s} * segment_depth_) * nr,
                                result + std::int64_t{row} * columns_ + col, columns_, s > 0);
}

void ConvProduct::add_weight_gradients(const float* padded, const float* dz, float* sums, float* scratch) const noexcept {
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

}  // namespace millrace::ops::cpu
