// Turns of loops: which loop a step is, and where its turns begin.

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "record/step_finder.h"

namespace millrace::record {
namespace {

constexpr double kCovers = 0.8;  ///< of the launches, that a loop has in it; and of its turns, for what is said of all
constexpr std::uint64_t kNoLine = ~std::uint64_t{0};

/// [first, last] acts that one line of a loop, or the optimizer it calls, makes in a turn.
struct Visit {
    std::size_t first, last;
};

const Turn* turn_in(const StepPlace& place, std::uint64_t loop) {
    const auto found = std::ranges::find(place.turns, loop, &Turn::loop);
    return found == place.turns.end() ? nullptr : &*found;
}

class Turns {
public:
    explicit Turns(const StepInput& input) : input_(input) {
        // Behind the last launch with a place only some calls have theirs.
        for (std::size_t act = 0; act < input.acts.size(); ++act)
            if (input.acts[act].launched != 0 && input.acts[act].place != 0) looked_ = act + 1;
    }

    std::optional<FoundTurns> by_updates() {
        // The innermost, and one that is known before functions of which that is not said: what runs for long is seen by samples.
        std::map<std::uint64_t, std::pair<bool, std::size_t>> ranks;  // of loops around optimizers: known, depth
        for (const StepPlace& place : input_.places)
            for (std::size_t i = 0; place.outside != StepPlace::kNoUpdate && i < place.outside; ++i) {
                auto& rank = ranks[place.turns[i].loop];
                rank = std::max(rank, {!place.turns[i].assumed, i + 1});
            }
        std::optional<FoundTurns> best;
        std::pair<bool, std::size_t> best_rank;
        for (const auto& [loop, rank] : ranks) {
            if (best && rank < best_rank) continue;
            auto found = updates_of(loop);
            if (!found || (best && rank == best_rank && best->begins.size() >= found->begins.size())) continue;
            best = std::move(found);
            best_rank = rank;
        }
        return best;
    }

    std::optional<FoundTurns> by_lines() {
        // Those that train: graphs, else what autograd's threads launch, which an evaluation has none of, else all. A launch
        // without a place comes while the main thread waits between two that have one.
        std::map<std::uint64_t, std::pair<std::size_t, std::size_t>> covered;  // launches, depth
        std::size_t all = 0;
        const auto is_graph = [](const Act& act) { return act.graph; };
        const auto end = input_.acts.begin() + static_cast<std::ptrdiff_t>(looked_);
        const bool graphs = std::any_of(input_.acts.begin(), end, is_graph);
        const bool backward =
            std::any_of(input_.acts.begin(), end, [](const Act& act) { return act.launched != 0 && act.place == 0; });
        for_each_launch([&](std::size_t act, const StepPlace* before, const StepPlace* place) {
            if (graphs ? !input_.acts[act].graph : backward && input_.acts[act].place != 0) return;
            ++all;
            for (std::size_t i = 0; i < before->turns.size(); ++i)
                if (!before->turns[i].assumed && turn_in(*place, before->turns[i].loop) != nullptr) {
                    auto& [launches, depth] = covered[before->turns[i].loop];
                    ++launches;
                    depth = std::max(depth, i);
                }
        });
        std::uint64_t loop = 0;
        std::size_t deepest = 0;
        for (const auto& [each, entry] : covered)
            if (static_cast<double>(entry.first) >= kCovers * static_cast<double>(all) && entry.second >= deepest)
                loop = each, deepest = entry.second;
        return loop == 0 ? std::nullopt : places_of(loop);
    }

private:
    const StepPlace& place_of_act(std::size_t act) const { return input_.places[input_.acts[act].place]; }
    bool launches(std::size_t act) const { return input_.acts[act].launched != 0; }

    /// `use(act, before, after)`: its place, twice; of those without one the places before and behind it.
    template <class Use>
    void for_each_launch(const Use& use) const {
        const StepPlace* before = nullptr;
        std::vector<std::size_t> waiting;
        for (std::size_t act = 0; act < looked_; ++act) {
            if (input_.acts[act].place == 0) {
                if (launches(act)) waiting.push_back(act);
                continue;
            }
            const StepPlace* const here = &place_of_act(act);
            for (const std::size_t each : waiting)
                if (before != nullptr) use(each, before, here);
            waiting.clear();
            if (launches(act)) use(act, here, here);
            before = here;
        }
    }

