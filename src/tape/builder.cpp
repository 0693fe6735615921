#include "tape/builder.h"

#include <algorithm>

#include "ops/check.h"
#include "ops/dense/dense.h"
#include "ops/pointwise/pointwise.h"
#include "tape/record.h"
#include "tape/scan.h"

namespace millrace::tape {

using tensor::BufferId;
using tensor::View;

static void require_rule(const ops::Record& record) {
    const base::Status obeys_rule = ops::check_record(record);
    MILLRACE_ASSERT(obeys_rule.ok(), obeys_rule.error().text());
}

Builder::Builder(Store& store, BuildOptions options) : store_(store), options_(options) {}

BufferId Builder::add_buffer(Buffer buffer) {
    buffers_.push_back(std::move(buffer));
    gradients_.emplace_back();
    return kLocalBase + static_cast<BufferId>(buffers_.size()) - 1;
}

Value Builder::activation(std::int32_t rows, std::int32_t cols, std::string name, bool needs_gradient) {
    if (scan_ != nullptr && training()) return scan_->activation(rows, cols, name, needs_gradient);
    return {buffer(1, rows, cols, real(), Role::activation, std::move(name)), needs_gradient && training()};
}

View Builder::buffer(std::int32_t groups, std::int32_t rows, std::int32_t cols, tensor::DType dtype, Role role,
                     std::string name) {
    const std::int64_t elements = std::int64_t{groups} * rows * cols * store_.members();
    const BufferId id = add_buffer({std::move(name), role, dtype, elements, cols});
    return contiguous_view(id, dtype, store_.members(), groups, rows, cols);
}

View Builder::intermediate(std::int32_t groups, std::int32_t rows, std::int32_t cols, std::string name, bool wide) {
    const View view = buffer(groups, rows, cols, real(), Role::saved, std::move(name));
    if (scan_ != nullptr && scan_->recomputes(wide)) scan_->drop(view);
    return view;
}

View Builder::loss_total(const std::string& loss) const {
    const auto found = loss_totals_.find(loss);
    return found == loss_totals_.end() ? View{} : found->second;
}

void Builder::couple_rows(const std::string& what) {
    if (std::find(row_couplings_.begin(), row_couplings_.end(), what) == row_couplings_.end()) row_couplings_.push_back(what);
}

void Builder::keep(const View& view) {
    if (view.buffer < kLocalBase) return;
    buffers_[static_cast<std::size_t>(view.buffer - kLocalBase)].kept = true;
}

void Builder::append(ops::Record record) {
    if (scan_ != nullptr) scan_->prepare(record);
    if (!record.condition.present()) record.condition = condition_;
    // Weight gradients wait no longer than to the first record that needs their memory.
    const ops::Bound next = ops::stand_in(record);
    const auto last = std::find_if(deferred_.rbegin(), deferred_.rend(),
                                   [&](const ops::Record& waiting) { return ops::depend(ops::stand_in(waiting), next); });
    std::vector<ops::Record> placed(std::make_move_iterator(deferred_.begin()), std::make_move_iterator(last.base()));
    deferred_.erase(deferred_.begin(), last.base());
    for (ops::Record& ready : placed) push(std::move(ready));
    push(std::move(record));
}

void Builder::push(ops::Record record) {
    require_rule(record);
    const tensor::BufferId parameter_gradients = store_.gradient_arena().buffer;
    for (int slot = 0; slot < record.op->slot_count(); ++slot) {
        const View& view = record.slots[static_cast<std::size_t>(slot)];
        const bool local = view.buffer >= kLocalBase;
        if (!view.present() || !record.op->slot(slot).written() || !(local || view.buffer == parameter_gradients)) continue;
        Cover& written = written_[view.buffer];
        for (const Rectangle& part : rectangles_of(view, row_width(view))) {
            MILLRACE_ASSERT(!record.accumulates(slot) || written.gaps(part).empty(),
                            record.layer + ": adds to memory that was never written");
            written.add(part);
        }
    }
    records_.push_back(std::move(record));
}

void Builder::on_gradient(const Value& value, std::function<void(const View& gradient)> rule) {
    if (!value.needs_gradient) return;
    on_backward([this, value, rule = std::move(rule)] {
        if (const View complete = gradient(value); complete.present()) rule(complete);
    });
}

void Builder::append_weight_gradient(ops::Record record) {
    require_rule(record);
    if (scan_ != nullptr)
        scan_->merge_weight_gradient(std::move(record));
    else
        defer_weight_gradient(std::move(record));
}

void Builder::defer_weight_gradient(ops::Record record) {
    record.condition = condition_;
    if (options_.defer_weight_gradients)
        deferred_.push_back(std::move(record));
    else
        push(std::move(record));
}

void Builder::flush_weight_gradients() {
    for (ops::Record& r : std::exchange(deferred_, {})) push(std::move(r));
}

std::int64_t Builder::row_width(const View& view) const {
    return view.buffer < kLocalBase ? view.stride_k : buffers_[static_cast<std::size_t>(view.buffer - kLocalBase)].row_width;
}

Builder::Gradient& Builder::gradient_of(BufferId activation) {
    const auto index = static_cast<std::size_t>(activation - kLocalBase);
    MILLRACE_ASSERT(activation >= kLocalBase && index < gradients_.size(), "gradient of a buffer that is not this program's");
    if (gradients_[index].buffer == tensor::kNoBuffer && scan_ != nullptr) {
        const auto [view, shift] = scan_->gradient_place(activation);
        gradients_[index].buffer = view.buffer;
        gradients_[index].shift = shift;
    }
    if (gradients_[index].buffer == tensor::kNoBuffer) {
        Buffer b = buffers_[index];
        b.name += ".grad";
        b.first = b.last = -1;
        const BufferId id = add_buffer(std::move(b));
        gradients_[index].buffer = id;
    }
    return gradients_[index];
}

View Builder::gradient_view(const Gradient& gradient, View value) const {
    const Buffer& buffer = buffers_[static_cast<std::size_t>(gradient.buffer - kLocalBase)];
    value.buffer = gradient.buffer;
    value.dtype = buffer.dtype;
    value.stride_k = buffer.elements / store_.members();
    value.offset += gradient.shift * buffer.row_width;
    if (gradient.rolling) value.offset %= value.stride_k;
    return value;
}

bool Builder::touched(const Gradient& gradient, const View& view) const {
    const std::vector<Rectangle> parts = rectangles_of(view, row_width(view));
    return std::any_of(parts.begin(), parts.end(), [&](const Rectangle& part) { return gradient.written.meets(part); });
}

void Builder::complete(Gradient& gradient, const View& view) {
    const std::int64_t width = row_width(view);
    for (const Rectangle& part : rectangles_of(view, width)) {
        for (const Rectangle& gap : gradient.written.gaps(part)) {
            View out = view;
            out.g = 1;
            out.stride_g = 0;
            out.stride_row = width;
            out.offset = gap.row * width + gap.col;
            out.rows = static_cast<std::int32_t>(gap.row_end - gap.row);
            out.cols = static_cast<std::int32_t>(gap.col_end - gap.col);
            append(record_of(&ops::fill::kDef, ops::FillParams{}, "gradient", {out}));
        }
        gradient.written.add(part);
    }
}

Builder::Target Builder::claim(Gradient& gradient, const View& view) {
    const bool add = touched(gradient, view);
    if (add) complete(gradient, view);
    for (const Rectangle& part : rectangles_of(view, row_width(view))) gradient.written.add(part);
    return {view, add};
}

Builder::Target Builder::gradient_target(const Value& value) {
    MILLRACE_ASSERT(value.needs_gradient, "the gradient of this value is not wanted");
    Gradient& gradient = gradient_of(value.view.buffer);
    return claim(gradient, gradient_view(gradient, value.view));
}

View Builder::gradient(const Value& value) {
    if (!value.needs_gradient) return {};
    Gradient& gradient = gradient_of(value.view.buffer);
    if (gradient.rolling) settle_gradient(value.view);
    const View view = gradient_view(gradient, value.view);
    if (!touched(gradient, view)) return {};
    complete(gradient, view);
    return view;
}

View Builder::gradient_window(std::int32_t rows, std::int32_t cols, const std::string& name) {
    if (scan_ != nullptr) return scan_->gradient_window(rows, cols, name);
    return buffer(1, rows, cols, real(), Role::scratch, name);
}

void Builder::add_product(const Value& value, const View& a, const View& w, const std::string& layer) {
    if (!value.needs_gradient) return;
    if (Gradient& gradient = gradient_of(value.view.buffer); gradient.rolling) {
        gradient.waiting.insert(gradient.waiting.begin(), {a, w, layer});
        return;
    }
    append_product({a, w, layer}, gradient_target(value));
}

void Builder::append_product(const Product& product, const Target& target) {
    append(record_of(&ops::linear_dgrad::kDef, ops::LinearGradParams{}, product.layer, {product.a, product.w, target}));
}

void Builder::roll_gradient(const Value& state) {
    const auto index = static_cast<std::size_t>(state.view.buffer - kLocalBase);
    if (gradients_[index].rolling) return;
    const View window = buffer(1, state.view.rows, state.view.cols, stat(), Role::saved, buffers_[index].name + ".grad");
    gradients_[index].buffer = window.buffer;
    gradients_[index].rolling = true;
}

Builder::Rolling Builder::take_gradient(const Value& state, std::size_t most) {
    Gradient& gradient = gradient_of(state.view.buffer);
    MILLRACE_ASSERT(gradient.rolling, "the gradient of this state does not roll");
    if (gradient.waiting.size() > most) settle_gradient(state.view);
    const View view = gradient_view(gradient, state.view);
    if (gradient.waiting.empty() && !touched(gradient, view)) return {};
    return {view, !claim(gradient, view).accumulate, std::exchange(gradient.waiting, {})};
}

Builder::Target Builder::claim_rolling(const View& windows) {
    Gradient& gradient = gradient_of(windows.buffer);
    MILLRACE_ASSERT(gradient.rolling, "steps that may be skipped carry states whose gradient rolls");
    View view = gradient_view(gradient, windows);
    view.offset = 0;
    view.rows = static_cast<std::int32_t>(view.stride_k / row_width(view));
    return claim(gradient, view);
}

void Builder::settle_gradient(const View& windows) {
    for (const Product& product : std::exchange(gradient_of(windows.buffer).waiting, {}))
        append_product(product, claim_rolling(windows));
}

Builder::Target Builder::parameter_gradient(ParameterId id) {
    const bool again = std::find(written_parameters_.begin(), written_parameters_.end(), id) != written_parameters_.end();
    if (!again) written_parameters_.push_back(id);
    return {store_.gradient(id), again};
}

/// Statistics begin at whole quads of their row.
static std::int64_t padded(std::int64_t elements) { return (elements + 3) / 4 * 4; }

View Builder::statistics_row() {
    std::int64_t width = 0;
    for (const Parameter& parameter : store_.parameters())
        if (store_.groups()[static_cast<std::size_t>(parameter.group_ids.front())].name == kRunning)
            width += padded(parameter.count());
    return width == 0 ? View{} : running_row_ = buffer(1, 1, static_cast<std::int32_t>(width), stat(), Role::scratch, "moved");
}

View Builder::running(ParameterId id, float momentum) {
    const View statistic = store_.parameter(id);
    if (!running_row_.present() || !training()) return statistic;
    auto found = std::ranges::find(moved_, id, &Moved::id);
    if (found == moved_.end()) {
        std::int64_t offset = 0;
        for (const Moved& other : moved_) offset += padded(store_.parameters()[static_cast<std::size_t>(other.id)].count());
        found = moved_.insert(moved_.end(), {id, momentum, offset});
    }
    View place = statistic;
    place.buffer = running_row_.buffer;
    place.stride_k = running_row_.stride_k;
    place.stride_g = statistic.cols;
    place.offset = found->offset;
    MILLRACE_ASSERT(found->offset + std::int64_t{statistic.g} * statistic.cols <= running_row_.cols, "statistics beyond the row");
    return place;
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
