#pragma once
// A view is a window of shape [K, G, rows, cols] into a planned buffer: K ensemble members, G groups (models of equal shape
// inside one member), a row-major matrix. The last axis is always contiguous. Concatenation is a matter of offsets, never of
// copies.

#include <cstdint>

#include "tensor/dtype.h"

namespace millrace::tensor {

using BufferId = std::int32_t;
constexpr BufferId kNoBuffer = -1;

struct View {
    BufferId buffer = kNoBuffer;
    DType dtype = DType::f32;
    std::int32_t k = 1, g = 1, rows = 1, cols = 1;
    std::int64_t offset = 0;                                  ///< elements from the start of the buffer
    std::int64_t stride_k = 0, stride_g = 0, stride_row = 0;  ///< elements

    friend bool operator==(const View&, const View&) = default;
    [[nodiscard]] bool present() const { return buffer != kNoBuffer; }
    [[nodiscard]] std::int64_t count() const { return std::int64_t{k} * g * rows * cols; }

    /// Columns [begin, begin + width) of every row; the groups stay.
    [[nodiscard]] View columns(std::int32_t begin, std::int32_t width) const {
        View part = *this;
        part.offset += begin;
        part.cols = width;
        return part;
    }
    /// Rows [begin, begin + count) of every group.
    [[nodiscard]] View row_window(std::int64_t begin, std::int32_t count) const {
        View part = *this;
        part.offset += begin * stride_row;
        part.rows = count;
        return part;
    }
    /// Splits the columns of a view with one group into `groups` groups of equal width: [K,1,R,G*c] -> [K,G,R,c].
    [[nodiscard]] View split_columns(std::int32_t groups) const {
        View part = *this;
        part.g = groups;
        part.cols = cols / groups;
        part.stride_g = part.cols;
        return part;
    }
    /// One group as a view of its own.
    [[nodiscard]] View group(std::int32_t index) const {
        View part = *this;
        part.g = 1;
        part.offset += index * stride_g;
        part.stride_g = 0;
        return part;
    }
    /// The groups' rows as one matrix: [K,G,R,C] -> [K,1,G*R,C]. Only when groups follow each other without a hole.
    [[nodiscard]] View merge_groups() const {
        View part = *this;
        part.rows = g * rows;
        part.g = 1;
        part.stride_g = 0;
        return part;
    }
};

/// A view bound to memory.
struct Operand {
    void* data = nullptr;
    DType dtype = DType::f32;
    std::int32_t k = 0, g = 0, rows = 0, cols = 0;
    std::int64_t stride_k = 0, stride_g = 0, stride_row = 0;

    bool operator==(const Operand&) const = default;
    [[nodiscard]] bool present() const { return data != nullptr; }
    [[nodiscard]] std::int64_t count() const { return std::int64_t{k} * g * rows * cols; }

    template <class T>
    [[nodiscard]] T* at(std::int64_t member, std::int64_t group = 0, std::int64_t row = 0) const {
        return static_cast<T*>(data) + member * stride_k + group * stride_g + row * stride_row;
    }
};

}  // namespace millrace::tensor
