#include "tape/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "ops/fused.h"
#include "tape/planner.h"
#include "tape/program.h"
#include "tensor/element.h"

namespace millrace::tape {
namespace {

using tensor::DType;
using tensor::View;

std::atomic<std::uint64_t> capture_count{0};

/// Neighbours that run once become one, so that a fused record may cover records of both.
std::vector<Section> join_sections(const std::vector<Section>& sections) {
    std::vector<Section> joined;
    for (const Section& section : sections) {
        if (!joined.empty() && joined.back().repeat == 1 && section.repeat == 1)
            joined.back().count += section.count;
        else
            joined.push_back(section);
    }
    return joined;
}

std::int64_t extent(const View& v) {
    if (v.count() == 0) return 0;
    return (v.k - 1) * v.stride_k + (v.g - 1) * v.stride_g + (v.rows - 1) * v.stride_row + v.cols;
}

/// Calls f(member, group, row, col, byte offset from the view's start) for every element.
template <class F>
void for_each(const View& v, F f) {
    const auto size = static_cast<std::int64_t>(tensor::size_of(v.dtype));
    for (int k = 0; k < v.k; ++k)
        for (int g = 0; g < v.g; ++g)
            for (int r = 0; r < v.rows; ++r)
                for (int c = 0; c < v.cols; ++c) f(k, g, r, c, (k * v.stride_k + g * v.stride_g + r * v.stride_row + c) * size);
}

std::string shape_text(const View& v) { return fmt::format("[{},{},{},{}]{}", v.k, v.g, v.rows, v.cols, name_of(v.dtype)); }

std::string line_of(const ops::Record& record) {
    std::string out = fmt::format(" {:20} {:16}", record.op->name, record.layer);
    for (int slot = 0; slot < record.slot_count(); ++slot)
        if (const View& v = record.slots[static_cast<std::size_t>(slot)]; v.present())
            out += fmt::format(" {}{}{}", record.slot(slot).name, record.accumulates(slot) ? "+" : "", shape_text(v));
    return out + '\n';
}

/// The operator, its layer, and the shape of what it writes last.
std::string record_text(const ops::Record& record) {
    std::string text = fmt::format("{}{}{}", record.op->name, record.layer.empty() ? "" : " ", record.layer);
    for (int slot = record.slot_count() - 1; slot >= 0; --slot) {
        const tensor::View& v = record.slots[static_cast<std::size_t>(slot)];
        if (!v.present() || !record.writes(slot)) continue;
        return text + " " + shape_text(v);
    }
    return text;
}

}  // namespace

std::string NonFinite::text() const {
    const std::string writer = op + " of " + (layer.empty() ? "the program" : layer);
    if (slot == "state")
        return fmt::format(
            "{} marked the step of member {} as not finite: a loss or norm is too large, or a label or index out of range",
            writer, member);
    return fmt::format("{} wrote {} into {}[member {}, group {}, row {}, column {}]", writer, value, slot, member, group, row,
                       col);
}

std::int64_t Arena::reserve(std::int64_t activations, std::int64_t scratch) {
    size_.activations = std::max(size_.activations, activations);
    return std::exchange(size_.scratch, size_.scratch + scratch);
}

std::byte* Arena::data() const {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): it is compared, never followed
    return memory_ ? memory_->data() : reinterpret_cast<std::byte*>(std::uintptr_t{1} << 46);
}

base::Status Arena::allocate() {
    MILLRACE_SET(memory_, backend_.allocate(static_cast<std::size_t>(std::max<std::int64_t>(size_.total(), 256))));
    allocated_ = size_;
    return base::ok();
}

std::span<std::byte> Arena::scratch(std::int64_t begin, std::int64_t bytes) const {
    if (begin + bytes > allocated_.scratch) return {};
    return {data() + allocated_.activations + begin, static_cast<std::size_t>(bytes)};
}

Program::Program(std::string name, Store& store, Builder&& builder, Arena& arena)
    : name_(std::move(name)),
      store_(store),
      arena_(arena),
      records_(builder.take_records()),
      buffers_(builder.take_buffers()),
      sections_(builder.take_sections()) {
    std::size_t closed = sections_.empty() ? 0 : sections_.back().first + sections_.back().count;
    if (closed < records_.size()) sections_.push_back({closed, records_.size() - closed, 1});
    sections_ = join_sections(sections_);
    rewrite_records(store_.backend(), buffers_, records_, sections_);
    set_lifetimes(records_, sections_, buffers_);
    plan_ = plan_memory(buffers_);
    bind_records();
    scratch_bytes_ = static_cast<std::int64_t>(store_.backend().measure_scratch(bound_, sections_));
    working_ = store_.backend().measure_shared(bound_);
    scratch_ = arena_.reserve(plan_.bytes, scratch_bytes_);
}

