#include "case_runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "models/leak_cnn/ops/sounds.h"
#include "ops/fused.h"
#include "tensor/element.h"

namespace millrace::ops::cases {
namespace {

constexpr std::size_t kGuard = 256;
// As f64, f32, bf16 and f16 this is a NaN: outputs start as it, and it surrounds what is only read, so that reading outside a
// view shows in the result. Around outputs stands another pattern: a NaN read outside and written outside would look untouched
// there.
constexpr std::byte kPoison{0xFF};
constexpr std::byte kFence{0xA5};

/// A slot's buffer: guard, matrices with the layout's margins, guard.
struct Buffer {
    std::unique_ptr<Memory> memory;
    std::vector<std::byte> image;  ///< what was uploaded
    tensor::View view;             ///< offset in elements from behind the first guard

    /// Where the rows of [K,G,rows] begin.
    [[nodiscard]] std::vector<std::size_t> rows() const {
        std::vector<std::size_t> places;
        for (int k = 0; k < view.k; ++k)
            for (int g = 0; g < view.g; ++g)
                for (int row = 0; row < view.rows; ++row) {
                    const std::int64_t element = view.offset + k * view.stride_k + g * view.stride_g + row * view.stride_row;
                    places.push_back(kGuard + static_cast<std::size_t>(element) * tensor::size_of(view.dtype));
                }
        return places;
    }
};

tensor::View view_of(const Slot& slot, Precision precision) {
    tensor::View view;
    view.dtype = dtype_of(slot.element, precision);
    view.k = slot.k;
    view.g = slot.g;
    view.rows = slot.rows;
    view.cols = slot.cols;
    const Layout& layout = slot.layout;
    const std::int64_t across = layout.groups_in_row ? std::int64_t{slot.g} * slot.cols : slot.cols;
    view.offset = layout.left;
    view.stride_row = layout.left + across + layout.right;
    const std::int64_t matrix = view.stride_row * slot.rows;
    view.stride_g = layout.shared_group ? 0 : layout.groups_in_row ? slot.cols : matrix;
    view.stride_k = layout.shared_group || layout.groups_in_row ? matrix : matrix * slot.g;
    return view;
}

class Run {
public:
    Run(Backend& backend, Precision precision, const OpCase& op_case)
        : backend_(backend), case_(op_case), buffers_(static_cast<std::size_t>(op_case.op->slot_count())) {
        record_ = record_of(op_case, precision);
        bound_.record = &record_;
    }

    base::Status build() {
        for (int s = 0; s < case_.op->slot_count(); ++s) {
            const Slot& slot = slot_at(s);
            if (!slot.present) continue;
            Buffer& buffer = buffers_[static_cast<std::size_t>(s)];
            buffer.view = record_.slots[static_cast<std::size_t>(s)];
            if (slot.same_memory_as < 0) {
                const auto elements = static_cast<std::size_t>(buffer.view.stride_k * buffer.view.k);
                const std::size_t bytes = elements * tensor::size_of(buffer.view.dtype) + 2 * kGuard;
                MILLRACE_LET(memory, backend_.allocate(bytes));
                buffer.memory = std::move(memory);
                buffer.image.assign(bytes, is_written(s) ? kFence : kPoison);
            }
            bind(s, owner_of(s));
        }
        rewrite();
        return prepare();
    }

    /// With as much scratch as was measured, no part of it zero.
    base::Status prepare() {
        const std::vector<std::byte> poison(backend_.measure_scratch({&bound_, 1}, {}), kPoison);
        MILLRACE_LET(scratch, backend_.allocate(std::max<std::size_t>(poison.size(), 1)));
        scratch_ = std::move(scratch);
        backend_.upload(scratch_->data(), poison.data(), poison.size());
        const std::optional<MemoryState> before = backend_.memory();
        MILLRACE_LET(kernels, backend_.prepare({&bound_, 1}, {}, {scratch_->data(), poison.size()}));
        kernels_ = std::move(kernels);
        if (before && backend_.memory()->allocations != before->allocations)
            return base::Error{fmt::format("{} needs more scratch than the {} bytes measured", case_.name, poison.size())};
        return base::ok();
    }

