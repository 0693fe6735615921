#include "train/memory_plan.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/units.h"
#include "io/checkpoint.h"
#include "models/weights.h"
#include "sense/proc_file.h"
#include "sense/proc_readings.h"

namespace millrace::train {
namespace {

constexpr std::int64_t kDeviceReserve = std::int64_t{512} << 20;

constexpr std::int64_t kThreadSpace = std::int64_t{128} << 20;  // addresses of stacks and heaps of threads that start later
constexpr std::int64_t kPassing = std::int64_t{8} << 20;        // of small runs, measured by tools/memory-check

/// Bytes of this process by /proc; zeros where that cannot be read.
struct ProcessPages {
    std::int64_t mapped = 0, resident = 0, data = 0;

    ProcessPages() {
        std::string buffer;
        sense::ProcFile file("/proc/self/statm", false);
        auto text = file.read(buffer);
        if (!text) return;
        const auto page = static_cast<std::int64_t>(sysconf(_SC_PAGESIZE));
        std::array<std::int64_t, 6> words{};  // size resident shared text lib data
        for (std::int64_t& word : words) word = static_cast<std::int64_t>(sense::to_count(sense::next_word(*text)).value_or(0));
        mapped = words[0] * page;
        resident = words[1] * page;
        data = words[5] * page;
    }
};

/// What this process may hold, resident; 0: what the machine has.
std::int64_t own_share = 0;

std::string bytes_text(std::int64_t bytes) { return base::print_bytes(static_cast<std::uint64_t>(bytes)); }

}  // namespace

std::string MemoryNeeds::text() const {
    std::string text = fmt::format("data {}, parameters {}", bytes_text(data), bytes_text(parameters));
    if (gradients > 0) text += fmt::format(", gradients {}", bytes_text(gradients));
    if (optimizer > 0) text += fmt::format(", optimizer {}", bytes_text(optimizer));
    text += fmt::format(", activations {}", bytes_text(activations));
    if (scratch > 0) text += fmt::format(", scratch {}", bytes_text(scratch));
    text += fmt::format(", total {}", bytes_text(total()));
    return held > 0 ? text + fmt::format(", {} with the program and its data", bytes_text(peak())) : text;
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
    std::optional<MemoryLimit> least;
    if (reading.available_bytes)
        least = MemoryLimit{static_cast<std::int64_t>(0.95 * *reading.available_bytes), "the machine has room for"};
    const ProcessPages pages;
    const auto narrow = [&](auto resource, std::int64_t used, const char* owner) {
        rlimit limit{};
        if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
        const auto all = static_cast<std::int64_t>(std::min<rlim_t>(limit.rlim_cur, std::numeric_limits<std::int64_t>::max()));
        const std::int64_t left = std::max<std::int64_t>(0, all - used - kThreadSpace);
        if (!least || left < least->bytes) least = MemoryLimit{left, owner};
    };
    narrow(RLIMIT_AS, pages.mapped, "ulimit -v leaves room for");
    narrow(RLIMIT_DATA, pages.data, "ulimit -d leaves room for");
    const std::int64_t share = std::max<std::int64_t>(0, own_share - pages.resident);
    if (own_share > 0 && (!least || share < least->bytes))
        least = MemoryLimit{share, "this rank's share of its host has room for"};
    return least;
}

base::Status share_memory(comm::Group& group) {
    own_share = 0;
    const std::optional<MemoryLimit> limit = host_memory_limit();
    std::int64_t least = limit ? limit->bytes : 0;
    MILLRACE_LET(all, group.all_of(least));
    // Of what the ranks of a host read one after the other the least, so that they plan alike.
    for (std::size_t rank = 0; rank < all.size(); ++rank)
        if (group.hosts()[rank] == group.hosts()[static_cast<std::size_t>(group.rank())]) least = std::min(least, all[rank]);
    if (group.local_size() > 1) own_share = resident_bytes() + least / group.local_size();
    return base::ok();
}

std::int64_t passing_bytes(int members, std::int64_t parameter_bytes) {
    const std::int64_t whole = std::max<std::int64_t>(0, members - static_cast<std::int64_t>(io::kMostInPlace));
    const std::int64_t each = parameter_bytes / std::max(1, members);
    // Windows of four arenas while they are saved; a part while they are drawn is no more.
    const std::int64_t windows = std::min<std::int64_t>(4 * static_cast<std::int64_t>(models::kWindowBytes), 4 * each);
    return kPassing + windows + each * whole;
}

std::int64_t resident_bytes() { return ProcessPages().resident; }

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
