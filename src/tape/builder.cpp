#include "tape/builder.h"
#include "ops/dense/dense.h"
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

void Builder::append(ops::Record record) {
    if (!record.slots[ops::kWhile].present()) record.slots[ops::kWhile] = while_;
    push(std::move(record));
}

void Builder::push(ops::Record record) {
    const tensor::BufferId parameter_gradients = store_.gradient_arena().buffer;
    for (int slot = 0; slot < record.op->slot_count(); ++slot) {
        const View& view = record.slots[static_cast<std::size_t>(slot)];
        const bool local = view.buffer >= kLocalBase;
        if (!view.present() || !record.op->slot(slot).written() || !(local || view.buffer == parameter_gradients)) continue;
        Cover& written = written_[view.buffer];
        const std::int64_t width = local ? buffers_[static_cast<std::size_t>(view.buffer - kLocalBase)].row_width : view.stride_k;
        for (const Rectangle& part : rectangles_of(view, width)) {
            MILLRACE_ASSERT(!record.accumulates(slot) || (!local && options_.accumulate) || written.gaps(part).empty(),
                            record.layer + ": adds to memory that nobody wrote");
            written.add(part);
        }
    }
    records_.push_back(std::move(record));
}

void Builder::append_weight_gradient(ops::Record record) {
    record.slots[ops::kWhile] = while_;
    if (options_.defer_weight_gradients)
        deferred_.push_back(std::move(record));
    else
        append(std::move(record));
}

void Builder::flush_weight_gradients() {
    for (ops::Record& r : deferred_) push(std::move(r));
    deferred_.clear();
}

std::vector<Rectangle> Builder::rectangles(const View& view) const {
    const Buffer& buffer = buffers_[static_cast<std::size_t>(view.buffer - kLocalBase)];
    return rectangles_of(view, buffer.row_width);
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

bool Builder::touched(const Gradient& gradient, const std::vector<Rectangle>& parts) {
    return std::any_of(parts.begin(), parts.end(), [&](const Rectangle& part) { return gradient.written.meets(part); });
}

void Builder::zero_gaps(const Gradient& gradient, const View& view, const std::vector<Rectangle>& parts) {
    const std::int64_t width = buffers_[static_cast<std::size_t>(view.buffer - kLocalBase)].row_width;
    for (const Rectangle& part : parts)
        for (const Rectangle& gap : gradient.written.gaps(part)) {
            ops::Record fill{&ops::fill::def, ops::FillParams{}, {}, 0, "gradient"};
            View& out = fill.slots[ops::fill::out];
            out = view;
            out.buffer = gradient.buffer;
            out.g = 1;
            out.stride_g = 0;
            out.stride_row = width;
            out.offset = gap.row * width + gap.col;
            out.rows = static_cast<std::int32_t>(gap.row_end - gap.row);
            out.cols = static_cast<std::int32_t>(gap.col_end - gap.col);
            append(std::move(fill));
        }
}

Builder::Target Builder::gradient_target(const Value& value) {
    MILLRACE_ASSERT(value.needs_gradient, "nobody asks for the gradient of this value");
    Gradient& gradient = gradient_of(value.view.buffer);
    const std::vector<Rectangle> parts = rectangles(value.view);
    Target target{value.view, touched(gradient, parts)};
    target.view.buffer = gradient.buffer;
    if (target.accumulate) zero_gaps(gradient, value.view, parts);
    for (const Rectangle& part : parts) gradient.written.add(part);
    return target;
}

View Builder::gradient(const Value& value) {
    if (!value.needs_gradient) return {};
    Gradient& gradient = gradient_of(value.view.buffer);
    const std::vector<Rectangle> parts = rectangles(value.view);
    if (!touched(gradient, parts)) return {};
    zero_gaps(gradient, value.view, parts);
    for (const Rectangle& part : parts) gradient.written.add(part);
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
