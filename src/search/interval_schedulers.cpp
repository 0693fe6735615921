#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "search/scheduler.h"

namespace millrace::search {
namespace {

constexpr double kDrawnAnew = 0.25;
constexpr double kMove = 0.1;    // of the range
constexpr double kFactor = 1.2;  // of values searched in the logarithm

/// Decides every so many steps.
class IntervalScheduler : public Scheduler {
public:
    explicit IntervalScheduler(const SchedulerOptions& options)
        : Scheduler(options.rungs, options.objective), options_(options) {}

    [[nodiscard]] int64_t next_step(std::span<const Trial> trials, size_t index) const override {
        return std::min(last_step(trials, index) + options_.interval, rungs_.last);
    }

    [[nodiscard]] std::optional<Assignment> next(std::span<const Trial> trials, bool may_start) const override {
        if (!may_start) return std::nullopt;
        return Assignment{std::nullopt, next_step(trials, trials.size())};
    }

protected:
    SchedulerOptions options_;
};

class PopulationScheduler final : public IntervalScheduler {
public:
    PopulationScheduler(Space space, const SchedulerOptions& options) : IntervalScheduler(options), space_(std::move(space)) {}

    [[nodiscard]] std::optional<Assignment> next(std::span<const Trial> trials, bool may_start) const override {
        const auto running = std::count_if(trials.begin(), trials.end(), [](const Trial& trial) { return trial.is_pending(); });
        return IntervalScheduler::next(trials, may_start && running < options_.population);
    }

private:
    [[nodiscard]] Decision judge(std::span<const Trial> trials, size_t index) const override {
        const int64_t step = trials[index].last_step();
        std::vector<size_t> all(trials.size());
        std::iota(all.begin(), all.end(), size_t{0});
        const std::vector<size_t> order = order_at(trials, all, step);
        const size_t quarter = order.size() / 4;
        const auto own = static_cast<size_t>(std::find(order.begin(), order.end(), index) - order.begin());
        if (own < order.size() - quarter) return {};
        std::vector<size_t> sources(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(quarter));
        std::erase_if(sources, [&](size_t i) {
            const bool has_weights = trials[i].last_step() == step && trials[i].state != TrialState::failed;
            return !has_weights || trials[i].violation() > 0 || values_at(trials[i], step, objective_).empty();
        });
        if (sources.empty()) return {};
        Stream stream(options_.seed, static_cast<int64_t>(index), Purpose::perturbation, step);
        const Trial& source = trials[sources[stream.below(sources.size())]];
        return {Action::copy, source.number, perturbed(space_, source.configuration, stream)};
    }

    Space space_;
};

class MedianScheduler final : public IntervalScheduler {
    using IntervalScheduler::IntervalScheduler;

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
};

}  // namespace

Configuration perturbed(const Space& space, const Configuration& configuration, Stream& stream) {
    Configuration out;
    for (size_t p = 0; p < space.size(); ++p) {
        const Parameter& parameter = space.parameters[p];
        const double chance = stream.uniform(), fresh = stream.uniform(), sign = stream.uniform() < 0.5 ? -1 : 1;
        const double value = configuration[p];
        if (chance < kDrawnAnew) {
            out.push_back(parameter.from_unit(fresh));
            continue;
        }
        if (parameter.kind == ParameterKind::choice || parameter.is_alternative(value)) {
            out.push_back(value);
            continue;
        }
        double move = kMove;
        if (parameter.kind == ParameterKind::log) move = std::log(kFactor) / (std::log(parameter.high) - std::log(parameter.low));
        if (parameter.kind == ParameterKind::integer) move = std::max(kMove, 1 / static_cast<double>(parameter.cells()));
        out.push_back(parameter.range_from_unit(parameter.range_to_unit(value) + sign * move));
    }
    return out;
}

base::Result<std::unique_ptr<Scheduler>> make_population_scheduler(const Space& space, const SchedulerOptions& options) {
    return std::unique_ptr<Scheduler>{std::make_unique<PopulationScheduler>(space, options)};
}

base::Result<std::unique_ptr<Scheduler>> make_median_scheduler(const SchedulerOptions& options) {
    return std::unique_ptr<Scheduler>{std::make_unique<MedianScheduler>(options)};
}

}  // namespace millrace::search
