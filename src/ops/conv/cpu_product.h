#pragma once
// The product inside a convolution, for one map: u [positions, out] = windows of x [positions, taps * in] times weights. The map
// lies padded with zeros, so that the windows of neighbouring positions are rows of one matrix that overlap: nothing is copied
// per tap.

#include <cstdint>

#include "ops/conv/conv.h"
#include "ops/cpu/simd_kernels.h"

namespace millrace::ops::cpu {

class ConvProduct {
public:
    /// From maps of `in` channels to maps of `out`. The backward pass is a product of the same kind, from p.out to p.in channels.
    ConvProduct(const ConvParams& p, const SimdKernels& simd, int in, int out);

    /// Of one map.
    [[nodiscard]] std::int64_t multiplications() const { return std::int64_t{rows_} * depth() * out_; }
    /// Rows of the product: position (h, w) is row h * row_pitch() + w; rows between those are rubbish.
    [[nodiscard]] int rows() const { return rows_; }
    [[nodiscard]] int row_pitch() const { return pitch_; }
    /// Floats from row to row of the result.
    [[nodiscard]] std::int64_t result_stride() const { return columns_; }
    /// Float of the padded map at which position (0, 0) begins.
    [[nodiscard]] std::int64_t first_inside() const { return (std::int64_t{taps_h_.before} * pitch_ + taps_w_.before) * in_; }

    [[nodiscard]] std::size_t padded_floats() const;
    [[nodiscard]] std::size_t packed_floats() const;
    [[nodiscard]] std::size_t result_floats() const;
    [[nodiscard]] std::size_t weight_sums_floats() const;  ///< [taps * in, out]
    [[nodiscard]] std::size_t gradient_floats() const;     ///< working memory of add_weight_gradients

    /// padded = the map with zeros around it.
    void pad(const float* map, float* padded) const noexcept;
    /// Weights [p.out, p.in * taps] as the product reads them; `back`: those of the backward pass.
    void pack_weights(const float* weights, std::int64_t stride, float* packed, bool back) const noexcept;
    void run(const float* padded, const float* packed, float* result) const noexcept;
    /// sums += windows^T dz; dz [rows, out] without holes, zeros in the rows between positions.
    void add_weight_gradients(const float* padded, const float* dz, float* sums, float* scratch) const noexcept;

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
    [[nodiscard]] std::int64_t depth() const { return std::int64_t{taps_h_.count} * taps_w_.count * in_; }

    ConvParams p_;
    const SimdKernels& simd_;
    int in_, out_;
    LiveTaps taps_h_, taps_w_;
    int pitch_, rows_, columns_;
    int segments_, segment_depth_;  ///< runs of a window that lie without holes
};

}  // namespace millrace::ops::cpu
