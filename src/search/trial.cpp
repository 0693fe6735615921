#include "search/trial.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>

namespace millrace::search {
namespace {

/// What decides before the objectives do: smaller first.
struct Tier {
    double violation = 0;
    int group = 0;     ///< 0 complete, 1 ended or waiting early, 2 without a usable value
    int64_t step = 0;  ///< negative, so that later is smaller
    auto key() const { return std::tie(violation, group, step); }
};

Tier tier_of(const Trial& trial, const Objectives& values) {
    const double violation = trial.violation();
    // How far an infeasible trial came says nothing of its violation.
    if (violation > 0) return {violation, trial.state == TrialState::failed ? 2 : 0, 0};
    if (values.empty()) return {0, 2, 0};
    if (trial.state == TrialState::complete) return {0, 0, 0};
    return {0, 1, -trial.last_step()};
}

Objectives telling_values(const Trial& trial) {
    if (trial.state == TrialState::complete) return all_finite(trial.values) ? trial.values : Objectives{};
    if (trial.state == TrialState::failed) return {};
    return values_at(trial, trial.last_step(), std::nullopt);
}

}  // namespace

bool dominates(const Objectives& a, const Objectives& b) {
    bool is_better = false;
    for (size_t i = 0; i < a.size(); ++i) {
        if (a[i] > b[i]) return false;
        is_better = is_better || a[i] < b[i];
    }
    return is_better;
}

std::vector<size_t> front_ranks(std::span<const Objectives> points) {
    // In lexicographic order no point is dominated by a later one. A front that dominates a point is preceded only by fronts
    // that do, so the first that does not is found by bisection (Zhang et al., "ENS-BS").
    std::vector<size_t> order(points.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return points[a] < points[b]; });
    std::vector<std::vector<size_t>> fronts;
    std::vector<size_t> ranks(points.size());
    for (const size_t point : order) {
        const auto first = std::partition_point(fronts.begin(), fronts.end(), [&](const std::vector<size_t>& front) {
            return std::any_of(front.rbegin(), front.rend(),
                               [&](size_t other) { return dominates(points[other], points[point]); });
        });
        ranks[point] = static_cast<size_t>(first - fronts.begin());
        if (first == fronts.end())
            fronts.push_back({point});
        else
            first->push_back(point);
    }
    return ranks;
}

std::vector<double> crowding_distances(std::span<const Objectives> points, std::span<const size_t> ranks) {
    std::vector<double> out(points.size(), 0);
    std::vector<size_t> order(points.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const size_t objectives = points.empty() ? 0 : points.front().size();
    for (size_t objective = 0; objective < objectives; ++objective) {
        std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
            return ranks[a] != ranks[b] ? ranks[a] < ranks[b] : points[a][objective] < points[b][objective];
        });
        for (size_t begin = 0; begin < order.size();) {
            size_t end = begin;
            while (end < order.size() && ranks[order[end]] == ranks[order[begin]]) ++end;
            const double width = points[order[end - 1]][objective] - points[order[begin]][objective];
            out[order[begin]] = out[order[end - 1]] = std::numeric_limits<double>::infinity();
            for (size_t i = begin + 1; i + 1 < end && width > 0; ++i)
                out[order[i]] += (points[order[i + 1]][objective] - points[order[i - 1]][objective]) / width;
            begin = end;
        }
    }
    return out;
}

std::vector<size_t> pareto_order(std::span<const Objectives> points) {
    std::vector<size_t> order(points.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (!points.empty() && points.front().size() == 1) {  // most studies: a sort is much faster
        std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return points[a][0] < points[b][0]; });
        return order;
    }
    const std::vector<size_t> ranks = front_ranks(points);
    const std::vector<double> distances = crowding_distances(points, ranks);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        return ranks[a] != ranks[b] ? ranks[a] < ranks[b] : distances[a] > distances[b];
    });
    return order;
}

double Trial::violation() const {
    double sum = 0;
    for (const double amount : violations)
        sum += std::isnan(amount) ? std::numeric_limits<double>::infinity() : std::max(amount, 0.0);
    return sum;
}

bool all_finite(const Objectives& values) {
    return !values.empty() && std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

void finish(Trial& trial, Objectives values) {
    trial.state = all_finite(values) ? TrialState::complete : TrialState::failed;
    trial.values = std::move(values);
}

Objectives values_at(const Trial& trial, int64_t step, std::optional<size_t> objective) {
    const auto at = trial.reports.find(step);
    if (at == trial.reports.end()) return {};
    if (!objective) return all_finite(at->second) ? at->second : Objectives{};
    if (*objective >= at->second.size() || !std::isfinite(at->second[*objective])) return {};
    return {at->second[*objective]};
}

std::vector<size_t> best_first(std::span<const Trial> trials) {
    std::vector<Tier> tiers(trials.size());
    std::vector<Objectives> values(trials.size());
    std::vector<size_t> order;
    for (size_t i = 0; i < trials.size(); ++i) {
        // A trial that waits without a report is as unknown as a running one.
        if (trials[i].is_pending() || (trials[i].state == TrialState::paused && trials[i].reports.empty())) continue;
        values[i] = telling_values(trials[i]);
        tiers[i] = tier_of(trials[i], values[i]);
        order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return tiers[a].key() < tiers[b].key(); });
    for (auto begin = order.begin(); begin != order.end();) {
        const auto end = std::find_if(begin, order.end(), [&](size_t i) { return tiers[*begin].key() < tiers[i].key(); });
        const size_t objectives = values[*begin].size();
        const bool is_comparable =
            objectives > 0 && std::all_of(begin, end, [&](size_t i) { return values[i].size() == objectives; });
        if (is_comparable) {
            std::vector<size_t> tier(begin, end);
            std::vector<Objectives> points;
            points.reserve(tier.size());
            for (const size_t i : tier) points.push_back(values[i]);
            auto at = begin;
            for (const size_t i : pareto_order(points)) *at++ = tier[i];
        }
        begin = end;
    }
    return order;
}

std::vector<Finalist> finalists(std::span<const Trial> trials, size_t count) {
    std::vector<Finalist> found;
    std::map<Configuration, size_t> positions;  // in `found`
    std::set<Configuration> refused;
    for (const Trial& trial : trials) {
        if (trial.violation() > 0 || trial.state == TrialState::failed) refused.insert(trial.configuration);
        if (trial.state != TrialState::complete) continue;
        if (!all_finite(trial.values)) {
            refused.insert(trial.configuration);
            continue;
        }
        const auto [at, is_new] = positions.emplace(trial.configuration, found.size());
        if (is_new) found.push_back({trial.configuration, {}, Objectives(trial.values.size(), 0)});
        Finalist& finalist = found[at->second];
        finalist.numbers.push_back(trial.number);
        const double part = 1.0 / static_cast<double>(finalist.numbers.size());
        for (size_t i = 0; i < finalist.mean.size(); ++i) finalist.mean[i] += (trial.values[i] - finalist.mean[i]) * part;
    }
    std::erase_if(found, [&](const Finalist& f) { return refused.contains(f.configuration); });
    std::vector<Objectives> means;
    means.reserve(found.size());
    for (const Finalist& finalist : found) means.push_back(finalist.mean);
    std::vector<Finalist> out;
    for (const size_t i : pareto_order(means)) {
        if (out.size() == count) break;
        out.push_back(std::move(found[i]));
    }
    return out;
}

int64_t replicates(std::span<const Trial> trials, const Configuration& configuration) {
    return std::count_if(trials.begin(), trials.end(), [&](const Trial& trial) { return trial.configuration == configuration; });
}

}  // namespace millrace::search