    /// Runs of acts at places of a kind; what has no place interrupts none.
    template <class Is>
    std::vector<Visit> visits_of(const Is& is) const {
        std::vector<Visit> visits;
        bool open = false;
        for (std::size_t act = 0; act < looked_; ++act) {
            if (input_.acts[act].place == 0) continue;
            const bool here = is(input_.acts[act].place);
            if (here && !open) visits.push_back({act, act});
            if (here) visits.back().last = act;
            open = here;
        }
        return visits;
    }

    std::optional<FoundTurns> updates_of(std::uint64_t loop) const {
        const auto line_of = [loop](const StepPlace& place) {
            if (place.outside == StepPlace::kNoUpdate) return kNoLine;
            const auto end = place.turns.begin() + static_cast<std::ptrdiff_t>(place.outside);
            const auto turn = std::find_if(place.turns.begin(), end, [loop](const Turn& each) { return each.loop == loop; });
            return turn == end ? kNoLine : std::uint64_t{turn->line};
        };
        std::set<std::uint64_t> lines;
        for (const StepPlace& place : input_.places) lines.insert(line_of(place));
        lines.erase(kNoLine);
        std::vector<Visit> most;
        for (const std::uint64_t line : lines)
            if (auto visits = visits_of([&](std::uint32_t place) { return line_of(input_.places[place]) == line; });
                visits.size() > most.size())
                most = std::move(visits);
        if (most.size() < kLeastTurns || !holds_turns(loop, most)) return std::nullopt;
        return cut(loop, most, false);
    }

    /// Whether the loop has what is launched from one visit to the next: one over several optimizers has not.
    bool holds_turns(std::uint64_t loop, const std::vector<Visit>& visits) const {
        std::size_t held = 0;
        for (std::size_t i = 1; i < visits.size(); ++i) {
            std::size_t all = 0, inside = 0;
            for (std::size_t act = visits[i - 1].last + 1; act < visits[i].first; ++act) {
                if (!launches(act) || input_.acts[act].place == 0) continue;
                ++all;
                inside += turn_in(place_of_act(act), loop) != nullptr ? 1 : 0;
            }
            held += all > 0 && 2 * inside > all ? 1 : 0;
        }
        return static_cast<double>(held) >= kCovers * static_cast<double>(visits.size() - 1);
    }

    /// By places that are visited once in most turns: those of the loop itself, and of no loop in it.
    std::optional<FoundTurns> places_of(std::uint64_t loop) const {
        std::map<std::uint32_t, std::vector<Visit>> visits;
        for (std::uint32_t place = 1; place < input_.places.size(); ++place) {
            const std::vector<Turn>& turns = input_.places[place].turns;
            const auto inner = std::ranges::find_if(turns.rbegin(), turns.rend(), [](const Turn& turn) { return !turn.assumed; });
            if (inner != turns.rend() && inner->loop == loop)
                visits[place] = visits_of([place](std::uint32_t each) { return each == place; });
        }
        std::size_t turns = 0, most = 0;
        const auto as_often = [](std::size_t a, std::size_t b) { return a <= b + 1 && b <= a + 1; };
        for (const auto& [place, each] : visits) {
            const auto same = static_cast<std::size_t>(
                std::ranges::count_if(visits, [&](const auto& other) { return as_often(other.second.size(), each.size()); }));
            if (same > most || (same == most && each.size() > turns)) most = same, turns = each.size();
        }
        // Where a turn is one graph, or one call of compiled code, several turns look like one visit.
        std::size_t launched = 0, most_launches = 0;
        std::uint32_t first = 0, heaviest = 0;
        for (const auto& [place, each] : visits) {
            std::size_t own = 0;
            for (const Visit& visit : each) own += launched_in(visit).size();
            launched += own;
            if (own > most_launches) most_launches = own, heaviest = place;
            const auto line = [&](std::uint32_t one) { return turn_in(input_.places[one], loop)->line; };
            if (as_often(each.size(), turns) && (first == 0 || line(place) < line(first))) first = place;
        }
        if (heaviest != 0 && 2 * most_launches > launched) {
            const std::vector<Visit>& own = visits[heaviest];
            const bool whole = input_.places[heaviest].compiled || launches_graphs(own);
            const std::vector<Visit> parts = whole ? repetitions_in(own) : own;
            if (parts.size() >= 2 * own.size()) return cut(loop, parts, true);
        }
        if (turns < kLeastTurns) return std::nullopt;
        return cut(loop, visits[first], true);
    }

