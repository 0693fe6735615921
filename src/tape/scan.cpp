#include "tape/scan.h"
#include "ops/dense/dense.h"
#include "ops/pointwise/pointwise.h"
#include "tape/record.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace::tape {

using tensor::View;

namespace {

/// Whether the rows of `below` follow those of `above`.
bool follows(const View& above, const View& below) {
    View next = above;
    next.offset += above.rows * above.stride_row;
    next.rows = below.rows;
    return (above.g == 1 || above.stride_g < above.stride_row) && next == below;
}

/// Makes `sum` the record over the rows of both, `record` being the step before it.
bool join(ops::Record& sum, const ops::Record& record) {
    if (sum.op != record.op || sum.layer != record.layer) return false;
    for (int slot = 0; slot < sum.op->slot_count(); ++slot) {
        const View &a = record.slots[static_cast<std::size_t>(slot)], &b = sum.slots[static_cast<std::size_t>(slot)];
        if (!(sum.op->slot(slot).written() ? a == b : follows(a, b))) return false;
    }
    for (int slot = 0; slot < sum.op->slot_count(); ++slot) {
        if (sum.op->slot(slot).written()) continue;
        View& all = sum.slots[static_cast<std::size_t>(slot)];
        all.offset = record.slots[static_cast<std::size_t>(slot)].offset;
        all.rows += record.slots[static_cast<std::size_t>(slot)].rows;
    }
    return true;
}

}  // namespace

Scan::Scan(Builder& builder, ScanOptions options) : builder_(builder), options_(std::move(options)) {
    if (options_.chunks.empty()) options_.chunks = {{0, options_.steps}};
    rules_.resize(static_cast<std::size_t>(options_.steps));
}

Value Scan::State::before(std::int32_t t) const {
    return {windows_.row_window(std::int64_t{training_ ? t : t % 2} * rows_, rows_), training_ && t > 0};
}

Scan::State Scan::state(std::int32_t rows, std::int32_t cols, std::string name) {
    State state;
    state.rows_ = rows;
    state.training_ = builder_.training();
    const std::int32_t windows = state.training_ ? options_.steps + 1 : 2;
    state.windows_ = builder_.buffer(1, windows * rows, cols, builder_.real(), Role::saved, name);
    builder_.append(record_of(&ops::fill::kDef, ops::FillParams{}, std::move(name), {state.before(0)}));
    states_.push_back(state);
    return state;
}

void Scan::run(const std::function<void(std::int32_t t)>& body) {
    MILLRACE_ASSERT(builder_.scan_ == nullptr, "a scan inside a scan");
    for (const auto& [first, end] : options_.chunks) {
        const View condition = condition_of(first);
        builder_.only_if(condition);
        builder_.scan_ = this;
        for (std::int32_t t = first; t < end; ++t) {
            begin_step(t);
            const std::size_t outside = builder_.rules_.size();
            body(t);
            const auto from = builder_.rules_.begin() + static_cast<std::ptrdiff_t>(outside);
            rules_[static_cast<std::size_t>(t)].assign(std::make_move_iterator(from),
                                                       std::make_move_iterator(builder_.rules_.end()));
            builder_.rules_.erase(from, builder_.rules_.end());
        }
        builder_.scan_ = nullptr;
        builder_.only_if({});
        for (std::int32_t t = first; t < end && condition.present(); ++t) options_.skipped(t);
    }
    if (builder_.training()) builder_.on_backward([self = shared_from_this()] { self->backward(); });
}

