#include "diagnose/causes/owners.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "diagnose/compare/statistics.h"

namespace millrace::diagnose {
namespace {

struct Stretch {
    Time begin = 0, end = 0;
    bool idle = false;
    Owner owner = Owner::kUnexplained;  ///< kCompute, kCommunication or kCopy where not idle
    std::uint32_t next_job = kNoIndex;  ///< of idle ones: the job that ended it; in a graph's pause that graph
    bool inside_job = false;            ///< idle between the nodes of one graph
};

struct Edge {
    Time time = 0;
    int change = 0;
    Owner owner = Owner::kCompute;  ///< or kCommunication or kCopy
    std::uint32_t job = 0;
};

std::vector<Edge> edges_of(const Timeline& timeline, const Lane& lane, Time begin, Time end) {
    std::vector<Edge> edges;
    const auto add = [&](std::uint32_t work_index, std::uint32_t job) {
        const Work& work = timeline.work[work_index];
        const Time from = std::max(begin, work.begin), to = std::min(end, work.end);
        if (from >= to) return;
        edges.push_back({from, 1, owner_of(work), job});
        edges.push_back({to, -1, owner_of(work), job});
    };
    for (std::uint32_t i = 0; i < lane.jobs.size(); ++i) {
        add(lane.jobs[i].first_work, i);
        for (std::uint32_t work : lane.jobs[i].more_work) add(work, i);
    }
    std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) { return a.time < b.time; });
    return edges;
}

/// What the device did at each moment: compute, communication or copy by priority, or nothing. Covers [begin, end) without
/// holes, ascending.
std::vector<Stretch> device_stretches(const Timeline& timeline, const Lane& lane, Time begin, Time end) {
    const auto edges = edges_of(timeline, lane, begin, end);
    std::vector<Stretch> stretches;
    std::array<int, 3> running{};
    Time now = begin;
    const auto advance = [&](Time to, std::uint32_t next_job) {
        if (to <= now) return;
        Stretch stretch{now, to, true, Owner::kUnexplained, next_job, false};
        const auto first = std::ranges::find_if(running, [](int count) { return count > 0; });
        if (first != running.end()) stretch = {now, to, false, static_cast<Owner>(first - running.begin()), kNoIndex, false};
        if (stretch.idle && next_job != kNoIndex) stretch.inside_job = lane.jobs[next_job].begin < now;
        if (!stretches.empty() && !stretch.idle && !stretches.back().idle && stretches.back().owner == stretch.owner)
            stretches.back().end = to;
        else
            stretches.push_back(stretch);
        now = to;
    };
    for (const Edge& edge : edges) {
        advance(edge.time, edge.change > 0 ? edge.job : kNoIndex);
        running[index_of(edge.owner)] += edge.change;
    }
    advance(end, kNoIndex);
    return stretches;
}

using Shares = OwnerMs;  ///< of an idle stretch

struct Stage {
    Owner owner;
    Cure cure;
};

std::vector<Stage> stages_of(const Study& study, const Roles& roles) {
    std::vector<Cure> copies;
    for (const Site& site : roles.pageable) copies.push_back(with_pinned_copies(roles, site));
    return {{Owner::kPageableCopy, all_of(std::move(copies))},
            {Owner::kAllocatorChurn, without_allocations(roles)},
            {Owner::kLoaderWait, without_host_work(study, Doing::kLoading)},
            {Owner::kHostSync, all_of({without_all_waits(roles), without_host_work(study, Doing::kReading)})},
            {Owner::kFileOutput, without_writing(roles)},
            {Owner::kGarbageCollection, without_collections(study)},
            {Owner::kPythonWork, without_host_work(study, Doing::kComputing)},
            {Owner::kLaunchBound, without_launches(roles)},
            {Owner::kUnexplained, without_host_work(study, Doing::kUnknown)}};
}

/// Of the idle time before each job, whose it is. What no cure closes is the device's own: pauses between
/// jobs that were queued in time, dependencies.
std::vector<Shares> shares_before(const Study& study, std::size_t lane, const std::vector<Stage>& stages) {
    Model model = study.models[lane];
    const auto base = idle_before(play(model));
    std::vector<Time> left = base;
    std::vector<Shares> shares(base.size());
    Shares whole{};
    double total = 0;
    for (std::size_t i = 0; i < base.size(); ++i) total += static_cast<double>(base[i]);
    for (const Stage& stage : stages) {
        stage.cure(lane, model);
        const auto idle = idle_before(play(model));
        for (std::size_t i = 0; i < base.size(); ++i) {
            if (idle[i] >= left[i]) continue;
            const auto closed = static_cast<double>(left[i] - idle[i]);
            shares[i][index_of(stage.owner)] += closed / static_cast<double>(base[i]);
            whole[index_of(stage.owner)] += closed / total;
            left[i] = idle[i];
        }
    }
    constexpr auto kRest = index_of(Owner::kOther);
    for (std::size_t i = 0; i < base.size(); ++i) {
        if (base[i] > 0) {
            shares[i][kRest] += static_cast<double>(left[i]) / static_cast<double>(base[i]);
            whole[kRest] += static_cast<double>(left[i]) / total;
        }
    }
    if (total == 0) whole[kRest] = 1;
    // Where the replay has no gap and the recording has one, it belongs as gaps do on the whole.
    for (std::size_t i = 0; i < base.size(); ++i)
        if (base[i] == 0) shares[i] = whole;
    return shares;
}

