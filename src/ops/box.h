#pragma once
// The elements of an operand as memory: runs of bytes that repeat at strides.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/view.h"

namespace millrace::ops {

class Box {
public:
    explicit Box(const tensor::Operand& operand);

    /// Whether they share a byte. Exact, but for boxes of unlike strides that meet in very many ways to try: those are said to.
    [[nodiscard]] bool meets(const Box& other) const;
    /// Whether all of `other` lies in it; boxes of unlike strides may be said not to.
    [[nodiscard]] bool covers(const Box& other) const;
    [[nodiscard]] bool empty() const { return run_ == 0; }

    /// `count` repetitions, `stride` bytes apart.
    struct Axis {
        std::int64_t count = 1, stride = 0;
    };

private:
    [[nodiscard]] std::span<const Axis> axes() const { return {axes_.data(), axis_count_}; }

    std::uintptr_t begin_ = 0;
    std::int64_t run_ = 0, extent_ = 0;  ///< bytes of a run, bytes from the first to behind the last
    std::array<Axis, 3> axes_;           ///< largest stride first
    std::size_t axis_count_ = 0;
};

/// The operand with an address that stands for its buffer's: equal, adjacent and aligned as they will be. Absent stays absent.
tensor::Operand stand_in(const tensor::View& view);

}  // namespace millrace::ops