    void fill(std::uint32_t variation) {
        for (int s = 0; s < case_.op->slot_count(); ++s) {
            if (!slot_at(s).present || slot_at(s).same_memory_as >= 0) continue;
            Buffer& buffer = buffers_[static_cast<std::size_t>(s)];
            if (slot_at(s).element == Element::state)
                std::memcpy(buffer.image.data() + kGuard, case_.states.data(), case_.states.size() * sizeof(MemberState));
            else
                fill_elements(s, buffer, variation);
            backend_.upload(buffer.memory->data(), buffer.image.data(), buffer.image.size());
        }
    }

    base::Status launch(Launch how) {
        const auto enqueue = [this] {
            for (auto& kernel : kernels_) kernel->run();
        };
        if (how == Launch::replay) {
            enqueue();
            MILLRACE_LET(replay, backend_.capture(enqueue));
            fill(variation_);
            for (int i = 0; i < case_.repeats; ++i) replay->launch();
            backend_.synchronize();
        } else {
            for (int i = 0; i < case_.repeats; ++i) enqueue();
        }
        backend_.synchronize();
        return backend_.check();
    }
    void set_variation(std::uint32_t variation) { variation_ = variation; }

    Outcome read() {
        Outcome outcome;
        for (int s = 0; s < case_.op->slot_count(); ++s) {
            if (!slot_at(s).present) continue;
            Buffer& buffer = buffers_[static_cast<std::size_t>(owner_of(s))];
            std::vector<std::byte> now(buffer.image.size());
            backend_.download(now.data(), buffer.memory->data(), now.size());
            if (outcome.damage.empty() && slot_at(s).same_memory_as < 0) outcome.damage = damage_in(s, buffer, now);
            outcome.slots[static_cast<std::size_t>(s)] = content(slot_at(s), buffer, now);
        }
        return outcome;
    }

private:
    [[nodiscard]] const Slot& slot_at(int s) const { return case_.slots[static_cast<std::size_t>(s)]; }
    [[nodiscard]] int owner_of(int s) const { return slot_at(s).same_memory_as >= 0 ? slot_at(s).same_memory_as : s; }

    void bind(int s, int owner) {
        Buffer& buffer = buffers_[static_cast<std::size_t>(owner)];
        const tensor::View& view = buffer.view;
        bound_.operands[static_cast<std::size_t>(s)] = {
            buffer.memory->data() + kGuard + static_cast<std::size_t>(view.offset) * tensor::size_of(view.dtype),
            view.dtype,
            view.k,
            view.g,
            view.rows,
            view.cols,
            view.stride_k,
            view.stride_g,
            view.stride_row};
    }

    /// As a program does it, for rewrites of single records: a family has kernels of its own for some shapes.
    void rewrite() {
        const Uses uses({&bound_, 1});
        const std::size_t number = 0;
        const Window window({&bound_, 1}, uses, {&number, 1});
        for (const Rewrite* each : {&line_forward_rewrite::kRewrite, &line_backward_rewrite::kRewrite}) {
            if (each->begins != record_.op) continue;
            const Match match = backend_.match(*each, window);
            if (match.count() != 1) continue;
            fused_ = fuse(*each->fused, match, window);
            Bound fused;
            fused.record = &fused_;
            const std::vector<int>& operands = fused_params(fused_)->parts.front().operands;
            for (std::size_t s = 0; s < operands.size(); ++s)
                if (operands[s] != FusedParams::kInner)
                    fused.operands[static_cast<std::size_t>(operands[s])] = bound_.operands[s];
            bound_ = std::move(fused);
            return;
        }
    }

    void fill_elements(int s, Buffer& buffer, std::uint32_t variation) {
        const tensor::View& view = buffer.view;
        const std::size_t size = tensor::size_of(view.dtype), width = size * static_cast<std::size_t>(view.cols);
        const bool poisoned = slot_at(s).values.kind == Values::Kind::poison;
        const double* value = poisoned ? nullptr : initial_values(case_, s, variation).data();
        for (const std::size_t row : buffer.rows()) {
            std::byte* begin = buffer.image.data() + row;
            if (poisoned)
                std::fill_n(begin, width, kPoison);
            else
                for (std::byte* at = begin; at < begin + width; at += size) tensor::write_element(at, view.dtype, *value++);
        }
    }

