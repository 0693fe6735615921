#include "diagnose/compare/statistics.h"

#include <cmath>
#include <numeric>

namespace millrace::diagnose {
namespace {

constexpr std::size_t kMostExact = 60;  ///< values of both sides together up to which every permutation counts
constexpr double kMostLikeness = 0.9;
constexpr double kLeastFreedom = 6;  ///< of a side's spread: that of seven blocks, the fewest that alpha allows

Speeds logarithms_of(const Speeds& speeds) {
    Speeds logs;
    for (const double speed : speeds) logs.push_back(std::log(std::max(speed, 1e-300)));
    return logs;
}

double mean_of(const Speeds& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double squares_around(const Speeds& values, double mean) {
    double sum = 0;
    for (const double value : values) sum += (value - mean) * (value - mean);
    return sum;
}

/// Twice the midranks: whole numbers.
std::vector<std::size_t> doubled_ranks(std::span<const double> before, std::span<const double> after) {
    std::vector<double> values(before.begin(), before.end());
    values.insert(values.end(), after.begin(), after.end());
    std::vector<std::size_t> doubled;
    for (const double rank : midranks(values)) doubled.push_back(static_cast<std::size_t>(std::lround(2 * rank)));
    return doubled;
}

/// All ways at once: how many choices of `count` ranks have each sum.
double exact_p(const std::vector<std::size_t>& ranks, std::size_t count, double expected, double distance) {
    const std::size_t total = std::accumulate(ranks.begin(), ranks.end(), std::size_t{0});
    std::vector<std::vector<double>> ways(count + 1, std::vector<double>(total + 1, 0));
    ways[0][0] = 1;
    for (const std::size_t rank : ranks)
        for (std::size_t chosen = count; chosen > 0; --chosen)
            for (std::size_t sum = total; sum >= rank; --sum) ways[chosen][sum] += ways[chosen - 1][sum - rank];
    double all = 0, as_far = 0;
    for (std::size_t sum = 0; sum <= total; ++sum) {
        all += ways[count][sum];
        if (std::abs(static_cast<double>(sum) - expected) >= distance - 1e-6) as_far += ways[count][sum];
    }
    return as_far / all;
}

/// The rank sum of so many values is as good as normal.
double normal_p(const std::vector<std::size_t>& ranks, std::size_t count, double expected, double distance) {
    const double all = static_cast<double>(ranks.size()), chosen = static_cast<double>(count), mean = expected / chosen;
    double squares = 0;
    for (const std::size_t rank : ranks) squares += (static_cast<double>(rank) - mean) * (static_cast<double>(rank) - mean);
    const double variance = squares * chosen * (all - chosen) / (all * (all - 1));
    return variance > 0 ? std::erfc((std::max(distance, 1.0) - 1) / std::sqrt(2 * variance)) : 1;
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

/// How alike neighbours are: the correlation of each block's rank with the next one's, which one odd block cannot make or hide.
/// Corrected for what few blocks take off it.
double likeness(const Speeds& speeds) {
    const Speeds ranks = midranks(speeds);
    const auto count = static_cast<double>(ranks.size());
    double products = 0, squares = 0;
    for (std::size_t at = 0; at < ranks.size(); ++at) {
        const double here = ranks[at] - (count + 1) / 2;
        squares += here * here;
        if (at > 0) products += here * (ranks[at - 1] - (count + 1) / 2);
    }
    if (!(squares > 0)) return 0;
    const double seen = products / squares;
    return std::clamp(seen + (1 + 3 * seen) / count, 0.0, kMostLikeness);
}

/// Of both sides together: two short runs tell more about it than one.
double joint_likeness(const Speeds& before, const Speeds& after) {
    const auto one = static_cast<double>(before.size()), other = static_cast<double>(after.size());
    return one + other > 0 ? (one * likeness(before) + other * likeness(after)) / (one + other) : 0;
}

/// Middle of a side's logarithms of speed, and how sure it is.
struct Middle {
    double mean = 0, variance = 0, freedom = 1;
};

/// A mean without the fastest and slowest fifth, so that pauses do not move it, and its variance by the values with those fifths
/// drawn in (Yuen). Blocks that are alike count as fewer, but as two at least: a run's middle is no less sure than its blocks.
Middle middle_of(const Speeds& speeds, double alike) {
    Speeds logs = logarithms_of(speeds);
    std::ranges::sort(logs);
    const std::size_t cut = logs.size() / 5;
    const auto count = static_cast<double>(logs.size()), kept = static_cast<double>(logs.size() - 2 * cut);
    Middle middle;
    for (std::size_t at = cut; at < logs.size() - cut; ++at) middle.mean += logs[at] / kept;
    for (double& each : logs) each = std::clamp(each, logs[cut], logs[logs.size() - 1 - cut]);
    const double squares = squares_around(logs, mean_of(logs));
    const double fewer = std::min((1 + alike) / (1 - alike), count / 2);
    // Values that are alike also lie closer together than they would in a longer run.
    middle.variance = squares / (kept * (kept - 1)) * fewer / (1 - fewer / count);
    middle.freedom = std::max(kLeastFreedom, (kept - 1) * (1 - alike * alike) / (1 + alike * alike));
    return middle;
}

/// Of the blocks of both sides, at the upper end of what they leave possible: a standard error above what is seen.
double possible_likeness(const Speeds& one, const Speeds& other) {
    const double seen = joint_likeness(one, other);
    return std::min(kMostLikeness, seen + std::sqrt((1 - seen * seen) / static_cast<double>(one.size() + other.size())));
}

/// Student's, of a difference of logarithms.
SpeedTest tested(double difference, double error, double freedom) {
    if (!(error > 0)) return {difference, 0, difference != 0 ? 0.0 : 1.0, 0};
    return {difference, student_t(0.05, freedom) * error, student_p(difference / error, freedom), 0};
}

}  // namespace

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

PermutationResult permutation_test(std::span<const double> before, std::span<const double> after) {
    if (before.empty() || after.empty()) return {};
    const std::vector<std::size_t> ranks = doubled_ranks(before, after);
    const auto total = static_cast<double>(std::accumulate(ranks.begin(), ranks.end(), std::size_t{0}));
    const auto seen = static_cast<double>(
        std::accumulate(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(before.size()), std::size_t{0}));
    const double expected = total * static_cast<double>(before.size()) / static_cast<double>(ranks.size());
    const double distance = std::abs(seen - expected);
    const bool exact = ranks.size() <= kMostExact;
    return {(exact ? exact_p : normal_p)(ranks, before.size(), expected, distance), exact};
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

double quantile(std::vector<double> values, double q) {
    std::sort(values.begin(), values.end());
    const double at = q * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(at);
    const std::size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

bool neighbours_are_alike(const Speeds& before, const Speeds& after) {
    const auto count = static_cast<double>(before.size() + after.size());
    return count >= 2 && joint_likeness(before, after) > 2 / std::sqrt(count);
}

SpeedTest test_blocks(const Speeds& before, const Speeds& after) {
    const double alike = possible_likeness(before, after);
    const Middle a = middle_of(before, alike), b = middle_of(after, alike);
    const double variance = a.variance + b.variance;
    const double freedom = variance * variance / (a.variance * a.variance / a.freedom + b.variance * b.variance / b.freedom);
    return tested(b.mean - a.mean, std::sqrt(variance), freedom);
}

double spread_of(const Speeds& speeds) {
    constexpr double kMedianDistance = 0.6745;  ///< standard deviations of a normal distribution
    Speeds logs = logarithms_of(speeds);
    if (logs.empty()) return 0;
    const double middle = quantile(logs, 0.5);
    for (double& each : logs) each = std::abs(each - middle);
    return quantile(std::move(logs), 0.5) / kMedianDistance;
}

double unrest_of(const Speeds& speeds, bool has_breakdown) {
    constexpr std::size_t kPieces = 4;
    constexpr double kFew = 2, kMostIndependent = 8;
    const double spread = spread_of(speeds);
    if (!has_breakdown || speeds.size() < 2 * kPieces) return spread;
    Speeds middles;
    for (std::size_t piece = 0; piece < kPieces; ++piece) {
        const std::size_t begin = piece * speeds.size() / kPieces, end = (piece + 1) * speeds.size() / kPieces;
        const auto own = std::span(speeds).subspan(begin, end - begin);
        middles.push_back(quantile({own.begin(), own.end()}, 0.5));
    }
    middles = logarithms_of(middles);
    const double squares = squares_around(middles, mean_of(middles));
    return std::min(spread, std::max(spread / std::sqrt(kMostIndependent), kFew * std::sqrt(squares / (kPieces - 1))));
}

SpeedTest test_runs(const Speeds& before, const Speeds& after) {
    const Speeds one = logarithms_of(before), other = logarithms_of(after);
    const double from = mean_of(one), to = mean_of(other);
    const auto freedom = static_cast<double>(one.size() + other.size()) - 2;
    const double spread = std::sqrt((squares_around(one, from) + squares_around(other, to)) / freedom);
    const double error = spread * std::sqrt(1 / static_cast<double>(one.size()) + 1 / static_cast<double>(other.size()));
    SpeedTest test = tested(to - from, error, freedom);
    test.spread = spread;
    return test;
}

}  // namespace millrace::diagnose
