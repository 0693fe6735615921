#include "diagnose/steps.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>

#include "record/step_period.h"

namespace millrace::diagnose {
namespace {

constexpr std::size_t kShortLoop = 4;  ///< jobs; hardly a step
constexpr double kSureMatch = 0.9;

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
    return mixed(hash, job.more_work.size());
}

/// Kernels of the line: copies come when something is logged, and another thread's work comes as it pleases. Where there are no
/// such kernels, or no calls are known, whatever there is. With `copies` those of the line, too.
std::vector<std::uint32_t> jobs_in_order(const Timeline& timeline, const Lane& lane, bool copies = false) {
    std::vector<std::uint32_t> kernels, all;
    for (std::uint32_t i = 0; i < lane.jobs.size(); ++i) {
        if (!lane.own_jobs.empty() && lane.jobs[i].call == kNobody) continue;
        all.push_back(i);
        if (timeline.work[lane.jobs[i].first_work].kind == WorkKind::kKernel) kernels.push_back(i);
    }
    return kernels.size() >= 3 && !copies ? kernels : all;
}

/// Host time between the call of each job and the one before that launched something.
std::vector<double> pauses_before(const Timeline& timeline, const Lane& lane, const std::vector<std::uint32_t>& order) {
    std::vector<double> pauses(order.size(), 0);
    for (std::size_t i = 1; i < order.size(); ++i) {
        const std::uint32_t call = lane.jobs[order[i]].call, before = lane.jobs[order[i - 1]].call;
        if (call == kNobody || before == kNobody) continue;
        pauses[i] = static_cast<double>(timeline.calls[lane.calls[call]].begin - timeline.calls[lane.calls[before]].end);
    }
    return pauses;
}

bool is_step_name(std::string_view name) {
    for (std::string_view prefix : {"ProfilerStep#", "step", "Step", "train_step", "iteration", "Iteration", "batch_"})
        if (name.starts_with(prefix)) return true;
    return false;
}

/// Starts of steps (as places in `order`) by marked ranges: those of PyTorch's profiler, else the name that covers most time
/// among those that read like a step. What follows a number in a name does not count.
std::vector<std::size_t> starts_by_ranges(const Timeline& timeline, const Launcher& launcher, const Lane& lane,
                                          const std::vector<std::uint32_t>& order) {
    std::map<std::string, std::pair<Time, std::vector<Range>>> by_name;
    for (const Range& range : timeline.ranges) {
        if (range.process != launcher.process || range.name >= timeline.names.size()) continue;
        const std::string& name = timeline.names[range.name];
        if (range.begin < lane.begin || range.begin >= lane.end || !is_step_name(name)) continue;
        auto& [covered, marks] = by_name[name.substr(0, name.find_first_of("0123456789"))];
        if (!marks.empty() && range.begin < marks.back().end) continue;
        covered += range.end - range.begin;
        marks.push_back(range);
    }
    const std::vector<Range>* marks = nullptr;
    Time most = 0;
    for (const auto& [name, entry] : by_name)
        if (entry.second.size() >= 3 && (name == "ProfilerStep#" || entry.first > most)) {
            marks = &entry.second;
            most = name == "ProfilerStep#" ? std::numeric_limits<Time>::max() : entry.first;
        }
    std::vector<std::size_t> starts;
    if (!marks) return starts;
    std::size_t place = 0;
    for (const Range& mark : *marks) {
        while (place < order.size() && lane.jobs[order[place]].launched < mark.begin) ++place;
        if (place < order.size() && lane.jobs[order[place]].launched < mark.end && (starts.empty() || starts.back() != place))
            starts.push_back(place);
    }
    if (starts.size() < 3) starts.clear();
    return starts;
}

/// The usual number of jobs in a step.
std::size_t usual_length(const std::vector<std::size_t>& starts) {
    std::vector<std::size_t> lengths;
    for (std::size_t i = 1; i < starts.size(); ++i) lengths.push_back(starts[i] - starts[i - 1]);
    std::nth_element(lengths.begin(), lengths.begin() + static_cast<std::ptrdiff_t>(lengths.size() / 2), lengths.end());
    return lengths[lengths.size() / 2];
}

/// Steps by what returns.
struct Cuts {
    std::vector<std::uint32_t> order;
    record::Period period;
    std::vector<std::size_t> starts;
};

std::optional<Cuts> cuts_by_period(const Timeline& timeline, const Lane& lane, std::vector<std::uint32_t> order,
                                   bool with_shape) {
    std::vector<std::uint64_t> sequence;
    std::vector<char> updates;
    for (std::uint32_t job : order) {
        sequence.push_back(element_of(timeline, lane.jobs[job], with_shape));
        updates.push_back(record::updates_parameters(timeline.names[timeline.work[lane.jobs[job].first_work].name]) ? 1 : 0);
    }
    const auto period = record::find_step_period(sequence, updates);
    if (!period) return std::nullopt;
    auto starts = record::find_starts(sequence, *period, pauses_before(timeline, lane, order));
    if (starts.size() < 3) return std::nullopt;
    return Cuts{std::move(order), *period, std::move(starts)};
}

void cut(const Lane& lane, const std::vector<std::uint32_t>& order, const std::vector<std::size_t>& starts, std::size_t length,
         WindowSteps& found) {
    for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
        const std::uint32_t first = order[starts[i]], next = order[starts[i + 1]];
        const std::size_t jobs = starts[i + 1] - starts[i];
        const std::size_t slack = std::max<std::size_t>(2, length / 10);
        Step step{lane.jobs[first].begin, lane.jobs[next].begin, first, next};
        if (jobs > length + slack) {
            // A step and something that is none: evaluation, a sample of text, a test of gradients.
            const std::uint32_t end = order[starts[i] + length];
            const Time last = std::max(step.begin, lane.jobs[end - 1].end);
            found.evaluations.push_back({last, step.end, end, next});
            step.end = last;
            step.end_job = end;
            step.before_phase = true;
        }
        if (jobs + slack < length || step.end <= step.begin) continue;
        found.steps.push_back(step);
    }
}