std::byte* Program::address(const View& view) const {
    const std::int64_t offset = view.offset * static_cast<std::int64_t>(tensor::size_of(view.dtype));
    if (view.buffer < kLocalBase) return store_.address(view.buffer) + offset;
    const Buffer& b = buffers_[static_cast<std::size_t>(view.buffer - kLocalBase)];
    MILLRACE_ASSERT(b.offset >= 0, "buffer " + b.name + " has no place");
    return arena_.data() + b.offset + offset;
}

tensor::Operand Program::bind(const View& v) const {
    if (!v.present()) return {};
    return {address(v), v.dtype, v.k, v.g, v.rows, v.cols, v.stride_k, v.stride_g, v.stride_row};
}

void Program::bind_records() {
    bound_.resize(records_.size());
    for (std::size_t r = 0; r < records_.size(); ++r) {
        bound_[r].record = &records_[r];
        for (std::size_t s = 0; s < records_[r].slots.size(); ++s) bound_[r].operands[s] = bind(records_[r].slots[s]);
        bound_[r].condition = bind(records_[r].condition);
    }
}

base::Status Program::prepare() {
    bind_records();
    auto kernels = store_.backend().prepare(bound_, sections_, arena_.scratch(scratch_, scratch_bytes_));
    if (!kernels.ok()) return base::Error{fmt::format("cannot build the program '{}'", name_)}.because(kernels.error());
    kernels_.clear();
    auto next = kernels->begin();
    for (const Section& section : sections_)
        for (kernels_.emplace_back(); next != kernels->end() && (*next)->first < section.first + section.count; ++next)
            kernels_.back().push_back(std::move(*next));
    return base::ok();
}

void Program::run() noexcept {
    for_each_launch([](ops::Kernel& kernel) { kernel.run(); });
}

base::Status Program::capture() {
    if (!store_.backend().can_capture()) return base::ok();
    auto replay = store_.backend().capture([this] { run(); });
    if (!replay.ok()) return base::Error{fmt::format("cannot capture the program '{}'", name_)}.because(replay.error());
    replay_ = std::move(replay).value();
    capture_count += 1;
    return base::ok();
}

std::uint64_t captures_so_far() { return capture_count; }

void Program::launch() noexcept {
    if (replay_)
        replay_->launch();
    else
        run();
}

std::optional<NonFinite> Program::scan(const ops::Record& record) const {
    for (int slot = 0; slot < record.slot_count(); ++slot) {
        const View& v = record.slots[static_cast<std::size_t>(slot)];
        if (!v.present() || !record.writes(slot) || v.dtype == DType::u8 || v.dtype == DType::i32) continue;
        const ops::FusedParams* fused = ops::fused_params(record);
        if (fused != nullptr && fused->slots[static_cast<std::size_t>(slot)].unwritten) continue;
        const std::vector<std::byte> host = download(v);
        const ops::Record& writer = ops::writer_of(record, slot);
        std::optional<NonFinite> found;
        for_each(v, [&](int k, int g, int r, int c, std::int64_t at) {
            const double value = tensor::read_element(host.data() + at, v.dtype);
            if (!found && !std::isfinite(value))
                found = NonFinite{writer.op->name, writer.layer, record.slot(slot).name, k, g, r, c, value};
        });
        if (found) return found;
    }
    return std::nullopt;
}

std::optional<NonFinite> Program::find_new_mark(const ops::Record& record, std::vector<bool>& marked) const {
    std::optional<NonFinite> found;
    for (int slot = 0; slot < record.slot_count(); ++slot) {
        const View& view = record.slots[static_cast<std::size_t>(slot)];
        if (!view.present() || view.buffer != store_.state().buffer || !record.writes(slot)) continue;
        const ops::Record& writer = ops::writer_of(record, slot);
        const auto states = store_.read_states();
        for (std::size_t k = 0; k < states.size(); ++k) {
            const bool now = states[k].nonfinite != 0;
            if (now && !marked[k] && !found)
                found = NonFinite{writer.op->name, writer.layer, record.slot(slot).name, static_cast<int>(k), 0, 0, 0, 0};
            marked[k] = now;
        }
    }
    return found;
}

std::optional<NonFinite> Program::run_checked() {
    std::vector<bool> marked;  // a step dropped earlier leaves its mark until the next begins
    for (const ops::MemberState& state : store_.read_states()) marked.push_back(state.nonfinite != 0);
    for (std::size_t s = 0; s < sections_.size(); ++s)
        for (int i = 0; i < sections_[s].repeat; ++i)
            for (auto& kernel : kernels_[s]) {
                kernel->run();
                store_.backend().synchronize();
                for (std::size_t r = kernel->first; r < kernel->first + kernel->count; ++r) {
                    if (auto bad = scan(records_[r])) return bad;
                    if (auto bad = find_new_mark(records_[r], marked)) return bad;
                }
            }
    return std::nullopt;
}

