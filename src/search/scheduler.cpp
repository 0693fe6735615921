#include "search/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/nearest.h"

namespace millrace::search {
namespace {

class FullLength final : public Scheduler {
public:
    using Scheduler::Scheduler;
    [[nodiscard]] int64_t next_step(std::span<const Trial> /*trials*/, size_t /*index*/) const override { return rungs_.last; }
    [[nodiscard]] std::optional<Assignment> next(std::span<const Trial> /*trials*/, bool may_start) const override {
        if (!may_start) return std::nullopt;
        return Assignment{std::nullopt, rungs_.last};
    }

private:
    [[nodiscard]] Decision judge(std::span<const Trial> /*trials*/, size_t /*index*/) const override { return {}; }
};

base::Status check_options(const SchedulerOptions& options) {
    const Rungs& rungs = options.rungs;
    if (rungs.first < 1 || rungs.factor < 2 || rungs.last < rungs.first)
        return base::Error{
            fmt::format("rungs need first >= 1, factor >= 2 and last >= first, not first = {}, factor = {}, last = {}",
                        rungs.first, rungs.factor, rungs.last)};
    if (options.interval < 1)
        return base::Error{fmt::format("the interval between decisions must be at least 1 step, not {}", options.interval)};
    if (options.name == "median" && (options.warmup < 0 || options.least_known < 1))
        return base::Error{fmt::format("median needs a warm-up of at least 0 steps and at least 1 other trial, not {} and {}",
                                       options.warmup, options.least_known)};
    if (options.name == "pbt" && options.population < 4)
        return base::Error{fmt::format("pbt needs a population of at least 4 trials, not {}: its worst quarter copies its best",
                                       options.population)};
    return base::ok();
}

}  // namespace

std::vector<int64_t> Rungs::steps() const {
    std::vector<int64_t> out;
    for (int64_t step = first; step < last; step *= factor) {
        out.push_back(step);
        if (step > std::numeric_limits<int64_t>::max() / factor) break;
    }
    out.push_back(last);
    return out;
}

int64_t Rungs::least_trials() const {
    int64_t trials = 1;
    for (size_t halvings = steps().size() - 1; halvings > 0; --halvings) trials *= factor;
    return trials;
}

Decision Scheduler::decide(std::span<const Trial> trials, size_t index) const {
    const Trial& trial = trials[index];
    MILLRACE_ASSERT(!trial.reports.empty(), "a decision without a report");
    if (!all_finite(trial.reports.rbegin()->second)) return {Action::fail, -1, {}};
    if (trial.last_step() >= rungs_.last) return {Action::complete, -1, {}};
    return judge(trials, index);
}

std::vector<size_t> Scheduler::order_at(std::span<const Trial> trials, std::span<const size_t> among, int64_t step) const {
    struct Entry {
        size_t index;
        double violation;
    };
    std::vector<Entry> feasible, others;
    std::vector<Objectives> points;
    for (const size_t i : among) {
        if (!trials[i].reports.contains(step)) continue;
        Objectives values = values_at(trials[i], step, objective_);
        const bool is_known = !values.empty() && trials[i].state != TrialState::failed;
        const double violation = is_known ? trials[i].violation() : std::numeric_limits<double>::infinity();
        (violation > 0 ? others : feasible).push_back({i, violation});
        if (violation <= 0) points.push_back(std::move(values));
    }
    std::vector<size_t> out;
    for (const size_t at : pareto_order(points)) out.push_back(feasible[at].index);
    std::stable_sort(others.begin(), others.end(), [](const Entry& a, const Entry& b) { return a.violation < b.violation; });
    for (const Entry& entry : others) out.push_back(entry.index);
    return out;
}

base::Result<std::unique_ptr<Scheduler>> make_scheduler(const Space& space, const SchedulerOptions& options) {
    MILLRACE_TRY(check_options(options));
    if (options.name == "none") return std::unique_ptr<Scheduler>{std::make_unique<FullLength>(options.rungs, options.objective)};
    if (options.name == "asha") return make_asha(options);
    if (options.name == "hyperband") return make_hyperband(options);
    if (options.name == "median") return make_median_scheduler(options);
    if (options.name == "pbt") return make_population_scheduler(space, options);
    const std::vector<std::string> names = {"none", "asha", "hyperband", "median", "pbt"};
    const std::string close = base::nearest_name(options.name, names);
    return base::Error{fmt::format(
        "there is no scheduler {}; {}", base::quoted_text(options.name.substr(0, 80)),
        close.empty() ? fmt::format("take one of {}", fmt::join(names, ", ")) : fmt::format("did you mean {}?", close))};
}

}  // namespace millrace::search