/// The first steps load modules, fill the allocator's cache and choose algorithms.
void drop_start_up(const Timeline& timeline, const Lane& lane, bool first_window, const Policy& policy, WindowSteps& found) {
    std::vector<Step>& steps = found.steps;
    const std::size_t settle = first_window ? policy.start_up_steps : 1;
    if (steps.size() < 3 * settle) return;
    std::size_t drop = settle;
    // Modules are loaded when a kernel is first launched: later than that is no start-up.
    if (first_window)
        for (std::uint32_t call : lane.calls) {
            const Call& entry = timeline.calls[call];
            if (entry.kind != CallKind::kModuleLoad) continue;
            while (drop < steps.size() / 3 && lane.jobs[steps[drop].first_job].launched < entry.begin) ++drop;
        }
    if (first_window) found.start_up_end = steps[drop].begin;
    steps.erase(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(drop));
    std::erase_if(found.evaluations, [&](const Phase& phase) { return phase.begin < steps.front().begin; });
}

}  // namespace

WindowSteps find_steps(const Timeline& timeline, const Launcher& launcher, const Lane& lane, bool first_window,
                       const Policy& policy) {
    WindowSteps found;
    if (lane.jobs.empty()) return found;
    const auto order = jobs_in_order(timeline, lane);
    auto starts = starts_by_ranges(timeline, launcher, lane, order);
    if (!starts.empty()) {
        found.source = StepSource::kRanges;
        found.match = 1;
        cut(lane, order, starts, usual_length(starts), found);
    }
    for (const bool with_shape : {true, false}) {
        if (!found.steps.empty()) break;
        auto cuts = cuts_by_period(timeline, lane, order, with_shape);
        if (cuts && cuts->period.length <= kShortLoop)
            // Layers of one kind follow each other in a loop of their own: what is copied between them tells the step.
            if (auto wider = cuts_by_period(timeline, lane, jobs_in_order(timeline, lane, true), with_shape);
                wider && wider->period.length > 2 * cuts->period.length && wider->period.match >= kSureMatch)
                cuts = std::move(wider);
        if (!cuts) continue;
        found.source = StepSource::kPeriod;
        found.match = cuts->period.match;
        cut(lane, cuts->order, cuts->starts, cuts->period.length, found);
    }
    if (found.steps.empty()) {
        // Nothing repeats: the window as one, so that at least shares can be told.
        Time end = lane.jobs.front().begin;
        for (const Job& job : lane.jobs) end = std::max(end, job.begin);
        if (end <= lane.jobs.front().begin) return found;
        found.source = StepSource::kWindow;
        found.steps.push_back({lane.jobs.front().begin, end, 0, static_cast<std::uint32_t>(lane.jobs.size() - 1)});
        return found;
    }
    drop_start_up(timeline, lane, first_window, policy, found);
    return found;
}

}  // namespace millrace::diagnose
