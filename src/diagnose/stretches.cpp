#include "diagnose/stretches.h"

#include <algorithm>
#include <array>

namespace millrace::diagnose {
namespace {

struct Edge {
    Time time = 0;
    int change = 0;
    std::size_t level = 0;  ///< 0 compute, 1 communication, 2 copy
    std::uint32_t job = 0;
};

std::size_t level_of(const Work& work) {
    if (work.communication) return 1;
    return work.kind == WorkKind::kKernel ? 0 : 2;
}

std::vector<Edge> edges_of(const Timeline& timeline, const Lane& lane, Time begin, Time end) {
    std::vector<Edge> edges;
    const auto add = [&](std::uint32_t work_index, std::uint32_t job) {
        const Work& work = timeline.work[work_index];
        const Time from = std::max(begin, work.begin), to = std::min(end, work.end);
        if (from >= to) return;
        edges.push_back({from, 1, level_of(work), job});
        edges.push_back({to, -1, level_of(work), job});
    };
    for (std::uint32_t i = 0; i < lane.jobs.size(); ++i) {
        add(lane.jobs[i].first_work, i);
        for (std::uint32_t work : lane.jobs[i].more_work) add(work, i);
    }
    std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) { return a.time < b.time; });
    return edges;
}

}  // namespace

std::vector<Stretch> device_stretches(const Timeline& timeline, const Lane& lane, Time begin, Time end) {
    constexpr std::array<Owner, 3> kLevels{Owner::kCompute, Owner::kCommunication, Owner::kCopy};
    const auto edges = edges_of(timeline, lane, begin, end);
    std::vector<Stretch> stretches;
    std::array<int, 3> running{};
    Time now = begin;
    const auto advance = [&](Time to, std::uint32_t next_job) {
        if (to <= now) return;
        Stretch stretch{now, to, true, Owner::kUnexplained, next_job, false};
        for (std::size_t level = 0; level < kLevels.size() && stretch.idle; ++level)
            if (running[level] > 0) stretch.idle = false, stretch.owner = kLevels[level], stretch.next_job = kNoIndex;
        if (stretch.idle && next_job != kNoIndex) stretch.inside_job = lane.jobs[next_job].begin < now;
        if (!stretches.empty() && !stretch.idle && !stretches.back().idle && stretches.back().owner == stretch.owner)
            stretches.back().end = to;
        else
            stretches.push_back(stretch);
        now = to;
    };
    for (const Edge& edge : edges) {
        advance(edge.time, edge.change > 0 ? edge.job : kNoIndex);
        running[edge.level] += edge.change;
    }
    advance(end, kNoIndex);
    return stretches;
}

}  // namespace millrace::diagnose
