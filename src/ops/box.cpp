#include "ops/box.h"

#include <algorithm>

namespace millrace::ops {
namespace {

using Axes = std::span<const Box::Axis>;

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }

std::int64_t extent_of(Axes axes, std::int64_t run) {
    for (const Box::Axis& axis : axes) run += (axis.count - 1) * axis.stride;
    return run;
}

/// Takes the axis of that stride, if there is one, off `axes`.
std::int64_t take_axis(Axes& axes, std::int64_t stride) {
    if (axes.empty() || axes.front().stride != stride) return 1;
    const std::int64_t count = axes.front().count;
    axes = axes.subspan(1);
    return count;
}

std::int64_t largest_stride(Axes a, Axes b) {
    return std::max(a.empty() ? 0 : a.front().stride, b.empty() ? 0 : b.front().stride);
}

/// `apart`: where b begins behind a. Repetition i of one and j of the other are apart + (j - i) * stride apart, so that only the
/// few differences j - i are tried for which the two can meet. `tries`: how many more.
bool meet(std::int64_t apart, Axes a, std::int64_t run_a, Axes b, std::int64_t run_b, int& tries) {
    if (a.empty() && b.empty()) return apart < run_a && -apart < run_b;
    const std::int64_t stride = largest_stride(a, b), count_a = take_axis(a, stride), count_b = take_axis(b, stride);
    const std::int64_t first = std::max(1 - count_a, floor_div(-extent_of(b, run_b) - apart, stride) + 1);
    const std::int64_t last = std::min(count_b - 1, floor_div(extent_of(a, run_a) - 1 - apart, stride));
    for (std::int64_t i = first; i <= last; ++i)
        if (--tries < 0 || meet(apart + i * stride, a, run_a, b, run_b, tries)) return true;
    return false;
}

/// Whether a covers b, which begins `apart` behind it.
bool cover(std::int64_t apart, Axes a, std::int64_t run_a, Axes b, std::int64_t run_b) {
    if (a.empty()) return apart >= 0 && apart + extent_of(b, run_b) <= run_a;
    const std::int64_t stride = largest_stride(a, b), count_a = take_axis(a, stride), count_b = take_axis(b, stride);
    const std::int64_t skipped = floor_div(apart, stride);
    return skipped >= 0 && skipped + count_b <= count_a && cover(apart - skipped * stride, a, run_a, b, run_b);
}

}  // namespace

Box::Box(const tensor::Operand& o) : begin_(reinterpret_cast<std::uintptr_t>(o.data)) {
    if (!o.present() || o.count() == 0) return;
    const auto size = static_cast<std::int64_t>(tensor::size_of(o.dtype));
    run_ = o.cols * size;
    std::array<Axis, 3> all{{{o.k, o.stride_k * size}, {o.g, o.stride_g * size}, {o.rows, o.stride_row * size}}};
    std::ranges::sort(all, {}, &Axis::stride);
    for (const Axis& axis : all) {  // the smallest stride first: what continues the axis or the run before it joins that
        if (axis.count <= 1 || axis.stride == 0) continue;
        Axis* inner = axis_count_ > 0 ? &axes_[axis_count_ - 1] : nullptr;
        if (inner == nullptr && axis.stride <= run_)
            run_ += (axis.count - 1) * axis.stride;
        else if (inner != nullptr && axis.stride == inner->count * inner->stride)
            inner->count *= axis.count;
        else
            axes_[axis_count_++] = axis;
    }
    std::reverse(axes_.begin(), axes_.begin() + static_cast<std::ptrdiff_t>(axis_count_));
    extent_ = extent_of(axes(), run_);
}

bool Box::meets(const Box& other) const {
    if (empty() || other.empty()) return false;
    const auto apart = static_cast<std::int64_t>(other.begin_ - begin_);
    if (apart >= extent_ || -apart >= other.extent_) return false;
    int tries = 1 << 16;
    return meet(apart, axes(), run_, other.axes(), other.run_, tries);
}

bool Box::covers(const Box& other) const {
    if (other.empty()) return true;
    return !empty() && cover(static_cast<std::int64_t>(other.begin_ - begin_), axes(), run_, other.axes(), other.run_);
}

tensor::Operand stand_in(const tensor::View& v) {
    constexpr int kBufferBits = 40;  // bytes that a buffer may have
    if (!v.present()) return {};
    const auto base = (static_cast<std::uintptr_t>(v.buffer) + 1) << kBufferBits;
    const auto address = base + static_cast<std::uintptr_t>(v.offset) * tensor::size_of(v.dtype);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): it is compared, never followed
    return {reinterpret_cast<void*>(address), v.dtype, v.k, v.g, v.rows, v.cols, v.stride_k, v.stride_g, v.stride_row};
}

}  // namespace millrace::ops