Value Scan::activation(std::int32_t rows, std::int32_t cols, const std::string& name, bool needs_gradient) {
    Stack& stack = stacks_[key(name)];
    MILLRACE_ASSERT(stack.rows == 0 || (stack.rows == rows && stack.cols == cols), name + ": another shape in every step");
    stack.name = name;
    stack.rows = rows;
    stack.cols = cols;
    if (options_.recompute_values) {
        const View fresh = builder_.buffer(1, rows, cols, builder_.real(), Role::activation, name);
        homes_[fresh.buffer] = {&stack, step_};
        dropped_[fresh.buffer].view = fresh;
        return {fresh, needs_gradient};
    }
    if (!stack.kept.present()) {
        stack.kept = builder_.buffer(1, options_.steps * rows, cols, builder_.real(), Role::saved, name);
        homes_[stack.kept.buffer] = {&stack, -1};
    }
    return {stack.kept.row_window(std::int64_t{step_} * rows, rows), needs_gradient};
}

View Scan::gradient_window(std::int32_t rows, std::int32_t cols, const std::string& name) {
    View& stack = gradient_stacks_[key(name)];
    if (!stack.present()) stack = builder_.buffer(1, count_ * rows, cols, builder_.real(), Role::saved, name);
    return stack.row_window(std::int64_t{step_ - first_} * rows, rows);
}

std::pair<View, std::int64_t> Scan::gradient_place(tensor::BufferId buffer) {
    const auto home = homes_.find(buffer);
    if (home == homes_.end()) return {};
    Stack& stack = *home->second.stack;
    if (!stack.gradient.present())
        stack.gradient = builder_.buffer(1, count_ * stack.rows, stack.cols, builder_.real(), Role::saved, stack.name + ".grad");
    const std::int32_t step = home->second.step < 0 ? 0 : home->second.step;
    return {stack.gradient, std::int64_t{step - first_} * stack.rows};
}

void Scan::prepare(ops::Record& record) {
    if (backward_) {
        read_again(record);
    } else if (!dropped_.empty()) {
        const ops::Record whole = record;
        bool produces = false;
        for (int slot = 0; slot < record.op->slot_count(); ++slot) {
            View& view = record.slots[static_cast<std::size_t>(slot)];
            const auto dropped = dropped_.find(view.buffer);
            if (!record.op->slot(slot).written() || dropped == dropped_.end()) continue;
            dropped->second.producers.push_back(producers_.size());
            produces = true;
            if (dropped->second.optional) view = {};
        }
        if (produces) producers_.push_back({whole, false});
    }
    if (step_ >= 0) record.layer = fmt::format("step {} {}", step_, record.layer);
}

void Scan::read_again(ops::Record& record) {
    for (int slot = 0; slot < record.op->slot_count(); ++slot)
        if (View& view = record.slots[static_cast<std::size_t>(slot)];
            !record.op->slot(slot).written() && dropped_.contains(view.buffer))
            view = again(view);
}

View Scan::fresh_like(const View& view, const char* name) {
    return builder_.buffer(view.g, view.rows, view.cols, view.dtype, Role::scratch, name);
}

View Scan::place_again(Dropped& dropped) {
    if (dropped.again.present()) return dropped.again;
    const View& view = dropped.view;
    if (dropped.optional) return dropped.again = fresh_like(view, "computed again");
    const Home& home = homes_.at(view.buffer);
    MILLRACE_ASSERT(home.step == step_, home.stack->name + ": read in another step");
    Stack& stack = *home.stack;
    if (!stack.again.present())
        stack.again = builder_.buffer(1, count_ * stack.rows, stack.cols, builder_.real(), Role::saved, stack.name);
    return dropped.again = stack.again.row_window(std::int64_t{step_ - first_} * stack.rows, stack.rows);
}

View Scan::again(const View& view) {
    const auto moved = [this](View from) {
        const View to = place_again(dropped_.at(from.buffer));
        from.buffer = to.buffer;
        from.offset += to.offset;
        from.stride_k = to.stride_k;
        return from;
    };
    for (const std::size_t index : dropped_.at(view.buffer).producers) {
        if (std::exchange(producers_[index].repeated, true)) continue;
        ops::Record record = producers_[index].record;
        for (int slot = 0; slot < record.op->slot_count(); ++slot) {
            View& out = record.slots[static_cast<std::size_t>(slot)];
            if (!out.present() || !record.op->slot(slot).written()) continue;
            out = dropped_.contains(out.buffer) ? moved(out) : fresh_like(out, "not read");
        }
        builder_.append(std::move(record));
    }
    return moved(view);
}

