#include "ops/cuda/squares.h"

#include <algorithm>
#include <bit>

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

const std::byte* begin_of(const Operand& o) { return static_cast<const std::byte*>(o.data); }
/// Bytes from the first to behind the last element, of member 0 or of all.
std::int64_t extent(const Operand& o, int members) {
    const std::int64_t last = std::int64_t{members - 1} * o.stride_k + std::int64_t{o.g - 1} * o.stride_g +
                              std::int64_t{o.rows - 1} * o.stride_row + o.cols;
    return last * static_cast<std::int64_t>(tensor::size_of(o.dtype));
}

/// Members of one arena interleave, so that two of its tensors are compared within a member.
bool overlaps(const Operand& a, const Operand& b) {
    const bool same_arena = a.k == b.k && a.dtype == b.dtype && a.stride_k == b.stride_k;
    const int of_a = same_arena ? 1 : a.k, of_b = same_arena ? 1 : b.k;
    return begin_of(a) < begin_of(b) + extent(b, of_b) && begin_of(b) < begin_of(a) + extent(a, of_a);
}

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
    c.squares.push_back(std::make_shared<GradientSquares>(GradientSquares{gradient, sums, parts}));
    return sums;
}

base::Result<std::shared_ptr<GradientSquares>> leave_rows(Context& c, const DeviceTable& sums) {
    if (!sums || c.squares.back()->gradient.cols % 4 != 0) return std::shared_ptr<GradientSquares>{};
    const std::shared_ptr<GradientSquares> left = c.squares.back();
    left->rows.shift = std::countr_zero(static_cast<unsigned>(left->gradient.cols));
    const auto bytes = static_cast<std::size_t>(left->gradient.count() >> left->rows.shift);
    MILLRACE_LET(flags, zero_table(c, (bytes + 15) / 16 * 16));
    left->rows.flags = flags;
    return left;
}

std::shared_ptr<const GradientSquares> skip_zeros(Context& c, const Operand& grads) {
    std::shared_ptr<GradientSquares> largest;
    for (const auto& left : c.squares)
        if (left->rows.flags && !left->rows.read && place_in(left->gradient, grads) >= 0 &&
            (!largest || left->gradient.count() > largest->gradient.count()))
            largest = left;
    if (largest) largest->rows.skip_zeros = true;
    return largest;
}

void forget_squares(Context& c, const Bound& b, std::size_t& before) {
    for (int s = 0; s < b.record->op->slot_count(); ++s) {
        const Operand& used = b[s];
        if (!used.present() || used.count() == 0) continue;
        for (std::size_t i = 0; i < before;) {
            const bool used_now = overlaps(c.squares[i]->gradient, used);
            if (!used_now || !b.record->op->slot(s).written()) {
                c.squares[i]->rows.read |= used_now;
                ++i;
                continue;
            }
            c.squares.erase(c.squares.begin() + static_cast<std::ptrdiff_t>(i));
            --before;
        }
    }
}

}  // namespace millrace::ops::cuda