/// Cuts an idle stretch among its owners; they follow each other in the order of the enumeration.
void enter_idle(const Stretch& stretch, const Shares& shares, StepView& view) {
    const auto length = static_cast<double>(stretch.end - stretch.begin);
    double sum = 0;
    Time at = stretch.begin;
    for (std::size_t owner = 0; owner < kOwners; ++owner) {
        if (shares[owner] <= 0) continue;
        sum += shares[owner];
        const Time end = std::clamp(stretch.begin + static_cast<Time>(std::llround(sum * length)), at, stretch.end);
        if (end > at) view.stretches.push_back({{at, end}, static_cast<Owner>(owner)});
        at = end;
    }
    if (at < stretch.end) view.stretches.push_back({{at, stretch.end}, Owner::kOther});
}

StepView view_of(Time begin, Time end, const std::vector<Stretch>& stretches, const std::vector<Shares>& shares, bool has_calls) {
    StepView view{begin, end, {}, {}};
    auto part =
        std::partition_point(stretches.begin(), stretches.end(), [begin](const Stretch& each) { return each.end <= begin; });
    for (; part != stretches.end() && part->begin < end; ++part) {
        Stretch cut = *part;
        cut.begin = std::max(cut.begin, begin);
        cut.end = std::min(cut.end, end);
        Shares one{};
        if (!cut.idle)
            one[index_of(cut.owner)] = 1;
        else if (cut.inside_job)
            one[index_of(Owner::kOther)] = 1;
        else if (!has_calls || cut.next_job == kNoIndex)
            one[index_of(Owner::kUnexplained)] = 1;
        else
            one = shares[cut.next_job];
        enter_idle(cut, one, view);
    }
    for (const auto& [times, owner] : view.stretches) view.ms[index_of(owner)] += ms_of(times.second - times.first);
    return view;
}

}  // namespace

Breakdown divide_steps(const Study& study, const Roles& roles) {
    Breakdown breakdown;
    if (study.step_count == 0) return breakdown;
    std::vector<Time> lengths;
    for (const WindowSteps& window : study.steps)
        for (const Step& step : window.steps) lengths.push_back(step.end - step.begin);
    const Time median = median_of(lengths), longest = std::ranges::max(lengths);
    const auto stages = stages_of(study, roles);
    double total = 0;
    for (std::size_t lane = 0; lane < study.lanes.size(); ++lane) {
        const std::vector<Step>& steps = study.steps[lane].steps;
        if (steps.empty()) continue;
        const auto shares = shares_before(study, lane, stages);
        const bool has_calls = !study.lanes[lane].calls.empty();
        const std::vector<Step>& phases = study.steps[lane].evaluations;
        const Time begin = phases.empty() ? steps.front().begin : std::min(steps.front().begin, phases.front().begin);
        const Time end = phases.empty() ? steps.back().end : std::max(steps.back().end, phases.back().end);
        const auto stretches = device_stretches(study.timeline, study.lanes[lane], begin, end);
        for (const Step& phase : phases) {
            if (phase.end <= phase.begin) continue;
            ++breakdown.evaluations;
            const StepView view = view_of(phase.begin, phase.end, stretches, shares, has_calls);
            for (std::size_t owner = 0; owner < kOwners; ++owner) breakdown.evaluation_ms[owner] += view.ms[owner];
        }
        for (const Step& step : steps) {
            StepView view = view_of(step.begin, step.end, stretches, shares, has_calls);
            for (std::size_t owner = 0; owner < kOwners; ++owner) breakdown.ms[owner] += view.ms[owner];
            total += ms_of(step.end - step.begin);
            if (step.end - step.begin == longest && !breakdown.worst) breakdown.worst = view;
            if (step.end - step.begin == median && !breakdown.typical) breakdown.typical = std::move(view);
        }
    }
    breakdown.busy_share =
        total > 0 ? std::min(1.0, busy_of(breakdown.ms) / total) : 0;  // sums in another order differ in the last digit
    for (auto* all : {&breakdown.ms, &breakdown.evaluation_ms})
        for (double& owned : *all) owned /= static_cast<double>(study.step_count);
    if (const double unseen = study.unseen_loading_ms(); unseen > 0) {
        breakdown.ms[index_of(Owner::kLoaderWait)] += unseen;
        breakdown.busy_share *= study.recorded_ms / (study.recorded_ms + unseen);
    }
    return breakdown;
}

}  // namespace millrace::diagnose
