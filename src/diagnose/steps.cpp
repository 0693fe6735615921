#include "diagnose/steps.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>

#include "diagnose/kernel_names.h"
#include "diagnose/step_period.h"

namespace millrace::diagnose {
namespace {

constexpr std::size_t kShortLoop = 4;  ///< jobs; hardly a step
constexpr double kLoopsMatch = 0.5;    ///< of loops and copies: few kinds of elements, each of which counts the same
constexpr double kUpdatesMatch = 0.5;  ///< steps that end alike and are else different
constexpr std::size_t kTogether = 8;   ///< an optimizer takes several kernels; others stand between them
constexpr std::size_t kLeastUpdates = 4;
constexpr std::size_t kMostVaried = 3;

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
        if (!lane.own_jobs.empty() && lane.jobs[i].call == kNoIndex) continue;
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
        if (call == kNoIndex || before == kNoIndex) continue;
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

/// Where steps start among the jobs in `order`, and how many jobs one usually has.
struct Cuts {
    std::vector<std::uint32_t> order;
    std::vector<std::size_t> starts;
    std::size_t length = 0;
    double match = 0;
    bool varied = false;  ///< steps of fewer jobs are steps, too
};

struct Sequence {
    std::vector<std::uint64_t> elements;
    std::vector<char> marks;
    std::vector<double> pauses;
    std::vector<std::size_t> at;  ///< of each element, its place in the order of jobs
};

/// An entry of find_step_period.
char mark_of(const Timeline& timeline, const Job& job) {
    const auto name = [&](std::uint32_t work) -> std::string_view { return timeline.names[timeline.work[work].name]; };
    const auto updates = [&](std::uint32_t work) { return updates_parameters(name(work)); };
    const bool update = updates(job.first_work) || std::any_of(job.more_work.begin(), job.more_work.end(), updates);
    int mark = job.more_work.empty() && is_matrix_kernel(name(job.first_work)) ? kMultiplies : 0;
    if (update) mark |= kUpdates;
    if (update && !job.more_work.empty()) mark |= kWholeStep;
    return static_cast<char>(mark);
}

Sequence sequence_of(const Timeline& timeline, const Lane& lane, const std::vector<std::uint32_t>& order, bool with_shape) {
    Sequence sequence{{}, {}, pauses_before(timeline, lane, order), {}};
    for (std::size_t i = 0; i < order.size(); ++i) {
        const Job& job = lane.jobs[order[i]];
        sequence.elements.push_back(element_of(timeline, job, with_shape));
        sequence.marks.push_back(mark_of(timeline, job));
        sequence.at.push_back(i);
    }
    return sequence;
}

std::ptrdiff_t rehearsed_jobs(const Timeline& timeline, const Lane& lane, const std::vector<std::uint32_t>& order) {
    std::vector<char> graphs;
    for (const std::uint32_t job : order) {
        const Work& work = timeline.work[lane.jobs[job].first_work];
        graphs.push_back(work.graph_node != 0 ? 1 : 0);
    }
    return static_cast<std::ptrdiff_t>(record::rehearsal_end(sequence_of(timeline, lane, order, true).elements, graphs));
}

std::size_t slack_of(std::size_t length) { return std::max<std::size_t>(2, length / 10); }

/// Starts so that what stands between steps comes after whole ones. The place that marks them may lie in the middle of a step,
/// an optimizer's kernel say: of what follows it before an evaluation, only the first part belongs to the step, and what is
/// before the next start does, too.
std::vector<std::size_t> around_phases(const std::vector<std::uint64_t>& elements, const std::vector<std::size_t>& starts,
                                       std::size_t length) {
    const std::uint64_t* usual = nullptr;
    for (std::size_t i = 1; i < starts.size() && !usual; ++i)
        if (starts[i] - starts[i - 1] == length) usual = &elements[starts[i - 1]];
    if (!usual) return starts;
    std::map<std::size_t, std::size_t> parts;
    std::size_t phases = 0;
    for (std::size_t i = 1; i < starts.size(); ++i) {
        if (starts[i] - starts[i - 1] <= length + slack_of(length)) continue;
        ++phases;
        std::size_t first = 0, last = 0;
        while (first < length && elements[starts[i - 1] + first] == usual[first]) ++first;
        while (last < length && elements[starts[i] - 1 - last] == usual[length - 1 - last]) ++last;
        // Batches of an evaluation begin as a step's forward pass does: as much as possible of the step is behind it.
        if (first + last >= length) ++parts[length - last];
    }
    const auto most =
        std::max_element(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most == parts.end() || 2 * most->second <= phases || most->first == length) return starts;
    std::vector<std::size_t> moved;
    for (std::size_t start : starts)
        if (start >= length - most->first) moved.push_back(start - (length - most->first));
    return moved;
}

/// Steps by what returns.
std::optional<Cuts> cuts_by_period(const Sequence& sequence, const std::vector<std::uint32_t>& order) {
    const auto period = find_step_period(sequence.elements, sequence.marks);
    if (!period) return std::nullopt;
    Cuts cuts{order, record::find_starts(sequence.elements, *period, sequence.pauses), period->length, period->match, false};
    cuts.starts = around_phases(sequence.elements, cuts.starts, cuts.length);
    if (cuts.starts.size() < 3) return std::nullopt;
    for (std::size_t& start : cuts.starts) start = sequence.at[start];
    return cuts;
}

/// Whether most of them have a job that is a step by itself: a graph with an update in it.
bool have_whole_steps(const Cuts& cuts, const Sequence& sequence) {
    std::size_t whole = 0;
    for (const std::size_t start : cuts.starts) {
        const auto begin = sequence.marks.begin() + static_cast<std::ptrdiff_t>(start);
        const auto length = static_cast<std::ptrdiff_t>(std::min(cuts.length, sequence.marks.size() - start));
        whole += std::any_of(begin, begin + length, [](char mark) { return (mark & kWholeStep) != 0; }) ? 1 : 0;
    }
    return 2 * whole > cuts.starts.size();
}

/// Runs of a short loop as one element each: layers of one kind that follow each other.
Sequence without_loops(const Sequence& sequence, std::size_t loop) {
    Sequence shorter;
    const auto& all = sequence.elements;
    for (std::size_t i = 0; i < all.size();) {
        std::size_t end = i + loop;
        while (end < all.size() && all[end] == all[end - loop]) ++end;
        const bool runs = end >= i + 2 * loop;
        if (!runs) end = i + 1;
        std::uint64_t hash = mixed(runs ? loop : 0, all[i]);
        for (std::size_t j = i + 1; runs && j < i + loop; ++j) hash = mixed(hash, all[j]);
        shorter.elements.push_back(hash);
        shorter.marks.push_back(sequence.marks[i]);
        shorter.pauses.push_back(sequence.pauses[i]);
        shorter.at.push_back(sequence.at[i]);
        i = end;
    }
    return shorter;
}

/// Steps of programs whose layers are a loop of their own: what is copied between such loops tells the step.
std::optional<Cuts> cuts_by_copies(const Timeline& timeline, const Lane& lane, std::uint32_t first, bool with_shape,
                                   std::size_t loop) {
    auto order = jobs_in_order(timeline, lane, true);
    std::erase_if(order, [first](std::uint32_t job) { return job < first; });
    auto cuts = cuts_by_period(without_loops(sequence_of(timeline, lane, order, with_shape), loop), order);
    if (!cuts || cuts->match < kLoopsMatch) return std::nullopt;
    cuts->length = usual_length(cuts->starts);
    return cuts->length > 2 * loop ? cuts : std::nullopt;
}

/// Steps of programs that launch something else each time: each ends with an update of the parameters.
std::optional<Cuts> cuts_by_updates(const Timeline& timeline, const Lane& lane, const std::vector<std::uint32_t>& order) {
    const Sequence sequence = sequence_of(timeline, lane, order, false);
    Cuts cuts{order, {}, 0, kUpdatesMatch, false};
    for (std::size_t i = 1, last = 0; i < order.size(); ++i) {
        if ((sequence.marks[i - 1] & kUpdates) != 0) last = i;
        if (last > 0 && i == last + kTogether) cuts.starts.push_back(last);
    }
    if (cuts.starts.size() < kLeastUpdates) return std::nullopt;
    for (std::size_t i = 1; i < cuts.starts.size(); ++i) cuts.length = std::max(cuts.length, cuts.starts[i] - cuts.starts[i - 1]);
    // Where most are far shorter than the longest, there are two kinds of them, and the long ones set the pace.
    cuts.varied = kMostVaried * usual_length(cuts.starts) >= cuts.length;
    return cuts;
}

void cut(const Lane& lane, const Cuts& cuts, WindowSteps& found) {
    for (std::size_t i = 0; i + 1 < cuts.starts.size(); ++i) {
        const std::uint32_t first = cuts.order[cuts.starts[i]], next = cuts.order[cuts.starts[i + 1]];
        const std::size_t jobs = cuts.starts[i + 1] - cuts.starts[i];
        const std::size_t slack = slack_of(cuts.length);
        Step step{lane.jobs[first].begin, lane.jobs[next].begin, first, next};
        if (jobs > cuts.length + slack) {
            // A step and something that is none: evaluation, a sample of text, a test of gradients.
            const std::uint32_t end = cuts.order[cuts.starts[i] + cuts.length];
            const Time last = std::max(step.begin, lane.jobs[end - 1].end);
            found.evaluations.push_back({last, step.end, end, next});
            step.end = last;
            step.end_job = end;
            step.before_phase = true;
        }
        if ((!cuts.varied && jobs + slack < cuts.length) || step.end <= step.begin) continue;
        found.steps.push_back(step);
    }
}

/// The first steps load modules, fill the allocator's cache and choose algorithms.
void drop_start_up(const Timeline& timeline, const Lane& lane, bool first_window, const Policy& policy, WindowSteps& found) {
    std::vector<Step>& steps = found.steps;
    // Of few steps, most must be left.
    std::size_t drop = std::min<std::size_t>(first_window ? policy.start_up_steps : 1, steps.size() / 3);
    if (drop == 0) return;
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
    auto order = jobs_in_order(timeline, lane);
    order.erase(order.begin(), order.begin() + rehearsed_jobs(timeline, lane, order));
    auto starts = starts_by_ranges(timeline, launcher, lane, order);
    if (!starts.empty()) {
        found.source = StepSource::kRanges;
        found.match = 1;
        cut(lane, {order, starts, usual_length(starts), 1, false}, found);
    }
    const auto take = [&](const std::optional<Cuts>& cuts) {
        if (!cuts) return;
        found.source = StepSource::kPeriod;
        found.match = cuts->match;
        cut(lane, *cuts, found);
    };
    for (const bool with_shape : {true, false}) {
        if (!found.steps.empty()) break;
        const Sequence sequence = sequence_of(timeline, lane, order, with_shape);
        auto cuts = cuts_by_period(sequence, order);
        if (cuts && cuts->length <= kShortLoop && !have_whole_steps(*cuts, sequence))
            if (auto wider = cuts_by_copies(timeline, lane, order.front(), with_shape, cuts->length)) cuts = std::move(wider);
        take(cuts);
    }
    if (found.steps.empty()) {
        take(cuts_by_updates(timeline, lane, order));
        if (!found.steps.empty()) found.source = StepSource::kUpdates;
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
