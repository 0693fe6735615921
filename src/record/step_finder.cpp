#include "record/step_finder.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <unordered_map>

#include "record/periodicity.h"

namespace millrace::record {
namespace {

constexpr std::size_t kLeastMarks = 3;
constexpr std::size_t kMostVaried = 3;  ///< times the usual length that a step may have
constexpr double kKnownCuts = 0.8;      ///< of the turns that are seen, that what is launched around their begins tells, too

/// Where steps start among launches; ends[i] is where what comes before starts[i] was over. Empty ends: what is longer than usual
/// is a step and something else behind it.
struct Cuts {
    std::vector<std::size_t> starts, ends;
    std::size_t length = 0;
    double match = 1;
    std::uint64_t loop = 0;
};

std::size_t slack_of(std::size_t length) { return std::max<std::size_t>(2, length / 10); }

bool is_step_name(std::string_view name) {
    constexpr std::string_view kStepNames[] = {"ProfilerStep#", "step", "Step", "train_step", "iteration", "Iteration", "batch_"};
    return std::ranges::any_of(kStepNames, [name](std::string_view each) { return name.starts_with(each); });
}

/// Those of PyTorch's profiler, else the name that covers most time among those that read like a step. What follows a number in a
/// name does not count.
Cuts cuts_by_ranges(const StepInput& input, const std::vector<std::size_t>& launches) {
    std::map<std::string, std::pair<std::uint64_t, std::vector<const MarkedRange*>>> by_name;
    for (const MarkedRange& range : input.ranges) {
        if (!is_step_name(range.name)) continue;
        auto& [covered, marks] = by_name[std::string(range.name.substr(0, range.name.find_first_of("0123456789")))];
        if (!marks.empty() && range.begin < marks.back()->end) continue;
        covered += range.end - range.begin;
        marks.push_back(&range);
    }
    const std::vector<const MarkedRange*>* marks = nullptr;
    std::uint64_t most = 0;
    for (const auto& [name, entry] : by_name) {
        const std::uint64_t weight = name == "ProfilerStep#" ? ~std::uint64_t{0} : entry.first;
        if (entry.second.size() >= kLeastMarks && weight > most) marks = &entry.second, most = weight;
    }
    Cuts cuts;
    std::size_t at = 0;
    for (std::size_t i = 0; marks != nullptr && i < marks->size(); ++i) {
        const auto begin = [&] { return input.acts[launches[at]].begin; };
        while (at < launches.size() && begin() < (*marks)[i]->begin) ++at;
        if (at < launches.size() && begin() < (*marks)[i]->end && (cuts.starts.empty() || cuts.starts.back() != at))
            cuts.starts.push_back(at);
    }
    if (cuts.starts.size() < kLeastMarks) return {};
    cuts.length = median_distance(cuts.starts);
    return cuts;
}

/// What is launched from `before` before a place to `behind` it, as one number; 0 where there is not as much.
std::uint64_t around(const std::vector<std::uint64_t>& kinds, std::size_t at, std::size_t before, std::size_t behind) {
    if (at < before || at + behind > kinds.size()) return 0;
    std::uint64_t hash = 1;
    for (std::size_t i = at - before; i < at + behind; ++i) hash = (hash ^ kinds[i]) * 0x9e3779b97f4a7c15u ^ hash >> 31;
    return hash | 1;
}

/// Turns are seen as far as launches have places, which is not to the end of a window. What is launched at their begins, and
/// nowhere else among them, tells the others; false where nothing does.
bool go_on(const std::vector<std::uint64_t>& kinds, std::size_t seen, Cuts& cuts) {
    constexpr std::array<std::pair<std::size_t, std::size_t>, 9> kShapes{
        {{1, 0}, {0, 1}, {1, 1}, {4, 0}, {0, 4}, {4, 4}, {16, 0}, {0, 16}, {16, 16}}};
    for (const auto& [before, behind] : kShapes) {
        std::map<std::uint64_t, std::size_t> times;
        for (const std::size_t start : cuts.starts) ++times[around(kinds, start, before, behind)];
        const auto [wanted, count] = *std::ranges::max_element(times, {}, [](const auto& each) { return each.second; });
        if (wanted == 0 || static_cast<double>(count) < kKnownCuts * static_cast<double>(cuts.starts.size())) continue;
        std::size_t all = 0;
        for (std::size_t at = cuts.starts.front(); at <= cuts.starts.back(); ++at)
            all += around(kinds, at, before, behind) == wanted ? 1 : 0;
        if (all != count) continue;
        for (std::size_t at = std::max(seen, cuts.starts.back() + 1); at < kinds.size(); ++at)
            if (around(kinds, at, before, behind) == wanted) cuts.starts.push_back(at), cuts.ends.push_back(at);
        return true;
    }
    return false;
}

Cuts cuts_of(const std::optional<FoundTurns>& turns, const StepInput& input, const std::vector<std::size_t>& launches) {
    Cuts cuts;
    if (!turns || turns->begins.size() < kLeastTurns) return cuts;
    const auto number = [&](std::size_t act) {
        return static_cast<std::size_t>(std::ranges::lower_bound(launches, act) - launches.begin());
    };
    for (std::size_t i = 0; i < turns->begins.size(); ++i) {
        cuts.starts.push_back(number(turns->begins[i]));
        cuts.ends.push_back(number(turns->ends[i]));
    }
    std::vector<std::uint64_t> sized, kinds;
    std::size_t seen = 0;
    for (const std::size_t act : launches) {
        sized.push_back(input.acts[act].launched);
        kinds.push_back(input.acts[act].kind);
        if (input.acts[act].place != 0) seen = kinds.size();
    }
    cuts.length = median_distance(cuts.starts);
    cuts.loop = turns->assumed ? 0 : turns->loop;
    const std::size_t whole = cuts.starts.size();
    if (!go_on(sized, seen, cuts)) go_on(kinds, seen, cuts);
    // Where its loop is not known, or its calls have no places, an evaluation looks like a part of the step that an update ends.
    for (std::size_t i = 0; i + 1 < cuts.starts.size(); ++i) {
        const std::size_t most = i + 1 < whole ? kMostVaried * cuts.length : cuts.length + slack_of(cuts.length);
        if (cuts.ends[i + 1] - cuts.starts[i] > most) cuts.starts[i] = cuts.ends[i + 1] - cuts.length;
    }
    return cuts;
}

/// By what returns behind `from`.
Cuts cuts_by_period(const StepInput& input, const std::vector<std::size_t>& launches, std::size_t from, bool with_sizes) {
    std::vector<std::uint64_t> elements;
    std::vector<double> pauses;
    for (std::size_t i = from; i < launches.size(); ++i) {
        const Act& act = input.acts[launches[i]];
        elements.push_back(with_sizes ? act.launched : act.kind);
        pauses.push_back(i > from ? static_cast<double>(act.begin - input.acts[launches[i - 1]].begin) : 0);
    }
    const auto period = find_period(elements);
    if (!period) return {};
    Cuts cuts{find_starts(elements, *period, pauses), {}, period->length, period->match, 0};
    if (cuts.starts.size() < kLeastTurns) return {};
    for (std::size_t& start : cuts.starts) start += from;
    return cuts;
}

FoundSteps steps_of(StepSource source, const Cuts& cuts) {
    FoundSteps found{source, cuts.match, {}, {}, cuts.length, cuts.loop};
    const std::size_t slack = slack_of(cuts.length);
    const bool returns = source == StepSource::kPeriod;
    for (std::size_t i = 0; i + 1 < cuts.starts.size(); ++i) {
        std::size_t end = cuts.starts[i + 1];
        const std::size_t launches = end - cuts.starts[i];
        if (!cuts.ends.empty() && cuts.ends[i + 1] + slack < end && cuts.ends[i + 1] > cuts.starts[i])
            end = cuts.ends[i + 1];
        else if (cuts.ends.empty() && launches > cuts.length + slack)
            end = cuts.starts[i] + cuts.length;  // and an evaluation, a sample of text, a test of gradients
        if (returns && launches + slack < cuts.length) continue;
        found.starts.push_back(cuts.starts[i]);
        found.ends.push_back(end);
    }
    if (!found.ends.empty()) found.starts.push_back(cuts.starts.back());
    return found;
}

/// A program that replays its step makes it launch by launch before: the first graph, where no update comes behind it and most
/// launches there are graphs; 0 where it is no such program.
std::size_t replays_from(const StepInput& input, const std::vector<std::size_t>& launches) {
    const auto first = std::ranges::find_if(launches, [&](std::size_t act) { return input.acts[act].graph; });
    const std::span<const std::size_t> behind(first, launches.end());
    const auto graphs = std::ranges::count_if(behind, [&](std::size_t act) { return input.acts[act].graph; });
    const bool updates = std::ranges::any_of(
        behind, [&](std::size_t act) { return input.places[input.acts[act].place].outside != StepPlace::kNoUpdate; });
    const bool replays =
        !updates && graphs >= static_cast<std::ptrdiff_t>(kLeastTurns) && 2 * graphs > static_cast<std::ptrdiff_t>(behind.size());
    return replays ? static_cast<std::size_t>(first - launches.begin()) : 0;
}

}  // namespace

FoundSteps find_steps(StepInput input) {
    std::vector<std::uint64_t> elements;
    std::vector<char> graphs;
    std::vector<std::size_t> launches;
    for (std::size_t act = 0; act < input.acts.size(); ++act) {
        if (input.acts[act].launched == 0) continue;
        launches.push_back(act);
        elements.push_back(input.acts[act].launched);
        graphs.push_back(input.acts[act].graph ? 1 : 0);
    }
    const std::size_t rehearsed = std::max(rehearsal_end(elements, graphs), replays_from(input, launches));
    for (std::size_t i = 0; i < rehearsed; ++i) input.acts[launches[i]].place = 0;
    if (launches.empty()) return {};
    if (const Cuts cuts = cuts_by_ranges(input, launches); cuts.length > 0) return steps_of(StepSource::kRanges, cuts);
    if (const Cuts cuts = cuts_of(turns_by_updates(input), input, launches); cuts.length > 0)
        return steps_of(StepSource::kUpdates, cuts);
    if (const Cuts cuts = cuts_of(turns_by_lines(input), input, launches); cuts.length > 0)
        return steps_of(StepSource::kLoop, cuts);
    for (const bool with_sizes : {true, false})
        if (const Cuts cuts = cuts_by_period(input, launches, rehearsed, with_sizes); cuts.length > 0)
            if (FoundSteps found = steps_of(StepSource::kPeriod, cuts); !found.ends.empty()) return found;
    return {};
}

}  // namespace millrace::record
