#include "search/scheduler.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace millrace::search {
namespace {

constexpr double kLargestBracket = 1e6;

int64_t step_after(const std::vector<int64_t>& steps, int64_t step) {
    const auto at = std::upper_bound(steps.begin(), steps.end(), step);
    return at == steps.end() ? steps.back() : *at;
}

/// Pausing at rungs; who is promoted is left open.
class RungScheduler : public Scheduler {
public:
    using Scheduler::Scheduler;

    [[nodiscard]] int64_t next_step(std::span<const Trial> trials, size_t index) const override {
        return step_after(steps_of(index), last_step(trials, index));
    }

    [[nodiscard]] std::optional<Assignment> next(std::span<const Trial> trials, bool may_start) const override {
        const std::vector<size_t> ready = promotable(trials, may_start, trials.size());
        if (!ready.empty()) return Assignment{trials[ready.front()].number, next_step(trials, ready.front())};
        if (!may_start) return std::nullopt;
        return Assignment{std::nullopt, steps_of(trials.size()).front()};
    }

protected:
    /// The rungs of the trial at a position.
    [[nodiscard]] virtual const std::vector<int64_t>& steps_of(size_t index) const = 0;
    /// Positions of trials that wait at a rung and may go on, the most advanced first. The trial at `judged` is running, but
    /// counts as one that waits.
    [[nodiscard]] virtual std::vector<size_t> promotable(std::span<const Trial> trials, bool may_start, size_t judged) const = 0;

    [[nodiscard]] static bool waits_at(std::span<const Trial> trials, size_t i, int64_t step, size_t judged) {
        const bool waits = trials[i].state == TrialState::paused || i == judged;
        return waits && trials[i].last_step() == step && trials[i].violation() <= 0;
    }

private:
    [[nodiscard]] Decision judge(std::span<const Trial> trials, size_t index) const override {
        const std::vector<int64_t>& steps = steps_of(index);
        if (std::find(steps.begin(), steps.end(), trials[index].last_step()) == steps.end()) return {};
        // A trial that would be promoted at once need not leave its lane.
        const std::vector<size_t> ready = promotable(trials, true, index);
        const bool goes_on = std::find(ready.begin(), ready.end(), index) != ready.end();
        return {goes_on ? Action::proceed : Action::pause, -1, {}};
    }
};

class Asha final : public RungScheduler {
public:
    Asha(Rungs rungs, std::optional<size_t> objective) : RungScheduler(rungs, objective), steps_(rungs.steps()) {}

private:
    [[nodiscard]] const std::vector<int64_t>& steps_of(size_t /*index*/) const override { return steps_; }

    [[nodiscard]] std::vector<size_t> promotable(std::span<const Trial> trials, bool /*may_start*/,
                                                 size_t judged) const override {
        std::vector<size_t> all(trials.size()), out;
        std::iota(all.begin(), all.end(), size_t{0});
        for (size_t rung = steps_.size() - 1; rung-- > 0;) {
            std::vector<size_t> order = order_at(trials, all, steps_[rung]);
            order.resize(order.size() / static_cast<size_t>(rungs_.factor));
            for (const size_t i : order)
                if (waits_at(trials, i, steps_[rung], judged)) out.push_back(i);
        }
        return out;
    }

    std::vector<int64_t> steps_;
};

class Hyperband final : public RungScheduler {
public:
    Hyperband(Rungs rungs, std::optional<size_t> objective)
        : RungScheduler(rungs, objective), brackets_(hyperband_brackets(rungs)) {
        for (const Bracket& bracket : brackets_) {
            turn_ += bracket.rungs.front().trials;
            std::vector<int64_t>& steps = steps_.emplace_back();
            for (const Bracket::Rung& rung : bracket.rungs) steps.push_back(rung.step);
        }
    }

private:
    /// `turn` counts how often all brackets were filled.
    struct Place {
        int64_t turn;
        size_t bracket;
        auto operator<=>(const Place&) const = default;
    };

    [[nodiscard]] Place place_of(size_t index) const {
        int64_t rest = static_cast<int64_t>(index) % turn_;
        size_t bracket = 0;
        while (rest >= brackets_[bracket].rungs.front().trials) rest -= brackets_[bracket++].rungs.front().trials;
        return {static_cast<int64_t>(index) / turn_, bracket};
    }

