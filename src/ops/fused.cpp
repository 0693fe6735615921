#include "ops/fused.h"

#include <algorithm>
#include <map>

#include "ops/cpu/kernel.h"

namespace millrace::ops {
namespace {

using tensor::Operand;
using tensor::View;

/// The parts as they are bound in a window.
using Taken = std::vector<const Bound*>;

template <class Visit>
void for_each_slot(const Bound& bound, Visit visit) {
    for (int slot = 0; slot < bound.record->slot_count(); ++slot)
        if (bound[slot].present()) visit(slot, Box(bound[slot]));
}

/// Whether the parts need nothing of what was there before: the first that touches it overwrites it, and all stay inside of it.
bool begins_inside(const Taken& parts, const Box& inner) {
    bool begun = false, whole = true;
    for (const Bound* part : parts) {
        bool begins = false, reads = false;
        for_each_slot(*part, [&](int slot, const Box& box) {
            if (!box.meets(inner)) return;
            whole = whole && inner.covers(box);
            reads = reads || part->record->reads(slot);
            begins = begins || (part->record->writes(slot) && box.covers(inner));
        });
        whole = whole && (begun || !reads);
        begun = begun || begins;
    }
    return whole;
}

/// Whether a part before `end` writes all of it.
bool is_written_before(const Taken& parts, std::size_t end, const Box& box) {
    bool written = false;
    for (std::size_t p = 0; p < end; ++p)
        for_each_slot(*parts[p], [&](int slot, const Box& other) {
            written = written || (parts[p]->record->writes(slot) && other.covers(box));
        });
    return written;
}

/// The parts have rules of their own (check_record).
void check_nothing(Checker&) {}

const SlotDef& slot_of(const Record& record, int slot) {
    return record.params_as<FusedParams>().slots[static_cast<std::size_t>(slot)].def;
}

std::int64_t sum_of_flops(const Record& record) {
    std::int64_t sum = 0;
    for (const FusedParams::Part& part : record.params_as<FusedParams>().parts)
        if (part.record.op->flops != nullptr) sum += part.record.op->flops(part.record);
    return sum;
}

/// Bytes [begin, end) of a buffer that inner views name, and where they lie in the memory for all of them.
struct InnerBuffer {
    std::int64_t begin = 0, end = 0, at = 0;
};
std::map<tensor::BufferId, InnerBuffer> inner_buffers(const FusedParams& params, std::int64_t& bytes) {
    constexpr std::int64_t kAlignment = 256;
    std::map<tensor::BufferId, InnerBuffer> buffers;
    for (const FusedParams::Part& part : params.parts)
        for (std::size_t s = 0; s < part.operands.size(); ++s) {
            const View& v = part.record.slots[s];
            if (part.operands[s] != FusedParams::kInner || !v.present()) continue;
            const auto size = static_cast<std::int64_t>(tensor::size_of(v.dtype));
            const std::int64_t last = (v.k - 1) * v.stride_k + (v.g - 1) * v.stride_g + (v.rows - 1) * v.stride_row + v.cols;
            const auto [found, added] = buffers.try_emplace(v.buffer, InnerBuffer{v.offset * size, 0, 0});
            found->second.begin = std::min(found->second.begin, v.offset * size / kAlignment * kAlignment);
            found->second.end = std::max(found->second.end, (v.offset + last) * size);
        }
    bytes = 0;
    for (auto& [id, buffer] : buffers) {
        buffer.at = bytes;
        bytes += (buffer.end - buffer.begin + kAlignment - 1) / kAlignment * kAlignment;
    }
    return buffers;
}

/// The parts one after the other, with memory of their own for what is inner.
class Parts final : public Kernel {
public:
    explicit Parts(const Bound& fused) : memory_(BoundParts::inner_bytes(fused) + kAlignment), bound(fused, aligned()) {}
    void run() noexcept override {
        for (const auto& kernel : kernels) kernel->run();
    }

private:
    static constexpr std::size_t kAlignment = 256;
    std::byte* aligned() {
        const auto past = reinterpret_cast<std::uintptr_t>(memory_.data()) % kAlignment;
        return memory_.data() + (kAlignment - past);
    }
    std::vector<std::byte> memory_;

public:
    BoundParts bound;
    std::vector<std::unique_ptr<Kernel>> kernels;
};

}  // namespace

const FusedParams* fused_params(const Record& record) {
    return record.op->slot_of != nullptr ? &record.params_as<FusedParams>() : nullptr;
}

std::vector<const Record*> parts_of(const Record& record) {
    const FusedParams* fused = fused_params(record);
    if (fused == nullptr) return {&record};
    std::vector<const Record*> all;
    for (const FusedParams::Part& part : fused->parts)
        for (const Record* inner : parts_of(part.record)) all.push_back(inner);
    return all;
}

const Record& writer_of(const Record& record, int slot) {
    const FusedParams* fused = fused_params(record);
    return fused != nullptr ? fused->parts[fused->slots[static_cast<std::size_t>(slot)].part].record : record;
}

std::optional<Phase> phase_of(const Record& record) { return parts_of(record).back()->op->phase; }

Record fuse(const OpDef& fused, const Match& match, const Window& window) {
    Taken taken;
    for (const std::size_t r : match.records) taken.push_back(&window[r]);
    std::vector<Box> inner, unwritten;
    for (const Output& output : match.inner) {
        const Box box((*taken[output.record])[output.slot]);
        (begins_inside(taken, box) ? inner : unwritten).push_back(box);
    }
    for (const Output& output : match.unwritten) unwritten.emplace_back((*taken[output.record])[output.slot]);
    const auto is_in = [](const std::vector<Box>& boxes, const Box& box) {
        return std::ranges::any_of(boxes, [&](const Box& outer) { return outer.covers(box); });
    };

    Record record{&fused, {}, {}, 0, taken.back()->record->layer, taken.front()->record->condition};
    FusedParams params;
    for (std::size_t p = 0; p < taken.size(); ++p) {
        const Record& part = *taken[p]->record;
        std::vector<int> operands(static_cast<std::size_t>(part.slot_count()), FusedParams::kInner);
        for_each_slot(*taken[p], [&](int slot, const Box& box) {
            const View& view = part.slots[static_cast<std::size_t>(slot)];
            if (is_in(inner, box)) return;
            const auto known = std::ranges::find(record.slots, view);
            const auto index = static_cast<std::size_t>(known - record.slots.begin());
            operands[static_cast<std::size_t>(slot)] = static_cast<int>(index);
            const bool fresh = known == record.slots.end(), writes = part.writes(slot);
            // What an earlier part has written, in whatever shape, is not read from outside.
            const bool reads =
                fresh ? part.reads(slot) && !is_written_before(taken, p, box) : params.slots[index].def.access != Access::write;
            if (fresh) {
                record.slots[index] = view;
                params.slots.emplace_back();
            }
            if (!fresh && !writes) return;
            params.slots[index] = {p,
                                   {part.slot(slot).name, !reads   ? Access::write
                                                          : writes ? Access::update
                                                                   : Access::read},
                                   writes && is_in(unwritten, box)};
        });
        params.parts.push_back({part, std::move(operands)});
    }
    record.params = std::move(params);
    return record;
}

std::size_t BoundParts::inner_bytes(const Bound& fused) {
    std::int64_t bytes = 0;
    (void)inner_buffers(fused.params<FusedParams>(), bytes);
    return static_cast<std::size_t>(bytes);
}

BoundParts::BoundParts(const Bound& fused, std::byte* memory) {
    const auto& params = fused.params<FusedParams>();
    std::int64_t bytes = 0;
    const auto buffers = inner_buffers(params, bytes);
    for (const FusedParams::Part& part : params.parts) {
        Bound bound = stand_in(part.record);
        bound.condition = fused.condition;
        for (std::size_t s = 0; s < part.operands.size(); ++s) {
            const View& view = part.record.slots[s];
            if (part.operands[s] != FusedParams::kInner) {
                bound.operands[s] = fused[part.operands[s]];
            } else if (view.present() && memory != nullptr) {
                const InnerBuffer& buffer = buffers.at(view.buffer);
                const auto offset = view.offset * static_cast<std::int64_t>(tensor::size_of(view.dtype));
                bound.operands[s].data = memory + buffer.at + offset - buffer.begin;
            }
        }
        parts.push_back(std::move(bound));
    }
}

void run_parts(const Bound& fused) {
    const Parts parts(fused);
    for (const Bound& part : parts.bound.parts) part.record->op->ref(part);
}

KernelResult make_parts(cpu::Context& context, const Bound& fused) {
    auto made = std::make_unique<Parts>(fused);
    for (const Bound& part : made->bound.parts) {
        if (part.record->op->cpu == nullptr) return missing_operator(*part.record->op, DeviceKind::cpu);
        MILLRACE_LET(kernel, part.record->op->cpu(context, part));
        made->kernels.push_back(std::move(kernel));
    }
    return KernelResult(std::move(made));
}

OpTraits fused_traits(const char* name, KernelResult (*cuda)(cuda::Context&, const Bound&)) {
    return {.name = name,
            .slots = {},
            .check = check_nothing,
            .flops = sum_of_flops,
            .ref = run_parts,
            .cpu = make_parts,
            .cuda = cuda,
            .slot_of = slot_of};
}

}  // namespace millrace::ops