    [[nodiscard]] bool is_written(int s) const {
        for (int other = 0; other < case_.op->slot_count(); ++other)
            if (slot_at(other).present && owner_of(other) == s && case_.op->slot(other).written()) return true;
        return false;
    }

    [[nodiscard]] std::string damage_in(int s, const Buffer& buffer, const std::vector<std::byte>& now) const {
        std::vector<std::byte> expected = buffer.image;
        const std::size_t width = static_cast<std::size_t>(buffer.view.cols) * tensor::size_of(buffer.view.dtype);
        if (is_written(s))
            for (const std::size_t row : buffer.rows()) std::copy_n(now.data() + row, width, expected.data() + row);
        if (std::memcmp(expected.data(), now.data(), now.size()) == 0) return {};
        const auto [was, is] = std::mismatch(expected.begin(), expected.end(), now.begin());
        return fmt::format("slot {}: byte {} from the start of the buffer was {:02x} and is {:02x}", case_.op->slot(s).name,
                           was - expected.begin() - static_cast<std::ptrdiff_t>(kGuard), static_cast<unsigned>(*was),
                           static_cast<unsigned>(*is));
    }

    static Content content(const Slot& slot, const Buffer& buffer, const std::vector<std::byte>& now) {
        Content out;
        const tensor::View& view = buffer.view;
        const std::size_t size = tensor::size_of(view.dtype);
        out.dtype = view.dtype;
        for (const std::size_t row : buffer.rows())
            out.bytes.insert(out.bytes.end(), now.data() + row, now.data() + row + size * static_cast<std::size_t>(view.cols));
        for (std::size_t at = 0; slot.clock_every > 0 && at < out.bytes.size(); ++at)
            if (at % static_cast<std::size_t>(slot.clock_every) + 8 >= static_cast<std::size_t>(slot.clock_every))
                out.bytes[at] = std::byte{0};
        if (slot.element == Element::state) {
            out.states.resize(static_cast<std::size_t>(view.k));
            std::memcpy(out.states.data(), out.bytes.data(), out.bytes.size());
        }
        return out;
    }

    Backend& backend_;
    const OpCase& case_;
    Record record_, fused_;
    Bound bound_;
    std::vector<Buffer> buffers_;
    std::unique_ptr<Memory> scratch_;
    std::vector<std::unique_ptr<Kernel>> kernels_;
    std::uint32_t variation_ = 0;
};

}  // namespace

std::vector<double> Content::values() const {
    std::vector<double> all;
    if (!states.empty()) return all;
    const std::size_t size = tensor::size_of(dtype);
    all.reserve(bytes.size() / size);
    for (std::size_t at = 0; at < bytes.size(); at += size) all.push_back(tensor::read_element(bytes.data() + at, dtype));
    return all;
}

Record record_of(const OpCase& op_case, Precision precision) {
    Record record{op_case.op, op_case.params, {}, op_case.accumulate, op_case.name};
    for (int s = 0; s < op_case.op->slot_count(); ++s) {
        const Slot& slot = op_case.slots[static_cast<std::size_t>(s)];
        const int owner = slot.same_memory_as >= 0 ? slot.same_memory_as : s;
        if (!slot.present) continue;
        record.slots[static_cast<std::size_t>(s)] = view_of(op_case.slots[static_cast<std::size_t>(owner)], precision);
        record.slots[static_cast<std::size_t>(s)].buffer = owner;
    }
    return record;
}

base::Result<Outcome> run_case(Backend& backend, Precision precision, const OpCase& op_case, std::uint32_t variation,
                               Launch launch) {
    Run run(backend, precision, op_case);
    MILLRACE_TRY(run.build());
    run.set_variation(variation);
    run.fill(launch == Launch::replay ? variation + 1 : variation);
    MILLRACE_TRY(run.launch(launch));
    return run.read();
}

Outcome run(Backend& backend, Precision precision, const OpCase& op_case, std::uint32_t variation, Launch launch) {
    auto outcome = run_case(backend, precision, op_case, variation, launch);
    if (!outcome.ok()) {
        ADD_FAILURE() << outcome.error().text();
        return {};
    }
    EXPECT_EQ(outcome->damage, "");
    return std::move(*outcome);
}

}  // namespace millrace::ops::cases
