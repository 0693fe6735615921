#include "tape/builder.h"
#include "ops/pointwise/pointwise.h"

#include <algorithm>

namespace millrace::tape {

using tensor::BufferId;
using tensor::View;

Builder::Builder(Store& store, BuildOptions options) : store_(store), options_(options) {}

BufferId Builder::add_buffer(Buffer buffer) {
    buffers_.push_back(std::move(buffer));
    gradients_.emplace_back();
    return kLocalBase + static_cast<BufferId>(buffers_.size()) - 1;
}

Value Builder::activation(std::int32_t rows, std::int32_t cols, std::string name, bool needs_gradient) {
    return {buffer(1, rows, cols, real(), Role::activation, std::move(name)), needs_gradient && training()};
}

View Builder::buffer(std::int32_t groups, std::int32_t rows, std::int32_t cols, tensor::DType dtype, Role role,
                     std::string name) {
    const std::int64_t per_member = std::int64_t{groups} * rows * cols;
    Buffer b;
    b.name = std::move(name);
    b.role = role;
    b.dtype = dtype;
    b.elements = per_member * store_.members();
    b.row_width = cols;
    View v;
    v.buffer = add_buffer(std::move(b));
    v.dtype = dtype;
    v.k = store_.members();
    v.g = groups;
    v.rows = rows;
    v.cols = cols;
    v.stride_k = per_member;
    v.stride_g = std::int64_t{rows} * cols;
    v.stride_row = cols;
    return v;
}

void Builder::keep(const View& view) {
    if (view.buffer < kLocalBase) return;
    buffers_[static_cast<std::size_t>(view.buffer - kLocalBase)].kept = true;
}

void Builder::append_weight_gradient(ops::Record record) {
    record.slots[ops::kWhile] = while_;
    if (options_.defer_weight_gradients)
        deferred_.push_back(std::move(record));
    else
        append(std::move(record));
}

void Builder::flush_weight_gradients() {
    for (ops::Record& r : deferred_) records_.push_back(std::move(r));
    deferred_.clear();
}

Builder::Interval Builder::span_of(const View& view) const {
    const std::int64_t width = buffers_[static_cast<std::size_t>(view.buffer - kLocalBase)].row_width;
    const std::int64_t begin = view.offset % width;
    const std::int64_t groups_width = view.stride_g < width ? (view.g - 1) * view.stride_g : 0;
    return {begin, begin + groups_width + view.cols};
}

Builder::Gradient& Builder::gradient_of(BufferId activation) {
    const auto index = static_cast<std::size_t>(activation - kLocalBase);
    MILLRACE_ASSERT(activation >= kLocalBase && index < gradients_.size(), "gradient of a buffer that is not this program's");
    if (gradients_[index].buffer == tensor::kNoBuffer) {
        Buffer b = buffers_[index];
        b.name += ".grad";
        b.first = b.last = -1;
        const BufferId id = add_buffer(std::move(b));
        gradients_[index].buffer = id;
    }
    return gradients_[index];
}

bool Builder::covered(const Gradient& gradient, Interval span) {
    std::int64_t at = span.begin;
    for (const Interval& w : gradient.written)  // sorted and disjoint
        if (w.begin <= at) at = std::max(at, w.end);
    return at >= span.end;
}

bool Builder::touched(const Gradient& gradient, Interval span) {
    return std::any_of(gradient.written.begin(), gradient.written.end(),
                       [&](const Interval& w) { return w.begin < span.end && span.begin < w.end; });
}

void Builder::zero_gaps(Gradient& gradient, const View& view, Interval span) {
    View base = view;  // the gradient's rows from column 0, one group
    base.buffer = gradient.buffer;
    base.g = 1;
    base.stride_g = 0;
    base.offset -= span.begin;
    std::int64_t at = span.begin;
    auto zero = [&](std::int64_t from, std::int64_t to) {
        if (from >= to) return;
        ops::Record r;
        r.op = &ops::fill::def;
        r.params = ops::FillParams{};
        r.slots[ops::fill::out] = base.columns(static_cast<std::int32_t>(from), static_cast<std::int32_t>(to - from));
        r.layer = "gradient";
        append(std::move(r));
    };
    for (const Interval& w : gradient.written) {
        if (w.end <= at || w.begin >= span.end) continue;
        zero(at, w.begin);
        at = std::max(at, w.end);
    }
    zero(at, span.end);
}

namespace {

template <class Interval>
void merge(std::vector<Interval>& written, Interval span) {
    written.push_back(span);
    std::sort(written.begin(), written.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
    std::vector<Interval> joined;
    for (const Interval& w : written) {
        if (!joined.empty() && w.begin <= joined.back().end)
            joined.back().end = std::max(joined.back().end, w.end);
        else
            joined.push_back(w);
    }
    written = std::move(joined);
}

}  // namespace

Builder::Target Builder::gradient_target(const Value& value) {
    MILLRACE_ASSERT(value.needs_gradient, "nobody asks for the gradient of this value");
    Gradient& gradient = gradient_of(value.view.buffer);
    const Interval span = span_of(value.view);
    Target target{value.view, false};
    target.view.buffer = gradient.buffer;
    if (touched(gradient, span)) {
        if (!covered(gradient, span)) zero_gaps(gradient, value.view, span);
        target.accumulate = true;
    }
    merge(gradient.written, span);
    return target;
}

View Builder::gradient(const Value& value) {
    if (!value.needs_gradient) return {};
    Gradient& gradient = gradient_of(value.view.buffer);
    const Interval span = span_of(value.view);
    if (!touched(gradient, span)) return {};
    if (!covered(gradient, span)) {
        zero_gaps(gradient, value.view, span);
        merge(gradient.written, span);
    }
    View v = value.view;
    v.buffer = gradient.buffer;
    return v;
}

Builder::Target Builder::parameter_gradient(ParameterId id) {
    const bool again = std::find(written_parameters_.begin(), written_parameters_.end(), id) != written_parameters_.end();
    if (!again) written_parameters_.push_back(id);
    return {store_.gradient(id), options_.accumulate || again};
}

void Builder::backward() {
    MILLRACE_ASSERT(training(), "an evaluation program has no backward pass");
    for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) (*rule)();
    rules_.clear();
    flush_weight_gradients();
}

void Builder::close_section(int repeat) {
    rules_.clear();
    MILLRACE_ASSERT(deferred_.empty(), "weight gradients left behind: backward() was not called");
    for (Gradient& g : gradients_) g.written.clear();
    written_parameters_.clear();
    const std::size_t first = sections_.empty() ? 0 : sections_.back().first + sections_.back().count;
    sections_.push_back({first, records_.size() - first, repeat});
}

}  // namespace millrace::tape