    /// Acts of a visit that launched.
    std::vector<std::size_t> launched_in(const Visit& visit) const {
        std::vector<std::size_t> acts;
        for (std::size_t act = visit.first; act <= visit.last; ++act)
            if (launches(act) && input_.acts[act].place != 0) acts.push_back(act);
        return acts;
    }

    bool launches_graphs(const std::vector<Visit>& visits) const {
        const std::vector<std::size_t> acts = launched_in(visits.front());
        return !acts.empty() && input_.acts[acts.front()].graph;
    }

    /// Visits of one place, each cut where its launches come again.
    std::vector<Visit> repetitions_in(const std::vector<Visit>& visits) const {
        std::vector<std::size_t> longest;
        for (const Visit& visit : visits)
            if (auto acts = launched_in(visit); acts.size() > longest.size()) longest = std::move(acts);
        const std::size_t length = repeats_after(longest);
        std::vector<Visit> parts;
        for (const Visit& visit : visits) {
            const std::vector<std::size_t> acts = launched_in(visit);
            for (std::size_t at = 0; at + length <= acts.size(); at += length) parts.push_back({acts[at], acts[at + length - 1]});
        }
        return parts;
    }

    /// After how many the acts launch the same again, to the end; all of them where they do not.
    std::size_t repeats_after(const std::vector<std::size_t>& acts) const {
        const auto launched = [&](std::size_t at) { return input_.acts[acts[at]].launched; };
        for (std::size_t length = 1; 2 * length <= acts.size(); ++length) {
            std::size_t at = length;
            while (at < acts.size() && launched(at) == launched(at - length)) ++at;
            if (at == acts.size()) return length;
        }
        return acts.size();
    }

    /// Turns begin with visits, or behind them; what is outside of the loop, or at lines that are rarely visited, be it of loops
    /// and functions around, belongs to none where it stands before the next turn.
    FoundTurns cut(std::uint64_t loop, const std::vector<Visit>& visits, bool with_visit) const {
        using Line = std::pair<std::uint64_t, std::uint32_t>;
        std::set<std::uint64_t> around;
        for (const Turn& turn : place_of_act(visits.front().first).turns) {
            around.insert(turn.loop);
            if (turn.loop == loop) break;
        }
        std::map<Line, std::size_t> turns_of_line;
        for (std::size_t i = 1; i < visits.size(); ++i) {
            std::set<Line> lines;
            for (std::size_t act = visits[i - 1].first; act < visits[i].first; ++act)
                for (const Turn& turn : place_of_act(act).turns)
                    if (around.contains(turn.loop)) lines.emplace(turn.loop, turn.line);
            for (const Line& line : lines) ++turns_of_line[line];
        }
        FoundTurns found;
        found.loop = loop;
        found.assumed = turn_in(place_of_act(visits.front().first), loop)->assumed;
        const auto is_outside = [&](std::size_t act) {
            if (input_.acts[act].place == 0 || !launches(act)) return false;
            const StepPlace& place = place_of_act(act);
            if (turn_in(place, loop) == nullptr && !found.assumed) return true;
            return std::ranges::any_of(place.turns, [&](const Turn& turn) {
                return around.contains(turn.loop) && 2 * turns_of_line[{turn.loop, turn.line}] < visits.size() - 1;
            });
        };
        const auto next_launch = [&](std::size_t act) {
            while (act < input_.acts.size() && !launches(act)) ++act;
            return act;
        };
        for (std::size_t i = 0; i < visits.size(); ++i) {
            std::size_t begin = next_launch(with_visit ? visits[i].first : visits[i].last + 1), end = begin;
            const std::size_t from = with_visit ? (i > 0 ? visits[i - 1].last + 1 : begin) : begin;
            const std::size_t until = with_visit ? begin : i + 1 < visits.size() ? visits[i + 1].first : begin;
            bool outside = false;
            for (std::size_t act = from; act < until; ++act)
                if (is_outside(act)) {
                    if (!outside) end = act;
                    outside = true;
                    if (!with_visit) begin = next_launch(act + 1);
                }
            if (begin >= looked_) break;
            found.ends.push_back(outside ? end : begin);
            found.begins.push_back(begin);
        }
        return found;
    }

    const StepInput& input_;
    std::size_t looked_ = 0;
};

}  // namespace

std::optional<FoundTurns> turns_by_updates(const StepInput& input) { return Turns(input).by_updates(); }
std::optional<FoundTurns> turns_by_lines(const StepInput& input) { return Turns(input).by_lines(); }

}  // namespace millrace::record
