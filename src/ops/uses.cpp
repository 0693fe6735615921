#include "ops/uses.h"

#include <algorithm>
#include <functional>
#include <numeric>

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

using tensor::Operand;

Uses::Uses(std::span<const Bound> records, std::span<const Section> sections, std::vector<Block> blocks)
    : sections_(sections.begin(), sections.end()), order_(blocks.size()), uses_(blocks.size() + 1), count_(records.size()) {
    if (sections_.empty()) sections_.push_back({0, records.size(), 1});
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::ranges::sort(order_, std::less<>(), [&](std::size_t i) { return blocks[i].data; });
    for (const std::size_t i : order_) blocks_.push_back(blocks[i]);
    for (std::size_t r = 0; r < records.size(); ++r) {
        const auto add = [&](const Operand& o, bool reads, bool writes) {
            if (!o.present()) return;
            uses_[block_of(o)].push_back({r, Box(o), reads, writes, !records[r].condition.present()});
        };
        const Record& record = *records[r].record;
        for (int slot = 0; slot < record.slot_count(); ++slot) add(records[r][slot], record.reads(slot), record.writes(slot));
        add(records[r].condition, true, false);
    }
}

std::size_t Uses::block_of(const Operand& o) const {
    const auto behind = std::ranges::upper_bound(blocks_, static_cast<const void*>(o.data), std::less<>(), &Block::data);
    if (behind == blocks_.begin()) return blocks_.size();
    const Block& block = *(behind - 1);
    const bool inside = static_cast<const std::byte*>(o.data) < static_cast<const std::byte*>(block.data) + block.bytes;
    return inside ? order_[static_cast<std::size_t>(behind - blocks_.begin()) - 1] : blocks_.size();
}

const Section& Uses::section_of(std::size_t record) const {
    const auto behind = std::ranges::upper_bound(sections_, record, {}, &Section::first);
    return behind == sections_.begin() ? *behind : *(behind - 1);
}

bool Uses::is_written(const Operand& o, std::size_t first, std::size_t end) const {
    const List& list = uses_near(o);
    const Box box(o);
    for (auto use = std::ranges::lower_bound(list, first, {}, &Use::record); use != list.end() && use->record < end; ++use)
        if (use->writes && use->box.meets(box)) return true;
    return false;
}

std::optional<std::size_t> Uses::last_writer(const Operand& o, std::size_t end) const {
    const List& list = uses_near(o);
    const Box box(o);
    for (auto use = std::ranges::lower_bound(list, end, {}, &Use::record); use != list.begin();)
        if (--use; use->writes && use->box.meets(box)) return use->record;
    return std::nullopt;
}

std::optional<std::size_t> Uses::next_reader(const Operand& o, std::size_t after) const {
    const List& list = uses_near(o);
    const Box box(o);
    for (auto use = std::ranges::upper_bound(list, after, {}, &Use::record); use != list.end(); ++use)
        if (use->reads && use->box.meets(box)) return use->record;
    return std::nullopt;
}

Uses::Fate Uses::fate(const Operand& o, std::size_t first, std::size_t end) const {
    const List& list = uses_near(o);
    const Box box(o);
    bool overwritten = false;  // by the record being looked at, whose other slots may read it first
    std::size_t record = first;
    for (auto use = std::ranges::lower_bound(list, first, {}, &Use::record); use != list.end() && use->record < end; ++use) {
        if (overwritten && use->record != record) break;
        record = use->record;
        if (use->reads && use->box.meets(box)) return Fate::read;
        overwritten = overwritten || (use->writes && use->always && use->box.covers(box));
    }
    return overwritten ? Fate::overwritten : Fate::left;
}

bool Uses::is_read(const Operand& o, std::size_t after) const {
    const Section& section = section_of(after);
    const std::size_t end = section.first + section.count;
    if (const Fate rest = fate(o, after + 1, end); rest != Fate::left) return rest == Fate::read;
    if (section.repeat > 1 && fate(o, section.first, after + 1) == Fate::read) return true;
    return fate(o, end, count_) == Fate::read;
}

bool Uses::outlives(const Operand& o, std::size_t after) const {
    const auto behind = std::ranges::find(order_, block_of(o));
    if (behind != order_.end() && blocks_[static_cast<std::size_t>(behind - order_.begin())].kept) return true;
    return is_read(o, after);
}

bool depend(const Bound& a, const Bound& b) {
    for (int i = 0; i < a.record->slot_count(); ++i) {
        const Box box(a[i]);
        for (int j = 0; j < b.record->slot_count(); ++j)
            if ((a.record->writes(i) || b.record->writes(j)) && box.meets(Box(b[j]))) return true;
    }
    return false;
}

Bound stand_in(const Record& record) {
    Bound bound;
    bound.record = &record;
    for (std::size_t s = 0; s < record.slots.size(); ++s) bound.operands[s] = stand_in(record.slots[s]);
    bound.condition = stand_in(record.condition);
    return bound;
}

std::optional<Uses::Lifetime> Uses::lifetime(std::size_t block) const {
    const List& list = uses_[block];
    if (list.empty()) return std::nullopt;
    Lifetime life{list.front().record, list.back().record};
    for (const Section& section : sections_) {
        if (section.count == 0) continue;
        const std::size_t last = section.first + section.count - 1;
        if (section.repeat <= 1 || life.last < section.first || life.first > last) continue;
        if (life.first >= section.first && list.front().reads) life.first = section.first;
        if (life.first < section.first || list.front().reads) life.last = std::max(life.last, last);
    }
    return life;
}

}  // namespace millrace::ops
