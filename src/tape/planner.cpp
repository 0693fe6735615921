#include "tape/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <set>
#include <vector>

#include "ops/fused.h"

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

std::vector<ops::Bound> stand_ins(const std::vector<ops::Record>& records) {
    std::vector<ops::Bound> bound;
    bound.reserve(records.size());
    for (const ops::Record& record : records) bound.push_back(ops::stand_in(record));
    return bound;
}

/// The program's buffers in their order, then those of the store that records name: these are always kept.
std::vector<ops::Uses::Block> blocks_of(const std::vector<Buffer>& buffers, const std::vector<ops::Record>& records) {
    std::vector<ops::Uses::Block> blocks;
    const auto add = [&](tensor::BufferId id, bool kept) {
        tensor::View whole;
        whole.buffer = id;
        const tensor::Operand first = ops::stand_in(whole);
        whole.buffer = id + 1;
        const tensor::Operand behind = ops::stand_in(whole);
        const auto bytes = static_cast<const std::byte*>(behind.data) - static_cast<const std::byte*>(first.data);
        blocks.push_back({first.data, static_cast<std::size_t>(bytes), kept});
    };
    for (std::size_t i = 0; i < buffers.size(); ++i) add(kLocalBase + static_cast<tensor::BufferId>(i), buffers[i].kept);
    std::set<tensor::BufferId> of_store;
    for (const ops::Record& record : records)
        for (const tensor::View& v : record.slots)
            if (v.present() && v.buffer < kLocalBase && of_store.insert(v.buffer).second) add(v.buffer, true);
    return blocks;
}

/// The records of a section while they are rewritten, each with its number among all.
class Rewriting {
public:
    Rewriting(const ops::Backend& backend, const ops::Uses& uses, bool before_others)
        : backend_(backend), uses_(uses), rewrites_(ops::rewrites()) {
        std::erase_if(rewrites_, [&](const ops::Rewrite* rewrite) { return rewrite->before_others != before_others; });
    }

    /// Calls `keep` with the records that are left of those given, the first of which has number `first`.
    template <class Keep>
    void run(std::span<const ops::Bound> section, std::size_t first, Keep keep) {
        left_.assign(section.begin(), section.end());
        numbers_.clear();
        for (std::size_t i = 0; i < left_.size(); ++i) numbers_.push_back(first + i);
        for (std::size_t at = 0; at < left_.size();) at += rewrite(at) ? 0 : 1;
        for (const ops::Bound& bound : left_) keep(*bound.record);
    }

private:
    /// Whether another record stands at `at` now that was not looked at yet.
    bool rewrite(std::size_t at) {
        std::size_t end = at + 1;
        while (end < left_.size() && left_[end].condition.data == left_[at].condition.data) ++end;
        const ops::Window window(std::span<const ops::Bound>(left_).subspan(at, end - at), uses_,
                                 std::span<const std::size_t>(numbers_).subspan(at, end - at));
        for (const ops::Rewrite* rewrite : rewrites_) {
            if (rewrite->begins != nullptr && rewrite->begins != left_[at].record->op) continue;
            const ops::Match match = backend_.match(*rewrite, window);
            if (match.count() == 0) continue;
            if (rewrite->fused == nullptr) {
                change(at, match);
                return true;
            }
            const ops::Placement placement = ops::place(match, window);
            if (!placement.possible) continue;
            made_.push_back(ops::fuse(*rewrite->fused, match, window));
            const std::size_t number = window.number(match.records.back());
            const std::size_t place = at + (placement.behind ? match.records.back() : 0);
            left_[place] = ops::stand_in(made_.back());
            numbers_[place] = number;
            for (auto taken = match.records.rbegin(); taken != match.records.rend(); ++taken) {
                if (at + *taken == place) continue;
                left_.erase(left_.begin() + static_cast<std::ptrdiff_t>(at + *taken));
                numbers_.erase(numbers_.begin() + static_cast<std::ptrdiff_t>(at + *taken));
            }
            return place != at;
        }
        return false;
    }

    /// The records of a match one by one.
    void change(std::size_t at, const ops::Match& match) {
        for (std::size_t i = match.count(); i-- > 0;) {
            const std::size_t place = at + match.records[i];
            if (match.instead[i]) {
                made_.push_back(*match.instead[i]);
                left_[place] = ops::stand_in(made_.back());
            } else {
                left_.erase(left_.begin() + static_cast<std::ptrdiff_t>(place));
                numbers_.erase(numbers_.begin() + static_cast<std::ptrdiff_t>(place));
            }
        }
    }

    const ops::Backend& backend_;
    const ops::Uses& uses_;
    std::vector<const ops::Rewrite*> rewrites_;
    std::vector<ops::Bound> left_;
    std::vector<std::size_t> numbers_;
    std::deque<ops::Record> made_;
};

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

static void rewrite_pass(const ops::Backend& backend, const std::vector<Buffer>& buffers, bool before_others,
                         std::vector<ops::Record>& records, std::vector<ops::Section>& sections) {
    const std::vector<ops::Bound> bound = stand_ins(records);
    const ops::Uses uses(bound, sections, blocks_of(buffers, records));
    Rewriting rewriting(backend, uses, before_others);
    std::vector<ops::Record> left;
    for (ops::Section& section : sections) {
        const std::size_t first = left.size();
        rewriting.run(std::span(bound).subspan(section.first, section.count), section.first,
                      [&](const ops::Record& record) { left.push_back(record); });
        section.first = first;
        section.count = left.size() - first;
    }
    records = std::move(left);
}

void rewrite_records(const ops::Backend& backend, const std::vector<Buffer>& buffers, std::vector<ops::Record>& records,
                     std::vector<ops::Section>& sections) {
    for (const bool before_others : {true, false}) rewrite_pass(backend, buffers, before_others, records, sections);
}

void set_lifetimes(const std::vector<ops::Record>& records, const std::vector<ops::Section>& sections,
                   std::vector<Buffer>& buffers) {
    const ops::Uses uses(stand_ins(records), sections, blocks_of(buffers, records));
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        const auto life = uses.lifetime(i);
        if (!life) continue;
        buffers[i].first = static_cast<int>(life->first);
        buffers[i].last = static_cast<int>(buffers[i].kept ? records.size() - 1 : life->last);
    }
}

}  // namespace millrace::tape
