#include <algorithm>
#include <map>
#include <ranges>

#include "diagnose/answer/policy.h"
#include "diagnose/program/line.h"

namespace millrace::diagnose {
namespace {

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15;
    return hash ^ (hash >> 32);
}

/// What was launched, without its data: sizes of copies vary with batches, and so may grids.
std::uint64_t element_of(const Timeline& timeline, const Job& job, bool with_shape) {
    const Work& work = timeline.work[job.first_work];
    std::uint64_t hash = mixed(static_cast<std::uint64_t>(work.kind) + 1, work.name);
    if (work.kind == WorkKind::kKernel) {
        if (with_shape) hash = mixed(hash, work.shape);
    } else {
        hash = mixed(hash, static_cast<std::uint64_t>(work.from) * 8 + static_cast<std::uint64_t>(work.to));
    }
    return mixed(hash, with_shape ? job.more_work.size() : 0) | 1;
}

/// Kernels of the line: copies come when something is logged, and another thread's work comes as it pleases. Where there are no
/// such kernels, or no calls are known, whatever there is.
std::vector<std::uint32_t> jobs_in_order(const Timeline& timeline, const Lane& lane) {
    std::vector<std::uint32_t> kernels, all;
    for (std::uint32_t i = 0; i < lane.jobs.size(); ++i) {
        if (!lane.own_jobs.empty() && lane.jobs[i].call == kNoIndex) continue;
        all.push_back(i);
        if (timeline.work[lane.jobs[i].first_work].kind == WorkKind::kKernel) kernels.push_back(i);
    }
    return kernels.size() >= 3 ? kernels : all;
}

/// The calls of the lane as the finder takes them; `order` has the jobs that count as launched.
record::StepInput input_of(const Timeline& timeline, const Launcher& launcher, const Lane& lane,
                           const std::vector<std::uint32_t>& order) {
    record::StepInput input;
    input.places.emplace_back();
    std::map<std::uint32_t, std::uint32_t> places;  // by stack
    const auto place_of_call = [&](const Call& call) {
        if (call.thread != launcher.main_thread || call.stack == kNoStack) return 0u;
        const auto [place, fresh] = places.try_emplace(call.stack, 0);
        if (!fresh) return place->second;
        if (auto known = place_of(timeline, call.stack)) {
            place->second = static_cast<std::uint32_t>(input.places.size());
            input.places.push_back(std::move(*known));
        }
        return place->second;
    };
    std::uint32_t next = 0;  // call that is not told yet
    for (const std::uint32_t index : order) {
        const Job& job = lane.jobs[index];
        for (; job.call != kNoIndex && next < job.call; ++next)
            if (const std::uint32_t place = place_of_call(timeline.calls[lane.calls[next]]); place != 0)
                input.acts.push_back({static_cast<std::uint64_t>(timeline.calls[lane.calls[next]].begin), 0, 0, place, false});
        if (next == job.call) ++next;
        const std::uint32_t place = job.call == kNoIndex ? 0 : place_of_call(timeline.calls[lane.calls[job.call]]);
        input.acts.push_back({static_cast<std::uint64_t>(job.launched), element_of(timeline, job, true),
                              element_of(timeline, job, false), place, timeline.work[job.first_work].graph_node != 0});
    }
    for (const Range& range : timeline.ranges)
        if (range.process == launcher.process && range.begin >= lane.begin && range.begin < lane.end)
            input.ranges.push_back(
                {static_cast<std::uint64_t>(range.begin), static_cast<std::uint64_t>(range.end), timeline.names[range.name]});
    return input;
}

/// Times of what was found: steps last until the next one begins, or their last job ends.
void take_times(const Lane& lane, const std::vector<std::uint32_t>& order, const record::FoundSteps& steps, WindowSteps& found) {
    for (std::size_t i = 0; i < steps.ends.size(); ++i) {
        const std::uint32_t first = order[steps.starts[i]], end = order[steps.ends[i]], next = order[steps.starts[i + 1]];
        Step step{lane.jobs[first].begin, lane.jobs[end].begin, first, end};
        if (end != next) {
            step.end = std::max(step.begin, lane.jobs[end - 1].end);
            step.before_phase = true;
            found.evaluations.push_back({step.end, lane.jobs[next].begin, end, next});
        }
        if (step.end > step.begin) found.steps.push_back(step);
    }
}

bool is_training(const Timeline& timeline, const Launcher& launcher, const Lane& lane, const WindowSteps& found) {
    if (found.source == StepSource::kRanges || found.source == StepSource::kUpdates) return true;
    const auto is_aside = [&](std::uint32_t job) {
        const std::uint32_t call = lane.jobs[job].call;
        if (timeline.work[lane.jobs[job].first_work].graph_node != 0) return true;
        return call == kNoIndex || timeline.calls[lane.calls[call]].thread != launcher.main_thread;
    };
    const auto training = std::ranges::count_if(found.steps, [&](const Step& step) {
        return std::ranges::any_of(std::views::iota(step.first_job, step.end_job), is_aside);
    });
    return 2 * static_cast<std::size_t>(training) > found.steps.size();
}

/// The first steps load modules, fill the allocator's cache and choose algorithms.
void drop_start_up(const Timeline& timeline, const Lane& lane, bool first_window, WindowSteps& found) {
    std::vector<Step>& steps = found.steps;
    std::vector<Time> loads;  // of modules: when a kernel is first launched, later than which is no start-up
    for (const std::uint32_t call : lane.calls)
        if (timeline.calls[call].kind == CallKind::kModuleLoad) loads.push_back(timeline.calls[call].begin);
    // What loads them between steps comes once: the first evaluation, or cuDNN's search for the best algorithm.
    std::erase_if(found.evaluations, [&](const Step& phase) {
        const auto load = std::ranges::lower_bound(loads, lane.jobs[phase.first_job].launched);
        return load != loads.end() && *load < lane.jobs[phase.end_job].launched;
    });
    // Of few steps, most must be left.
    std::size_t drop = std::min<std::size_t>(first_window ? kPolicy.start_up_steps : 1, steps.size() / 3);
    if (drop == 0) return;
    if (first_window)
        for (const Time load : loads)
            while (drop < steps.size() / 3 && lane.jobs[steps[drop].first_job].launched < load) ++drop;
    steps.erase(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(drop));
    std::erase_if(found.evaluations, [&](const Step& phase) { return phase.begin < steps.front().begin; });
}

}  // namespace

