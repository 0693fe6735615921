#include "diagnose/compare/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace millrace::diagnose {
namespace {

/// Twice the midranks: whole numbers.
std::vector<std::size_t> doubled_ranks(std::span<const double> before, std::span<const double> after) {
    std::vector<double> values(before.begin(), before.end());
    values.insert(values.end(), after.begin(), after.end());
    std::vector<std::size_t> doubled;
    for (const double rank : midranks(values)) doubled.push_back(static_cast<std::size_t>(std::lround(2 * rank)));
    return doubled;
}

/// All ways at once: how many choices of `count` ranks have each sum.
double exact_p(const std::vector<std::size_t>& ranks, std::size_t count, double distance) {
    const std::size_t total = std::accumulate(ranks.begin(), ranks.end(), std::size_t{0});
    std::vector<std::vector<double>> ways(count + 1, std::vector<double>(total + 1, 0));
    ways[0][0] = 1;
    for (const std::size_t rank : ranks)
        for (std::size_t chosen = count; chosen > 0; --chosen)
            for (std::size_t sum = total; sum >= rank; --sum) ways[chosen][sum] += ways[chosen - 1][sum - rank];
    const double expected = static_cast<double>(total) * static_cast<double>(count) / static_cast<double>(ranks.size());
    double all = 0, as_far = 0;
    for (std::size_t sum = 0; sum <= total; ++sum) {
        all += ways[count][sum];
        if (std::abs(static_cast<double>(sum) - expected) >= distance - 1e-6) as_far += ways[count][sum];
    }
    return as_far / all;
}

double shuffled_p(std::vector<std::size_t> ranks, std::size_t count, double expected, double distance,
                  const PermutationSettings& settings) {
    std::mt19937_64 random(settings.seed);
    std::uint64_t as_far = 0;
    for (std::uint64_t at = 0; at < settings.shuffles; ++at) {
        std::size_t sum = 0;
        for (std::size_t i = 0; i < count; ++i) {
            std::swap(ranks[i], ranks[i + random() % (ranks.size() - i)]);
            sum += ranks[i];
        }
        if (std::abs(static_cast<double>(sum) - expected) >= distance - 1e-6) ++as_far;
    }
    // The values as they are count as one shuffle, so that p is never 0.
    return static_cast<double>(as_far + 1) / static_cast<double>(settings.shuffles + 1);
}

/// The continued fraction of the incomplete beta function, by Lentz's method; `x` below (a + 1) / (a + b + 2).
double beta_fraction(double x, double a, double b) {
    constexpr double kTiny = 1e-300, kClose = 1e-14;
    constexpr int kMostTerms = 10'000;
    double c = 1, d = 1 - (a + b) * x / (a + 1);
    d = 1 / (std::abs(d) < kTiny ? kTiny : d);
    double fraction = d;
    for (int m = 1; m < kMostTerms; ++m) {
        for (const bool even : {true, false}) {
            const double term = even ? m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
                                     : -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
            d = 1 + term * d;
            c = 1 + term / c;
            d = 1 / (std::abs(d) < kTiny ? kTiny : d);
            if (std::abs(c) < kTiny) c = kTiny;
            fraction *= c * d;
        }
        if (std::abs(c * d - 1) < kClose) break;
    }
    return fraction;
}

/// Regularised: 0 at x = 0, 1 at x = 1.
double incomplete_beta(double x, double a, double b) {
    if (x <= 0) return 0;
    if (x >= 1) return 1;
    const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
    if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(x, a, b) / a;
    return 1 - front * beta_fraction(1 - x, b, a) / b;
}

}  // namespace

double weighted_median(std::vector<std::pair<double, double>> values) {
    std::ranges::sort(values);
    double all = 0, passed = 0;
    for (const auto& [value, weight] : values) all += weight;
    for (const auto& [value, weight] : values)
        if ((passed += weight) >= all / 2) return value;
    return 0;
}

std::vector<double> midranks(std::span<const double> values) {
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
    std::vector<double> ranks(values.size());
    for (std::size_t begin = 0; begin < order.size();) {
        std::size_t end = begin + 1;
        while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
        for (std::size_t at = begin; at < end; ++at) ranks[order[at]] = static_cast<double>(begin + end + 1) / 2;
        begin = end;
    }
    return ranks;
}

PermutationResult permutation_test(std::span<const double> before, std::span<const double> after,
                                   const PermutationSettings& settings) {
    if (before.empty() || after.empty()) return {};
    const std::vector<std::size_t> ranks = doubled_ranks(before, after);
    const auto total = static_cast<double>(std::accumulate(ranks.begin(), ranks.end(), std::size_t{0}));
    const auto seen = static_cast<double>(
        std::accumulate(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(before.size()), std::size_t{0}));
    const double expected = total * static_cast<double>(before.size()) / static_cast<double>(ranks.size());
    const double distance = std::abs(seen - expected);
    if (ranks.size() <= settings.most_exact) return {exact_p(ranks, before.size(), distance), true};
    return {shuffled_p(ranks, before.size(), expected, distance, settings), false};
}

double smallest_p(std::size_t before, std::size_t after) {
    if (before == 0 || after == 0) return 1;
    double ways = 1;
    for (std::size_t at = 1; at <= before; ++at) ways *= static_cast<double>(after + at) / static_cast<double>(at);
    return std::min(1.0, 2 / ways);
}

double student_p(double t, double freedom) {
    if (!std::isfinite(t)) return std::isnan(t) ? 1 : 0;
    return std::clamp(incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5), 0.0, 1.0);
}

double student_t(double p, double freedom) {
    double low = 0, high = 1e3;
    for (int halvings = 0; halvings < 60; ++halvings) {
        const double middle = (low + high) / 2;
        (student_p(middle, freedom) > p ? low : high) = middle;
    }
    return high;
}

}  // namespace millrace::diagnose
