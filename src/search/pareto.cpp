#include "search/pareto.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace millrace::search {

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

}  // namespace millrace::search
