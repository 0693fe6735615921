#pragma once
// Where steps begin and end among what a program's launching threads called. A step is what the program or its profiler marked;
// else a turn of the innermost loop from which an optimizer is called, counted by the optimizer's calls, so that accumulated
// gradients make one step; else a turn of the innermost loop with four fifths of the launches; else what returns in the sequence
// of launches. Pure.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "record/step_loops.h"

namespace millrace::record {

enum class StepSource : std::uint8_t { kNone, kRanges, kUpdates, kLoop, kPeriod, kWindow };

/// The middle one of the distances between neighbours, of which there is one at least.
template <class T>
T median_distance(const std::vector<T>& places) {
    std::vector<T> distances;
    for (std::size_t i = 1; i < places.size(); ++i) distances.push_back(places[i] - places[i - 1]);
    const auto middle = distances.begin() + static_cast<std::ptrdiff_t>(distances.size() / 2);
    std::nth_element(distances.begin(), middle, distances.end());
    return *middle;
}

constexpr bool is_launch(CallKind kind) { return kind == CallKind::kLaunch || kind == CallKind::kGraphLaunch; }

/// A call of the launching threads, in their order.
struct Act {
    std::uint64_t begin = 0;
    std::uint64_t launched = 0;  ///< hash of what it launched; 0: nothing that is counted
    std::uint64_t kind = 0;      ///< the same without sizes, which vary with batches
    std::uint32_t place = 0;     ///< in StepInput::places; 0: not looked at, cut off, or of another thread than the main one
    bool graph = false;
    bool trains = false;  ///< an optimizer makes it, or a thread beside the one with places: autograd's
};

/// A range that the program marked.
struct MarkedRange {
    std::uint64_t begin = 0, end = 0;
    std::string_view name;
};

struct StepInput {
    std::vector<Act> acts;
    std::vector<StepPlace> places;    ///< [0] is none
    std::vector<MarkedRange> ranges;  ///< by begin
};

/// Numbers count the acts that launched. Steps are [starts[i], ends[i]); what lies between them is none.
struct FoundSteps {
    StepSource source = StepSource::kNone;
    double match = 0;                       ///< how well the sequence returns; 1 where it need not
    std::vector<std::size_t> starts, ends;  ///< one more start than ends: the newest step is not over
    std::size_t length = 0;                 ///< launches of a usual step
    std::uint64_t loop = 0;                 ///< whose turns they are (Turn::loop); 0: it is not known
};

FoundSteps find_steps(StepInput input);

constexpr std::size_t kLeastTurns = 3;

/// Numbers of acts that launched: where turns begin, and where what is before each of them (ends[i] before begins[i]) was over.
struct FoundTurns {
    std::vector<std::size_t> begins, ends;
    std::uint64_t loop = 0;  ///< Turn::loop
    bool assumed = false;    ///< the loop is not known: what lies between turns cannot be told from them
};

/// Turns of the loop that a step is, as far as launches have places.
std::optional<FoundTurns> turns_by_updates(const StepInput& input);
std::optional<FoundTurns> turns_by_lines(const StepInput& input);

}  // namespace millrace::record
