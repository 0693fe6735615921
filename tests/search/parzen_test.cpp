#include "search/sampler.h"

#include <gtest/gtest.h>

#include "search/problems.h"

namespace millrace::search {
namespace {

const std::vector<Configuration> kSeenTwice = {{2}, {2}, {2}, {3}};
constexpr double kRootTwoPi = 2.5066282746310002;

TEST(Parzen, DensitiesOfDiscreteParametersSumToOne) {
    for (const char* line : {"a = { choice = [1, 2, 3, 4, 5] }", "a = { int = [0, 4] }", "a = { int = [0, 4], or = -1 }"}) {
        const Space space = space_of(line);
        const ParzenEstimator estimator(space, kSeenTwice);
        double sum = 0;
        for (double value = -1; value < 5; ++value)
            if (space.parameters[0].holds(value)) sum += std::exp(estimator.log_density({value}));
        EXPECT_NEAR(sum, 1, 1e-9) << line;
        EXPECT_GT(estimator.log_density({2}), estimator.log_density({0})) << line;
    }
}

TEST(Parzen, DensitiesOfRangesIntegrateToOne) {
    for (const double alternative : {0.0, 1.0}) {
        Space space = cube(1, 0, 1);
        std::vector<Configuration> observed = {{0.0}, {0.3}, {1.0}};
        double integral = 0;
        if (alternative > 0) {
            space.parameters[0].alternative = -1;
            observed.push_back({-1});
        }
        const ParzenEstimator estimator(space, observed);
        for (int i = 0; i < 2000; ++i) integral += std::exp(estimator.log_density({(i + 0.5) / 2000})) / 2000 / kRootTwoPi;
        if (alternative > 0) integral += std::exp(estimator.log_density({-1}));
        EXPECT_NEAR(integral, 1, 1e-5);
    }
}

TEST(Parzen, SamplesFollowTheDensity) {
    for (const char* line : {"a = { choice = [1, 2, 3, 4, 5] }", "a = { int = [0, 4] }", "a = { int = [0, 4], or = -1 }"}) {
        const Space space = space_of(line);
        std::vector<Configuration> observed = kSeenTwice;
        if (space.parameters[0].alternative) observed.push_back({-1});
        const ParzenEstimator estimator(space, observed);
        std::map<double, int> counts;
        Stream stream(3, 0, Purpose::tpe);
        for (int i = 0; i < 20000; ++i) ++counts[estimator.sample(stream)[0]];
        for (double value = -1; value < 5; ++value) {
            const double expected = space.parameters[0].holds(value) ? std::exp(estimator.log_density({value})) : 0;
            EXPECT_NEAR(counts[value] / 20000.0, expected, 0.015) << line << ": " << value;
        }
    }
}

TEST(Parzen, OldObservationsWeighLess) {
    const Space space = cube(1, 0, 1);
    std::vector<Configuration> observed(100, Configuration{0.1});
    std::fill(observed.begin() + 50, observed.end(), Configuration{0.9});
    const ParzenEstimator estimator(space, observed);
    EXPECT_GT(estimator.log_density({0.9}), estimator.log_density({0.1}) + 0.3);
}

TEST(Parzen, ParametersGoTogether) {
    const Space space = cube(2, 0, 1);
    const ParzenEstimator estimator(space, std::vector<Configuration>{{0.1, 0.1}, {0.9, 0.9}, {0.1, 0.1}, {0.9, 0.9}});
    EXPECT_GT(estimator.log_density({0.1, 0.1}), estimator.log_density({0.1, 0.9}) + 1);
}

}  // namespace
}  // namespace millrace::search
