#pragma once
// Spaces, known functions and small studies that the tests of search share.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "search/sampler.h"

namespace millrace::search {

/// A space from the lines of a table [space].
inline base::Result<Space> read_space(const std::string& lines) {
    const auto entries = base::read_toml("[space]\n" + lines, "study.toml");
    if (!entries.ok()) return entries.error();
    return parse_space(*entries);
}

inline Space space_of(const std::string& lines) {
    auto read = read_space(lines);
    EXPECT_TRUE(read.ok()) << read.error().text();
    return read.ok() ? *read : Space{};
}

/// `count` parameters p0, p1, ... uniform in [low, high].
inline Space cube(size_t count, double low, double high) {
    Space out;
    for (size_t i = 0; i < count; ++i) {
        Parameter parameter;
        parameter.name = "p" + std::to_string(i);
        parameter.low = low;
        parameter.high = high;
        parameter.place = "study.toml:" + std::to_string(i + 1);
        out.parameters.push_back(parameter);
    }
    return out;
}

inline std::unique_ptr<Sampler> sampler_of(const Space& space, SamplerOptions options) {
    auto made = make_sampler(space, options);
    EXPECT_TRUE(made.ok()) << made.error().text();
    return made.ok() ? std::move(made).value() : nullptr;
}

inline std::unique_ptr<Sampler> sampler_of(const Space& space, const std::string& name, uint64_t seed) {
    SamplerOptions options;
    options.name = name;
    options.seed = seed;
    return sampler_of(space, options);
}

using Objective = std::function<Objectives(const Configuration&)>;

/// A whole study: `batch` trials are asked for and run at the same time.
inline std::vector<Trial> run_study(const Sampler& sampler, const Objective& objective, int64_t trials, int64_t batch = 1) {
    std::vector<Trial> history;
    while (static_cast<int64_t>(history.size()) < trials) {
        const auto first = static_cast<int64_t>(history.size());
        for (Configuration& configuration : sampler.ask(history, first, std::min(batch, trials - first))) {
            Trial trial;
            trial.number = static_cast<int64_t>(history.size());
            trial.configuration = std::move(configuration);
            history.push_back(std::move(trial));
        }
        for (size_t i = static_cast<size_t>(first); i < history.size(); ++i)
            finish(history[i], objective(history[i].configuration));
    }
    return history;
}

inline double best_value(const std::vector<Trial>& trials) {
    double best = std::numeric_limits<double>::infinity();
    for (const Trial& trial : trials)
        if (trial.state == TrialState::complete) best = std::min(best, trial.values.front());
    return best;
}

inline double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

/// The median over ten seeds of the best value that a sampler finds.
inline double median_best(const Space& space, const std::string& name, const Objective& objective, int64_t trials,
                          int64_t batch = 1) {
    std::vector<double> best;
    for (uint64_t seed = 0; seed < 10; ++seed)
        best.push_back(best_value(run_study(*sampler_of(space, name, seed), objective, trials, batch)));
    return median(best);
}

/// Smallest value 0.397887; x in [-5, 10], y in [0, 15].
inline double branin(double x, double y) {
    const double pi = 3.141592653589793;
    const double a = y - 5.1 / (4 * pi * pi) * x * x + 5 / pi * x - 6;
    return a * a + 10 * (1 - 1 / (8 * pi)) * std::cos(x) + 10;
}

/// Smallest value -3.32237; [0, 1]^6.
inline double hartmann6(const Configuration& x) {
    constexpr double alpha[4] = {1.0, 1.2, 3.0, 3.2};
    constexpr double a[4][6] = {
        {10, 3, 17, 3.5, 1.7, 8}, {0.05, 10, 17, 0.1, 8, 14}, {3, 3.5, 1.7, 10, 17, 8}, {17, 8, 0.05, 10, 0.1, 14}};
    constexpr double p[4][6] = {{0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886},
                                {0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991},
                                {0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650},
                                {0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381}};
    double sum = 0;
    for (int i = 0; i < 4; ++i) {
        double inner = 0;
        for (int k = 0; k < 6; ++k)
            inner += a[i][k] * (x[static_cast<size_t>(k)] - p[i][k]) * (x[static_cast<size_t>(k)] - p[i][k]);
        sum += alpha[i] * std::exp(-inner);
    }
    return -sum;
}

}  // namespace millrace::search