std::optional<record::StepPlace> place_of(const Timeline& timeline, std::uint32_t stack) {
    std::vector<record::StackFrame> frames;
    for (const Frame& frame : timeline.stacks[stack])
        if (!frame.native) frames.push_back({frame.file, frame.function, static_cast<std::uint32_t>(std::max(0, frame.line))});
    return record::place_of(frames, timeline.loops);
}

WindowSteps find_steps(const Timeline& timeline, const Launcher& launcher, const Lane& lane, bool first_window) {
    WindowSteps found;
    if (lane.jobs.empty()) return found;
    const std::vector<std::uint32_t> order = jobs_in_order(timeline, lane);
    const record::FoundSteps steps = record::find_steps(input_of(timeline, launcher, lane, order));
    found = {steps.source, steps.match, steps.loop};
    take_times(lane, order, steps, found);
    if (found.steps.empty()) {
        // Nothing repeats: the window as one, so that at least shares can be told.
        Time end = lane.jobs.front().begin;
        for (const Job& job : lane.jobs) end = std::max(end, job.begin);
        if (end <= lane.jobs.front().begin) return found;
        found.source = StepSource::kWindow;
        found.steps.push_back({lane.jobs.front().begin, end, 0, static_cast<std::uint32_t>(lane.jobs.size() - 1)});
        return found;
    }
    found.trains = is_training(timeline, launcher, lane, found);
    drop_start_up(timeline, lane, first_window, found);
    return found;
}

}  // namespace millrace::diagnose
