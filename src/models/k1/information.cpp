#include "models/k1/information.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/philox.h"

namespace millrace::models {
namespace {

double sum_of(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

double log_binomial(double n, double k) { return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1); }

/// How many of `taken` things drawn from `all` are among the `marked`. Sums probabilities outwards from the likeliest number.
double hypergeometric(double all, double marked, double taken, double uniform) {
    const double low = std::max(0.0, taken + marked - all), high = std::min(taken, marked);
    const double mode = std::clamp(std::floor((taken + 1) * (marked + 1) / (all + 2)), low, high);
    const double top = std::exp(log_binomial(marked, mode) + log_binomial(all - marked, taken - mode) - log_binomial(all, taken));
    double below = mode, above = mode, below_p = top, above_p = top, left = uniform - top;
    while (left > 0 && (below > low || above < high)) {
        if (above < high) {
            above_p *= (marked - above) * (taken - above) / ((above + 1) * (all - marked - taken + above + 1));
            above += 1;
            left -= above_p;
            if (left <= 0) return above;
        }
        if (below > low) {
            below_p *= below * (all - marked - taken + below) / ((marked - below + 1) * (taken - below + 1));
            below -= 1;
            left -= below_p;
            if (left <= 0) return below;
        }
        if (above_p + below_p < 1e-18) break;  // what is left of `uniform` is rounding
    }
    return mode;
}

}  // namespace

double gini(std::vector<double> values) {
    const double sum = sum_of(values), n = static_cast<double>(values.size());
    if (sum <= 0) return 0;
    std::ranges::sort(values);
    double weighted = 0;
    for (std::size_t i = 0; i < values.size(); ++i) weighted += static_cast<double>(i + 1) * values[i];
    return 2 * weighted / (n * sum) - (n + 1) / n;
}

double information(const std::vector<double>& chosen, const std::vector<double>& seen) {
    const double steps = sum_of(seen), taken = sum_of(chosen);
    double bits = 0;
    const auto add = [&](double both, double row, double column) {
        if (both > 0) bits += both / steps * std::log2(both * steps / (row * column));
    };
    for (std::size_t i = 0; i < seen.size(); ++i) {
        add(chosen[i], taken, seen[i]);
        add(seen[i] - chosen[i], steps - taken, seen[i]);
    }
    return std::max(0.0, bits);
}

Shuffled shuffled_information(const std::vector<double>& chosen, const std::vector<double>& seen, std::uint64_t seed, int draws) {
    const double measured = information(chosen, seen);
    std::vector<double> all;
    for (int draw = 0; draw < draws; ++draw) {
        std::vector<double> dealt;
        double steps = sum_of(seen), taken = sum_of(chosen);
        for (std::size_t i = 0; i < seen.size(); ++i) {
            const double uniform = base::uniform01(base::random_bits(seed, static_cast<std::uint32_t>(draw), 0, 0, i));
            dealt.push_back(hypergeometric(steps, seen[i], taken, uniform));
            steps -= seen[i];
            taken -= dealt.back();
        }
        all.push_back(information(dealt, seen));
    }
    std::ranges::sort(all);
    // Sums of the same terms in another order may differ in the last bits.
    const auto as_large = std::ranges::count_if(all, [&](double bits) { return bits >= measured - 1e-12; });
    return {sum_of(all) / static_cast<double>(draws), all[static_cast<std::size_t>((draws - 1) * 95 / 100)],
            static_cast<double>(as_large + 1) / static_cast<double>(draws + 1)};
}

}  // namespace millrace::models
