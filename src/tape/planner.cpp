#include "tape/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace millrace::tape {
namespace {

/// Lowest offset at which `size` bytes fit beside the placed buffers that are alive at the same time.
std::int64_t first_fit(std::span<const Buffer> buffers, const std::vector<std::size_t>& placed, const Buffer& buffer,
                       std::int64_t size, std::int64_t alignment) {
    std::vector<std::pair<std::int64_t, std::int64_t>> taken;
    for (std::size_t other : placed) {
        const Buffer& o = buffers[other];
        if (o.first <= buffer.last && buffer.first <= o.last)
            taken.emplace_back(o.offset, o.offset + align(o.bytes(), alignment));
    }
    std::sort(taken.begin(), taken.end());
    std::int64_t at = 0;
    for (auto [begin, end] : taken) {
        if (begin - at >= size) break;
        at = std::max(at, end);
    }
    return at;
}

void find_peak(std::span<const Buffer> buffers, MemoryPlan& plan) {
    int records = 0;
    for (const Buffer& b : buffers) records = std::max(records, b.last + 1);
    std::int64_t most = -1;
    for (int r = 0; r < records; ++r) {
        std::array<std::int64_t, kRoleCount> alive{};
        for (const Buffer& b : buffers)
            if (b.first >= 0 && b.first <= r && r <= b.last) alive[static_cast<std::size_t>(b.role)] += b.bytes();
        std::int64_t sum = std::accumulate(alive.begin(), alive.end(), std::int64_t{0});
        if (sum > most) {
            most = sum;
            plan.peak_by_role = alive;
            plan.peak_record = r;
        }
    }
}

}  // namespace

MemoryPlan plan_memory(std::span<Buffer> buffers, std::int64_t alignment) {
    MemoryPlan plan;
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < buffers.size(); ++i)
        if (buffers[i].first >= 0) order.push_back(i);
    // Large buffers first: small ones fill the holes they leave. Ties by first use keep the plan reproducible.
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        if (buffers[a].bytes() != buffers[b].bytes()) return buffers[a].bytes() > buffers[b].bytes();
        return buffers[a].first < buffers[b].first;
    });
    std::vector<std::size_t> placed;
    for (std::size_t i : order) {
        Buffer& b = buffers[i];
        std::int64_t size = align(b.bytes(), alignment);
        b.offset = first_fit(buffers, placed, b, size, alignment);
        plan.bytes = std::max(plan.bytes, b.offset + size);
        plan.without_reuse += size;
        placed.push_back(i);
    }
    find_peak(buffers, plan);
    return plan;
}

std::string MemoryPlan::text() const {
    auto mib = [](std::int64_t b) { return static_cast<double>(b) / (1 << 20); };
    std::string roles;
    for (int r = 0; r < kRoleCount; ++r)
        if (peak_by_role[static_cast<std::size_t>(r)] > 0)
            roles += fmt::format("{}{} {:.2f}", roles.empty() ? "" : ", ", name_of(static_cast<Role>(r)),
                                 mib(peak_by_role[static_cast<std::size_t>(r)]));
    return fmt::format("arena {:.2f} MiB, {:.2f} MiB without reuse; peak at record {}: {} MiB", mib(bytes), mib(without_reuse),
                       peak_record, roles.empty() ? "nothing" : roles);
}

const char* name_of(Role role) {
    constexpr const char* kNames[kRoleCount] = {"parameter", "gradient", "optimizer",  "running", "state",
                                                "metric",    "data",     "activation", "saved",   "scratch"};
    return kNames[static_cast<int>(role)];
}

}  // namespace millrace::tape
