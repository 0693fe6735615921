#include <fmt/format.h>

#include <set>
#include <tuple>

#include "ops/fused.h"
#include "tape/program.h"

namespace millrace::tape {
namespace {

/// The operator, its layer, and the shape of what it writes last.
std::string record_text(const ops::Record& record) {
    std::string text = fmt::format("{}{}{}", record.op->name, record.layer.empty() ? "" : " ", record.layer);
    for (int slot = record.slot_count() - 1; slot >= 0; --slot) {
        const tensor::View& v = record.slots[static_cast<std::size_t>(slot)];
        if (!v.present() || !record.writes(slot)) continue;
        return text + fmt::format(" [{},{},{},{}]{}", v.k, v.g, v.rows, v.cols, tensor::name_of(v.dtype));
    }
    return text;
}

}  // namespace

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
