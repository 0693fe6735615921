#include "search/scheduler.h"

#include <algorithm>
#include <memory>

namespace millrace::search {
namespace {

class MedianScheduler final : public Scheduler {
public:
    explicit MedianScheduler(const SchedulerOptions& options) : Scheduler(options.rungs, options.objective), options_(options) {}

    [[nodiscard]] int64_t next_step(std::span<const Trial> trials, size_t index) const override {
        return std::min(last_step(trials, index) + options_.interval, rungs_.last);
    }

    [[nodiscard]] std::optional<Assignment> next(std::span<const Trial> trials, bool may_start) const override {
        if (!may_start) return std::nullopt;
        return Assignment{std::nullopt, next_step(trials, trials.size())};
    }

private:
    [[nodiscard]] Decision judge(std::span<const Trial> trials, size_t index) const override {
        const int64_t step = trials[index].last_step();
        if (step < options_.warmup) return {};
        std::vector<Objectives> points = {values_at(trials[index], step, objective_)};
        int64_t others = 0, infeasible = 0;
        const bool is_feasible = trials[index].violation() <= 0;
        for (size_t i = 0; i < trials.size(); ++i) {
            Objectives values = values_at(trials[i], step, objective_);
            if (i == index || values.empty()) continue;
            ++others;
            if (trials[i].violation() > 0)
                ++infeasible;
            else
                points.push_back(std::move(values));
        }
        if (others < options_.least_known) return {};
        int64_t better = others - infeasible;
        if (is_feasible) {
            const std::vector<size_t> ranks = front_ranks(points);
            better = std::count_if(ranks.begin(), ranks.end(), [&](size_t rank) { return rank < ranks.front(); });
        }
        return {2 * better > others ? Action::prune : Action::proceed, -1, {}};
    }

    SchedulerOptions options_;
};

}  // namespace

base::Result<std::unique_ptr<Scheduler>> make_median_scheduler(const SchedulerOptions& options) {
    return std::unique_ptr<Scheduler>{std::make_unique<MedianScheduler>(options)};
}

}  // namespace millrace::search