void Scan::merge_weight_gradient(ops::Record record) {
    read_again(record);
    for (ops::Record& sum : merged_)
        if (join(sum, record)) return;
    merged_.push_back(std::move(record));
}

void Scan::append_weight_gradients() {
    // Products stay side by side: a backend shares a launch among them.
    const auto is_product = [](const ops::Record& record) { return record.op != &ops::column_sum::kDef; };
    const auto sums = std::stable_partition(merged_.begin(), merged_.end(), is_product);
    std::for_each(merged_.begin(), sums, [this](ops::Record& record) { builder_.defer_weight_gradient(std::move(record)); });
    std::for_each(sums, merged_.end(), [this](ops::Record& record) { builder_.append(std::move(record)); });
    merged_.clear();
    // Those of the first chunk may wait for other layers' gradients; the memory of the others is needed again.
    if (first_ > 0) builder_.flush_weight_gradients();
}

void Scan::backward() {
    for (const auto& [buffer, home] : homes_)
        MILLRACE_ASSERT(builder_.gradients_[static_cast<std::size_t>(buffer - kLocalBase)].buffer == tensor::kNoBuffer,
                        home.stack->name + " is read outside of the scan: let the step write it into an activation from outside");
    builder_.scan_ = this;
    backward_ = true;
    if (options_.condition) {  // sums begin as zeros
        const auto zero = [&](const View& view) {
            builder_.append(record_of(&ops::fill::kDef, ops::FillParams{}, "scan", {view}));
        };
        step_ = -1;
        for (const State& state : states_) zero(builder_.claim_rolling(state.windows_).view);
        if (!builder_.parameter_gradient(options_.first_parameter).accumulate)
            zero(builder_.store().gradient_span(options_.first_parameter, options_.last_parameter));
        for (ParameterId id = options_.first_parameter + 1; id <= options_.last_parameter; ++id)
            (void)builder_.parameter_gradient(id);
    }
    for (std::size_t chunk = options_.chunks.size(); chunk-- > 0;) {
        const auto [first, end] = options_.chunks[chunk];
        first_ = first;
        count_ = end - first;
        gradient_stacks_.clear();
        for (auto& [name, stack] : stacks_) {
            stack.gradient = stack.again = {};
            if (stack.kept.present()) builder_.forget_gradient(stack.kept.buffer);
        }
        const View condition = condition_of(first);
        builder_.only_if(condition);
        for (std::int32_t t = end - 1; t >= first; --t) {
            begin_step(t);
            auto& rules = rules_[static_cast<std::size_t>(t)];
            for (auto rule = rules.rbegin(); rule != rules.rend(); ++rule) (*rule)();
        }
        step_ = -1;
        if (!options_.condition)  // the memory that waiting products read is needed again
            for (const State& state : states_) builder_.settle_gradient(state.windows_);
        append_weight_gradients();
        builder_.only_if({});
        if (condition.present()) end_skipped_chunk(chunk);
    }
    builder_.scan_ = nullptr;
}

void Scan::end_skipped_chunk(std::size_t chunk) {
    for (std::int32_t t = first_ + count_ - 1; t >= first_; --t) options_.skipped_backward(t);
    // A chunk that was skipped wrote nothing, but the chunk before it, if done, reads the gradients that wait; also of members
    // that skipped both, whose states' gradients pass through. Hence that chunk's condition.
    std::vector<View> waiting;
    for (const State& state : states_)
        for (const Product& product : builder_.waiting_products(state.windows_)) waiting.push_back(product.a);
    if (waiting.empty()) return;
    builder_.only_if(condition_of(options_.chunks[chunk - 1].first));
    options_.clear(first_, waiting);
    builder_.only_if({});
}

}  // namespace millrace::tape
