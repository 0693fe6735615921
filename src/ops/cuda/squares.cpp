#include "ops/cuda/squares.h"

#include <algorithm>
#include <bit>

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

const std::byte* begin_of(const Operand& o) { return static_cast<const std::byte*>(o.data); }
}  // namespace

std::int64_t place_in(const Operand& o, const Operand& arena) {
    const std::ptrdiff_t bytes = begin_of(o) - begin_of(arena);
    const std::int64_t at = bytes / static_cast<std::ptrdiff_t>(sizeof(float)), size = o.count() / o.k;
    const bool inside = bytes >= 0 && at + size <= arena.cols && o.k == arena.k && (o.k == 1 || o.stride_k == arena.stride_k);
    return inside && at % 4 == 0 && size % 4 == 0 ? at : -1;
}

bool leaves_squares(const Context& c, const Operand& o) {
    const std::int64_t matrix = std::int64_t{o.rows} * o.cols;
    const bool neighbours = (o.rows <= 1 || o.stride_row == o.cols) && (o.g <= 1 || o.stride_g == matrix);
    return !c.deterministic && c.ahead == nullptr && o.dtype == tensor::DType::f32 && o.count() > 0 && neighbours;
}

base::Result<DeviceTable> leave_squares(Context& c, const Operand& gradient, int parts) {
    if (!leaves_squares(c, gradient) || parts == 0) return DeviceTable{};
    MILLRACE_LET(sums, zero_table(c, sizeof(float) * static_cast<std::size_t>(parts) * static_cast<std::size_t>(gradient.k)));
    std::erase_if(c.squares, [&](const auto& left) { return Box(left->gradient).meets(Box(gradient)); });
    c.squares.push_back(std::make_shared<GradientSquares>(GradientSquares{gradient, sums, parts, c.at}));
    return sums;
}

base::Result<std::shared_ptr<GradientSquares>> leave_rows(Context& c, const DeviceTable& sums) {
    if (!sums || c.squares.back()->gradient.cols % 4 != 0) return std::shared_ptr<GradientSquares>{};
    const std::shared_ptr<GradientSquares> left = c.squares.back();
    left->rows.shift = std::countr_zero(static_cast<unsigned>(left->gradient.cols));
    const auto bytes = static_cast<std::size_t>(left->gradient.count() >> left->rows.shift);
    MILLRACE_LET(flags, zero_table(c, bytes));
    left->rows.flags = flags;
    return left;
}

std::vector<std::shared_ptr<GradientSquares>> current_squares(const Context& c) {
    std::vector<std::shared_ptr<GradientSquares>> current;
    for (const auto& left : c.squares)
        if (c.is_current(left->gradient, left->made + 1)) current.push_back(left);
    return current;
}

std::shared_ptr<const GradientSquares> skip_zeros(Context& c, const Operand& grads) {
    const auto is_read = [&](const GradientSquares& left) {
        return c.uses->next_reader(left.gradient, left.made).value_or(c.at) < c.at || c.uses->is_read(left.gradient, c.at);
    };
    std::shared_ptr<GradientSquares> largest;
    for (const auto& left : current_squares(c))
        if (left->rows.flags && !is_read(*left) && place_in(left->gradient, grads) >= 0 &&
            (!largest || left->gradient.count() > largest->gradient.count()))
            largest = left;
    if (largest) largest->rows.skip_zeros = true;
    return largest;
}

}  // namespace millrace::ops::cuda
