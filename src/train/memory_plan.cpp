#include "train/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "sense/proc_memory.h"

namespace millrace::train {
namespace {

constexpr std::int64_t kDeviceReserve = std::int64_t{512} << 20;

std::string bytes_text(std::int64_t bytes) { return base::print_bytes(static_cast<std::uint64_t>(bytes)); }

}  // namespace

std::string MemoryNeeds::text() const {
    std::string text = fmt::format("data {}, parameters {}", bytes_text(data), bytes_text(parameters));
    if (gradients > 0) text += fmt::format(", gradients {}", bytes_text(gradients));
    if (optimizer > 0) text += fmt::format(", optimizer {}", bytes_text(optimizer));
    text += fmt::format(", activations {}", bytes_text(activations));
    if (scratch > 0) text += fmt::format(", scratch {}", bytes_text(scratch));
    return text + fmt::format(", total {}", bytes_text(total()));
}

MemoryNeeds needs_of(const tape::Store& store, const tape::Arena::Size& arena) {
    using tape::Role;
    MemoryNeeds needs;
    needs.data = store.bytes(Role::data);
    needs.parameters = store.bytes(Role::parameter) + store.bytes(Role::running);
    needs.gradients = store.bytes(Role::gradient);
    needs.optimizer = store.bytes(Role::optimizer);
    needs.activations = arena.activations;
    needs.scratch = arena.scratch;
    needs.other = store.bytes(Role::state) + store.bytes(Role::scratch) + store.bytes(Role::metric);
    return needs;
}

std::optional<MemoryLimit> memory_limit(std::int64_t given, const ops::Backend& backend) {
    if (given > 0) return MemoryLimit{given, "train.memory allows"};
    if (const auto device = backend.memory()) {
        const auto free = static_cast<std::int64_t>(device->free + device->held);  // what is held is planned, too
        return MemoryLimit{std::max<std::int64_t>(0, free - std::max(kDeviceReserve, free / 50)), "the GPU has room for"};
    }
    return host_memory_limit();
}

std::optional<MemoryLimit> host_memory_limit() {
    sense::MemoryReading reading;
    sense::ProcMemory("/proc", "/sys").read(reading);
    if (!reading.available_bytes) return std::nullopt;
    return MemoryLimit{static_cast<std::int64_t>(0.95 * *reading.available_bytes), "the machine has room for"};
}

base::Error refuse_plan(const MemoryNeeds& needs, const MemoryLimit& limit, const std::vector<MemoryTrial>& trials,
                        const std::vector<std::string>& couplings) {
    std::string text = fmt::format("the plan does not fit: it needs {} ({}), {} {}", bytes_text(needs.total()), needs.text(),
                                   limit.owner, bytes_text(limit.bytes));
    if (!couplings.empty())
        text += fmt::format(
            "; the batch is not split unasked, since its parts would not add up to it: {}{}; a smaller train.batch changes that "
            "openly, and so does a train.micro_batch of your own",
            couplings.front(), couplings.size() > 1 ? fmt::format(" and {} more", couplings.size() - 1) : "");
    std::string fitting;
    for (const MemoryTrial& trial : trials)
        if (trial.bytes <= limit.bytes)
            fitting += fmt::format("{}{} ({})", fitting.empty() ? "" : ", or ", trial.settings, bytes_text(trial.bytes));
    if (!fitting.empty()) return base::Error{fmt::format("{}; what would fit: {}", text, fitting)};
    const auto least = std::min_element(trials.begin(), trials.end(),
                                        [](const MemoryTrial& a, const MemoryTrial& b) { return a.bytes < b.bytes; });
    if (least == trials.end()) return base::Error{text + "; a smaller train.batch or model would need less"};
    return base::Error{
        fmt::format("{}; even {} needs {}, so the model must be smaller", text, least->settings, bytes_text(least->bytes))};
}

std::vector<std::int32_t> divisors(std::int32_t number) {
    std::vector<std::int32_t> all;
    for (std::int32_t each = number; each >= 1; --each)
        if (number % each == 0) all.push_back(each);
    return all;
}

}  // namespace millrace::train