base::Result<std::vector<KernelTime>> Program::time_kernels(int repeats) {
    ops::Backend& backend = store_.backend();
    std::vector<KernelTime> times;
    for (auto& section : kernels_)
        for (auto& kernel : section) {
            auto enqueue = [&] {
                for (int i = 0; i < repeats; ++i) kernel->run();
            };
            std::unique_ptr<ops::Replay> replay;
            if (backend.can_capture()) MILLRACE_SET(replay, backend.capture(enqueue));
            auto once = [&] {
                const auto begin = std::chrono::steady_clock::now();
                if (replay)
                    replay->launch();
                else
                    enqueue();
                backend.synchronize();
                return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / repeats;
            };
            once();
            times.push_back({text_of(*kernel), std::min(once(), std::min(once(), once())),
                             kernel->form != nullptr ? kernel->form : "", kernel->predicted});
        }
    return times;
}

std::string Program::text_of(const ops::Kernel& kernel) const {
    std::vector<const ops::Record*> all;
    for (std::size_t r = kernel.first; r < kernel.first + kernel.count; ++r)
        for (const ops::Record* part : ops::parts_of(records_[r])) all.push_back(part);
    std::string text = fmt::format("{} {}", all[0]->op->name, all[0]->layer);
    if (all.size() > 1) text += fmt::format(" + {} {}", all[1]->op->name, all[1]->layer);
    if (all.size() > 2) text += fmt::format(" + {} more", all.size() - 2);
    return text;
}

Flops Program::flops() const {
    Flops sum;
    for (const Section& section : sections_)
        for (std::size_t r = section.first; r < section.first + section.count; ++r) {
            const bool conditional = records_[r].condition.present();
            (conditional ? sum.conditional : sum.always) +=
                section.repeat * (records_[r].op->flops != nullptr ? records_[r].op->flops(records_[r]) : 0);
        }
    return sum;
}

std::size_t Program::kernel_count() const {
    std::size_t n = 0;
    for (std::size_t s = 0; s < kernels_.size(); ++s) n += kernels_[s].size() * static_cast<std::size_t>(sections_[s].repeat);
    return n;
}

std::string Program::listing() const {
    std::string out = fmt::format("program {}: {} records; {}\n", name_, records_.size(), plan_.text());
    for (std::size_t s = 0; s < sections_.size(); ++s) {
        if (sections_[s].repeat != 1) out += fmt::format("  repeat {}:\n", sections_[s].repeat);
        for (std::size_t r = sections_[s].first; r < sections_[s].first + sections_[s].count; ++r) {
            const auto parts = ops::parts_of(records_[r]);
            if (ops::fused_params(records_[r]) != nullptr)
                out += fmt::format("{:4} {} joins {}:\n", r, records_[r].op->name, parts.size());
            for (const ops::Record* part : parts)
                out += (part == &records_[r] ? fmt::format("{:4}", r) : "    ") + line_of(*part);
        }
    }
    return out;
}

std::vector<std::byte> Program::download(const View& view) const {
    std::vector<std::byte> host(static_cast<std::size_t>(extent(view)) * tensor::size_of(view.dtype));
    store_.backend().download(host.data(), address(view), host.size());
    return host;
}

std::vector<double> Program::read(const View& view) const {
    const std::vector<std::byte> host = download(view);
    std::vector<double> values;
    values.reserve(static_cast<std::size_t>(view.count()));
    for_each(view,
             [&](int, int, int, int, std::int64_t at) { values.push_back(tensor::read_element(host.data() + at, view.dtype)); });
    return values;
}

void Program::write(const View& view, const std::vector<double>& values) const {
    MILLRACE_ASSERT(static_cast<std::int64_t>(values.size()) == view.count(), "wrong number of values");
    std::vector<std::byte> host = download(view);
    std::size_t i = 0;
    for_each(view,
             [&](int, int, int, int, std::int64_t at) { tensor::write_element(host.data() + at, view.dtype, values[i++]); });
    store_.backend().upload(address(view), host.data(), host.size());
}

std::vector<KernelPlan> Program::kernel_plans() const {
    std::vector<KernelPlan> plans;
    for (std::size_t s = 0; s < kernels_.size(); ++s)
        for (const auto& kernel : kernels_[s]) {
            KernelPlan plan;
            plan.repeat = sections_[s].repeat;
            plan.form = kernel->form != nullptr ? kernel->form : "";
            plan.predicted = kernel->predicted;
            plan.offers = kernel->offers;
            plan.scratch = static_cast<std::int64_t>(kernel->scratch);
            std::set<std::tuple<tensor::BufferId, std::int64_t, std::int64_t>> counted;
            for (std::size_t r = kernel->first; r < kernel->first + kernel->count; ++r) {
                const ops::Record& record = records_[r];
                for (const ops::Record* part : ops::parts_of(record)) plan.records.push_back(record_text(*part));
                if (record.op->flops != nullptr) plan.flops += record.op->flops(record);
                for (const tensor::View& v : record.slots)
                    if (v.present() && counted.emplace(v.buffer, v.offset, v.count()).second)
                        plan.bytes += v.count() * static_cast<std::int64_t>(tensor::size_of(v.dtype));
            }
            plans.push_back(std::move(plan));
        }
    return plans;
}

}  // namespace millrace::tape
