#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "diagnose/causes/causes.h"
#include "diagnose/compare/statistics.h"

namespace millrace::diagnose {
namespace {

using Shares = OwnerMs;  ///< of a stretch of time

/// All of it is one owner's.
constexpr auto kWhole = [] {
    std::array<Shares, kOwners> whole{};
    for (std::size_t owner = 0; owner < kOwners; ++owner) whole[owner][owner] = 1;
    return whole;
}();

struct Stretch {
    Time begin = 0, end = 0;
    const Shares* shares = nullptr;
};

struct Edge {
    Time time = 0;
    int change = 0;
    std::size_t owner = 0;  ///< kCompute, kCommunication or kCopy
    std::uint32_t job = 0;
};

/// Whose each moment of the device was: compute, communication or copy by priority, else as `before` has it, of the idle time
/// before each job. Covers [begin, end) without holes, ascending.
std::vector<Stretch> stretches_of(const Timeline& timeline, const Lane& lane, Time begin, Time end,
                                  const std::vector<Shares>& before) {
    std::vector<Edge> edges;
    const auto add = [&](std::uint32_t index, std::uint32_t job) {
        const Work& work = timeline.work[index];
        const Time from = std::max(begin, work.begin), to = std::min(end, work.end);
        if (from >= to) return;
        edges.push_back({from, 1, index_of(owner_of(work)), job});
        edges.push_back({to, -1, index_of(owner_of(work)), job});
    };
    for (std::uint32_t i = 0; i < lane.jobs.size(); ++i) {
        add(lane.jobs[i].first_work, i);
        for (std::uint32_t work : lane.jobs[i].more_work) add(work, i);
    }
    std::ranges::sort(edges, {}, &Edge::time);
    std::vector<Stretch> stretches;
    std::array<int, 3> running{};
    Time now = begin;
    const auto advance = [&](Time to, std::uint32_t next_job) {
        if (to <= now) return;
        const Shares* shares = &kWhole[index_of(Owner::kUnexplained)];
        if (const auto first = std::ranges::find_if(running, [](int count) { return count > 0; }); first != running.end())
            shares = &kWhole[static_cast<std::size_t>(first - running.begin())];
        else if (next_job != kNoIndex && lane.jobs[next_job].begin < now)
            shares = &kWhole[index_of(Owner::kOther)];  // between the nodes of one graph
        else if (next_job != kNoIndex && !lane.calls.empty())
            shares = &before[next_job];
        if (!stretches.empty() && stretches.back().shares == shares)
            stretches.back().end = to;
        else
            stretches.push_back({now, to, shares});
        now = to;
    };
    for (const Edge& edge : edges) {
        advance(edge.time, edge.change > 0 ? edge.job : kNoIndex);
        running[edge.owner] += edge.change;
    }
    advance(end, kNoIndex);
    return stretches;
}

struct Stage {
    Owner owner;
    Cure cure;
};

std::vector<Stage> stages_of(const Study& study, const Roles& roles) {
    std::vector<Cure> copies;
    for (const Site& site : roles.pageable) copies.push_back(with_pinned_copies(roles, site));
    return {{Owner::kPageableCopy, all_of(std::move(copies))},
            {Owner::kAllocatorChurn, without_waits(roles, roles.allocator)},
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
    const auto total = static_cast<double>(std::accumulate(base.begin(), base.end(), Time{0}));
    const auto close = [&](const std::vector<Time>& idle, Owner owner) {
        for (std::size_t i = 0; i < base.size(); ++i) {
            if (idle[i] >= left[i]) continue;
            const auto closed = static_cast<double>(left[i] - idle[i]);
            shares[i][index_of(owner)] += closed / static_cast<double>(base[i]);
            whole[index_of(owner)] += closed / total;
            left[i] = idle[i];
        }
    };
    for (const Stage& stage : stages) {
        stage.cure(lane, model);
        close(idle_before(play(model)), stage.owner);
    }
    close(std::vector<Time>(base.size(), 0), Owner::kOther);
    if (total == 0) whole = kWhole[index_of(Owner::kOther)];
    // Where the replay has no gap and the recording has one, it belongs as gaps do on the whole.
    for (std::size_t i = 0; i < base.size(); ++i)
        if (base[i] == 0) shares[i] = whole;
    return shares;
}

/// Owners of one stretch follow each other in the order of the enumeration.
StepView view_of(const Step& step, const std::vector<Stretch>& stretches) {
    StepView view{step.begin, step.end, {}, {}};
    auto part = std::ranges::upper_bound(stretches, step.begin, {}, &Stretch::end);
    for (; part != stretches.end() && part->begin < step.end; ++part) {
        const Time begin = std::max(part->begin, step.begin), end = std::min(part->end, step.end);
        const auto length = static_cast<double>(end - begin);
        double sum = 0;
        Time at = begin;
        for (std::size_t owner = 0; owner < kOwners; ++owner) {
            if ((*part->shares)[owner] <= 0) continue;
            sum += (*part->shares)[owner];
            const Time until = std::clamp(begin + static_cast<Time>(std::llround(sum * length)), at, end);
            if (until > at) view.stretches.push_back({{at, until}, static_cast<Owner>(owner)});
            at = until;
        }
        if (at < end) view.stretches.push_back({{at, end}, Owner::kOther});
    }
    for (const auto& [times, owner] : view.stretches) view.ms[index_of(owner)] += ms_of(times.second - times.first);
    return view;
}

}  // namespace

void divide_steps(const Study& study, const Roles& roles, Diagnosis& diagnosis) {
    const Time median = median_of(study.lengths), longest = std::ranges::max(study.lengths);
    const auto stages = stages_of(study, roles);
    double total = 0;
    for (std::size_t lane = 0; lane < study.lanes.size(); ++lane) {
        const std::vector<Step>& steps = study.steps[lane].steps;
        if (steps.empty()) continue;
        const auto shares = shares_before(study, lane, stages);
        const std::vector<Step>& phases = study.steps[lane].evaluations;
        const Time begin = phases.empty() ? steps.front().begin : std::min(steps.front().begin, phases.front().begin);
        const Time end = phases.empty() ? steps.back().end : std::max(steps.back().end, phases.back().end);
        const auto stretches = stretches_of(study.timeline, study.lanes[lane], begin, end, shares);
        for (const Step& phase : phases) {
            if (phase.end <= phase.begin) continue;
            ++diagnosis.evaluations;
            const StepView view = view_of(phase, stretches);
            for (std::size_t owner = 0; owner < kOwners; ++owner) diagnosis.evaluation_breakdown_ms[owner] += view.ms[owner];
        }
        for (const Step& step : steps) {
            StepView view = view_of(step, stretches);
            for (std::size_t owner = 0; owner < kOwners; ++owner) diagnosis.breakdown_ms[owner] += view.ms[owner];
            total += ms_of(step.end - step.begin);
            if (step.end - step.begin == longest && !diagnosis.worst) diagnosis.worst = view;
            if (step.end - step.begin == median && !diagnosis.typical) diagnosis.typical = std::move(view);
        }
    }
    diagnosis.busy_share =
        total > 0 ? std::min(1.0, busy_of(diagnosis.breakdown_ms) / total) : 0;  // sums in another order differ in the last digit
    for (auto* all : {&diagnosis.breakdown_ms, &diagnosis.evaluation_breakdown_ms})
        for (double& owned : *all) owned /= static_cast<double>(study.step_count);
    if (const double unseen = study.unseen_loading_ms(); unseen > 0) {
        diagnosis.breakdown_ms[index_of(Owner::kLoaderWait)] += unseen;
        diagnosis.busy_share *= study.recorded_ms / (study.recorded_ms + unseen);
    }
    diagnosis.evaluation_ms = sum_of(diagnosis.evaluation_breakdown_ms);
}

}  // namespace millrace::diagnose
