#include "diagnose/compare/spread.h"

#include <algorithm>
#include <cmath>

#include "diagnose/compare/statistics.h"

namespace millrace::diagnose {
namespace {

constexpr double kMostLikeness = 0.9;
constexpr double kLeastFreedom = 6;  ///< of a side's spread: that of seven blocks, the fewest that alpha allows

std::vector<double> logarithms_of(std::span<const double> speeds) {
    std::vector<double> logs;
    for (const double speed : speeds) logs.push_back(std::log(std::max(speed, 1e-300)));
    return logs;
}

double mean_of(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / static_cast<double>(values.size());
}

double squares_around(const std::vector<double>& values, double mean) {
    double sum = 0;
    for (const double value : values) sum += (value - mean) * (value - mean);
    return sum;
}

/// How alike neighbours are: the correlation of each block's rank with the next one's, which one odd block cannot make or hide.
/// Corrected for what few blocks take off it.
double likeness(const std::vector<double>& speeds) {
    const std::vector<double> ranks = midranks(speeds);
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
double joint_likeness(const std::vector<double>& before, const std::vector<double>& after) {
    const auto one = static_cast<double>(before.size()), other = static_cast<double>(after.size());
    return one + other > 0 ? (one * likeness(before) + other * likeness(after)) / (one + other) : 0;
}

/// Middle of a side's logarithms of speed, and how sure it is.
struct Middle {
    double mean = 0, variance = 0, freedom = 1;
};

/// A mean without the fastest and slowest fifth, so that pauses do not move it, and its variance by the values with those fifths
/// drawn in (Yuen). Blocks that are alike count as fewer, but as two at least: a run's middle is no less sure than its blocks.
Middle middle_of(const std::vector<double>& speeds, double alike) {
    std::vector<double> logs = logarithms_of(speeds);
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
double possible_likeness(const std::vector<double>& one, const std::vector<double>& other) {
    const double seen = joint_likeness(one, other);
    return std::min(kMostLikeness, seen + std::sqrt((1 - seen * seen) / static_cast<double>(one.size() + other.size())));
}

}  // namespace

std::vector<double> speeds_of(const Paces& paces) {
    std::vector<double> speeds;
    for (const Pace& pace : paces) speeds.push_back(pace.speed());
    return speeds;
}

double quantile(std::vector<double> values, double q) {
    std::sort(values.begin(), values.end());
    const double at = q * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(at);
    const std::size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

bool neighbours_are_alike(const Paces& before, const Paces& after) {
    const auto count = static_cast<double>(before.size() + after.size());
    return count >= 2 && joint_likeness(speeds_of(before), speeds_of(after)) > 2 / std::sqrt(count);
}

double spread_p(const Paces& before, const Paces& after) {
    const std::vector<double> one = speeds_of(before), other = speeds_of(after);
    const double alike = possible_likeness(one, other);
    const Middle a = middle_of(one, alike), b = middle_of(other, alike);
    const double variance = a.variance + b.variance, size = std::abs(a.mean - b.mean);
    if (!(variance > 0)) return size > 0 ? 0 : 1;
    const double freedom = variance * variance / (a.variance * a.variance / a.freedom + b.variance * b.variance / b.freedom);
    return student_p(size / std::sqrt(variance), freedom);
}

double spread_of(const Paces& paces) {
    constexpr double kMedianDistance = 0.6745;  ///< standard deviations of a normal distribution
    std::vector<double> logs = logarithms_of(speeds_of(paces));
    if (logs.empty()) return 0;
    const double middle = quantile(logs, 0.5);
    for (double& each : logs) each = std::abs(each - middle);
    return quantile(std::move(logs), 0.5) / kMedianDistance;
}

double unrest_of(const Paces& paces, bool has_breakdown) {
    constexpr std::size_t kPieces = 4;
    constexpr double kFew = 2, kMostIndependent = 8;
    const double spread = spread_of(paces);
    if (!has_breakdown || paces.size() < 2 * kPieces) return spread;
    std::vector<double> middles;
    for (std::size_t piece = 0; piece < kPieces; ++piece) {
        const std::size_t begin = piece * paces.size() / kPieces, end = (piece + 1) * paces.size() / kPieces;
        const auto own = std::span(paces).subspan(begin, end - begin);
        middles.push_back(quantile(speeds_of({own.begin(), own.end()}), 0.5));
    }
    middles = logarithms_of(middles);
    const double squares = squares_around(middles, mean_of(middles));
    return std::min(spread, std::max(spread / std::sqrt(kMostIndependent), kFew * std::sqrt(squares / (kPieces - 1))));
}

double host_share(const CompareSide& side) {
    if (!side.breakdown_ms) return 0;
    double all = 0;
    for (const double ms : *side.breakdown_ms) all += ms;
    const double device = (*side.breakdown_ms)[index_of(Owner::kCompute)] + (*side.breakdown_ms)[index_of(Owner::kCommunication)];
    return all > 0 && std::isfinite(all) ? std::clamp(1 - device / all, 0.0, 1.0) : 0;
}

RunTest test_runs(std::span<const double> before, std::span<const double> after) {
    const std::vector<double> one = logarithms_of(before), other = logarithms_of(after);
    const double from = mean_of(one), to = mean_of(other);
    const auto freedom = static_cast<double>(one.size() + other.size()) - 2;
    const double spread = std::sqrt((squares_around(one, from) + squares_around(other, to)) / freedom);
    const double error = spread * std::sqrt(1 / static_cast<double>(one.size()) + 1 / static_cast<double>(other.size()));
    const double reach = student_t(0.05, freedom) * error;
    RunTest test;
    test.spread = spread;
    test.change = std::expm1(to - from);
    test.change_low = std::expm1(to - from - reach);
    test.change_high = std::expm1(to - from + reach);
    test.p = error > 0 ? student_p((to - from) / error, freedom) : (to == from ? 1 : 0);
    return test;
}

}  // namespace millrace::diagnose