    [[nodiscard]] const std::vector<int64_t>& steps_of(size_t index) const override { return steps_[place_of(index).bracket]; }

    [[nodiscard]] std::vector<size_t> promotable(std::span<const Trial> trials, bool may_start, size_t judged) const override {
        std::map<Place, std::vector<size_t>> members;
        for (size_t i = 0; i < trials.size(); ++i) members[place_of(i)].push_back(i);
        std::vector<size_t> out;
        for (auto& [place, indices] : members) {
            const std::vector<Bracket::Rung>& rungs = brackets_[place.bracket].rungs;
            const bool is_full = static_cast<int64_t>(indices.size()) == rungs.front().trials;
            if (!is_full && may_start) continue;
            for (size_t rung = 0; rung + 1 < rungs.size(); ++rung) {
                const bool is_settled = std::all_of(indices.begin(), indices.end(), [&](size_t i) {
                    const bool has_ended = trials[i].state == TrialState::failed || trials[i].state == TrialState::pruned;
                    return has_ended || trials[i].reports.contains(rungs[rung].step);
                });
                if (!is_settled) break;
                const size_t places = is_full ? static_cast<size_t>(rungs[rung + 1].trials)
                                              : std::max<size_t>(indices.size() / static_cast<size_t>(rungs_.factor), 1);
                indices = chosen(trials, indices, rungs[rung].step, places);
                for (const size_t i : indices)
                    if (waits_at(trials, i, rungs[rung].step, judged)) out.push_back(i);
            }
        }
        std::stable_sort(out.begin(), out.end(),
                         [&](size_t a, size_t b) { return trials[a].last_step() > trials[b].last_step(); });
        return out;
    }

    /// The best at `step` that can go on.
    [[nodiscard]] std::vector<size_t> chosen(std::span<const Trial> trials, const std::vector<size_t>& among, int64_t step,
                                             size_t places) const {
        std::vector<size_t> order = order_at(trials, among, step);
        std::erase_if(order, [&](size_t i) {
            return trials[i].violation() > 0 || trials[i].state == TrialState::pruned ||
                   values_at(trials[i], step, objective_).empty();
        });
        order.resize(std::min(order.size(), places));
        return order;
    }

    std::vector<Bracket> brackets_;
    std::vector<std::vector<int64_t>> steps_;  // of each bracket
    int64_t turn_ = 0;                         // trials that fill all brackets once
};

/// Trials of the bracket that has `halvings` rungs below its last, of `brackets`.
double bracket_trials(size_t halvings, size_t brackets, int64_t factor) {
    const double share = static_cast<double>(brackets) / static_cast<double>(halvings + 1);
    return std::ceil(share * std::pow(static_cast<double>(factor), static_cast<double>(halvings)) - 1e-9);
}

}  // namespace

std::vector<Bracket> hyperband_brackets(const Rungs& rungs) {
    const std::vector<int64_t> steps = rungs.steps();
    std::vector<Bracket> out;
    for (size_t halvings = steps.size(); halvings-- > 0;) {
        auto trials = static_cast<int64_t>(bracket_trials(halvings, steps.size(), rungs.factor));
        Bracket& bracket = out.emplace_back();
        for (size_t rung = steps.size() - 1 - halvings; rung < steps.size(); ++rung) {
            bracket.rungs.push_back({trials, steps[rung]});
            trials = std::max<int64_t>(trials / rungs.factor, 1);
        }
    }
    return out;
}

base::Result<std::unique_ptr<Scheduler>> make_asha(const SchedulerOptions& options) {
    return std::unique_ptr<Scheduler>{std::make_unique<Asha>(options.rungs, options.objective)};
}

base::Result<std::unique_ptr<Scheduler>> make_hyperband(const SchedulerOptions& options) {
    const size_t brackets = options.rungs.steps().size();
    const double largest = bracket_trials(brackets - 1, brackets, options.rungs.factor);
    if (largest > kLargestBracket)
        return base::Error{
            fmt::format("rungs from {} to {} by {} make a bracket of {:.0f} trials, more than {:.0f}; raise rungs.first",
                        options.rungs.first, options.rungs.last, options.rungs.factor, largest, kLargestBracket)};
    return std::unique_ptr<Scheduler>{std::make_unique<Hyperband>(options.rungs, options.objective)};
}

}  // namespace millrace::search
