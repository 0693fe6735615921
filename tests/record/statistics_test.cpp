#include "record/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace millrace::record {
namespace {

/// The definition, straight: rank q (n - 1) of the sorted values, between two ranks on the line.
double sorted_quantile(std::vector<double> values, double q) {
    std::sort(values.begin(), values.end());
    const double rank = q * static_cast<double>(values.size() - 1);
    const double low = values[static_cast<std::size_t>(std::floor(rank))];
    const double high = values[static_cast<std::size_t>(std::ceil(rank))];
    return low + (high - low) * (rank - std::floor(rank));
}

/// Numbers without any order that a test can name.
double scattered(std::uint64_t i) { return static_cast<double>((i * 2654435761u + 12345) % 10007) / 7.0 - 300; }

TEST(Series, AgreesWithSortingForOddEvenAndPrimeCounts) {
    for (const std::size_t count : {1u, 2u, 3u, 4u, 20u, 21u, 100u, 101u, 1009u}) {
        Series series;
        std::vector<double> values;
        double sum = 0;
        for (std::size_t i = 0; i < count; ++i) {
            values.push_back(scattered(i));
            sum += values.back();
            series.add(values.back());
        }
        const Statistics found = series.statistics();
        EXPECT_EQ(found.count, count);
        EXPECT_NEAR(found.mean, sum / static_cast<double>(count), 1e-9);
        EXPECT_EQ(found.minimum, *std::min_element(values.begin(), values.end()));
        EXPECT_EQ(found.maximum, *std::max_element(values.begin(), values.end()));
        EXPECT_NEAR(found.median, sorted_quantile(values, 0.5), 1e-9);
        EXPECT_NEAR(found.p5, sorted_quantile(values, 0.05), 1e-9);
        EXPECT_NEAR(found.p95, sorted_quantile(values, 0.95), 1e-9);
        for (const double q : {0.0, 0.01, 0.37, 0.99, 1.0})
            EXPECT_NEAR(series.quantile(q), sorted_quantile(values, q), 1e-9) << count << " at " << q;
    }
}

TEST(Series, EmptyHasNoCount) {
    Series series;
    EXPECT_TRUE(series.empty());
    EXPECT_EQ(series.statistics().count, 0u);
}

TEST(Series, WhatIsNotFiniteIsPassedOver) {
    Series series;
    series.add(std::numeric_limits<double>::quiet_NaN());
    EXPECT_TRUE(series.empty());
    for (const double value : {3.0, std::numeric_limits<double>::quiet_NaN(), 1.0, std::numeric_limits<double>::infinity(), 2.0})
        series.add(value);
    EXPECT_EQ(series.count(), 3u);
    EXPECT_EQ(series.statistics().mean, 2.0);
    EXPECT_EQ(series.statistics().median, 2.0);
    EXPECT_EQ(series.statistics().maximum, 3.0);
}

TEST(Series, HalvingKeepsCountMeanAndExtremesExactAndQuantilesClose) {
    Series series(64);
    constexpr std::uint64_t kCount = 10007;
    double sum = 0;
    for (std::uint64_t i = 0; i < kCount; ++i) {
        const double value = i == 5001 ? 1e6 : i == 5003 ? -1e6 : static_cast<double>(i);
        sum += value;
        series.add(value);
    }
    const Statistics found = series.statistics();
    EXPECT_EQ(found.count, kCount);
    EXPECT_NEAR(found.mean, sum / kCount, 1e-6);
    EXPECT_EQ(found.minimum, -1e6);
    EXPECT_EQ(found.maximum, 1e6);
    EXPECT_NEAR(found.median, 5003, 10007.0 / 32);
    EXPECT_NEAR(found.p5, 500, 10007.0 / 32);
    EXPECT_NEAR(found.p95, 9506, 10007.0 / 32);
}

TEST(Series, TinyBoundsStillHoldAValue) {
    for (const std::size_t kept : {0u, 1u, 2u}) {
        Series series(kept);
        for (int i = 0; i < 1000; ++i) series.add(i);
        EXPECT_EQ(series.count(), 1000u);
        EXPECT_GE(series.quantile(0.5), 0);
        EXPECT_EQ(series.statistics().maximum, 999);
    }
}

sense::Sample sample_at(int second, double joules) {
    sense::Sample sample;
    sample.time = std::chrono::seconds{100 + second};
    sample.gpus.resize(2);
    sample.gpus[0].energy_joules = joules;
    sample.gpus[0].utilization = 10.0 * second;
    return sample;
}

TEST(SampleSummary, SumsUpTimeEnergyAndWhatWasRead) {
    SampleSummary summary;
    EXPECT_EQ(summary.seconds(), 0);
    EXPECT_EQ(summary.joules(0), std::nullopt);
    summary.add(sample_at(0, 5000));
    EXPECT_EQ(summary.joules(0), std::nullopt) << "one reading of a counter is no energy";
    summary.add(sample_at(1, 5100));
    auto third = sample_at(3, 5350);
    third.gpus[0].throttle = sense::kThrottleThermal;
    third.gpus[0].power_implausible = true;
    third.gpus[0].implausible_power_watts = 590;
    summary.add(third);
    auto fourth = sample_at(4, 5400);
    fourth.gpus[0].throttle = 0;
    summary.add(fourth);
    EXPECT_EQ(summary.samples(), 4u);
    EXPECT_EQ(summary.seconds(), 4);
    EXPECT_EQ(summary.joules(0), 400);
    EXPECT_EQ(summary.joules(1), std::nullopt);
    EXPECT_EQ(summary.joules(-1), std::nullopt);
    EXPECT_EQ(summary.joules(2), std::nullopt);
    EXPECT_EQ(summary.implausible_power(0), 1u);
    EXPECT_EQ(summary.throttled(0), sense::kThrottleThermal);
    EXPECT_EQ(summary.throttled_share(0), 0.5);
    EXPECT_EQ(summary.throttled_share(1), 0);
    ASSERT_TRUE(summary.of("gpu/utilization_percent", 0).has_value());
    EXPECT_EQ(summary.of("gpu/utilization_percent", 0)->mean, 20);
    EXPECT_FALSE(summary.of("gpu/utilization_percent", 1).has_value());
    EXPECT_FALSE(summary.of("gpu/power_watts", 0).has_value());
    EXPECT_FALSE(summary.of("no/such_metric", 0).has_value());
    EXPECT_FALSE(summary.of("gpu/energy_joules", 0).has_value()) << "a mean of a counter says nothing";
    const auto entries = summary.entries();
    for (std::size_t i = 1; i < entries.size(); ++i) EXPECT_LE(entries[i - 1].metric, entries[i].metric);
    EXPECT_FALSE(entries.empty());
    summary.clear();
    EXPECT_EQ(summary.samples(), 0u);
    EXPECT_TRUE(summary.entries().empty());
}

TEST(SampleSummary, CounterThatStartsAgainLosesNothingElse) {
    SampleSummary summary;
    summary.add(sample_at(0, 5000));
    summary.add(sample_at(1, 5100));
    summary.add(sample_at(2, 10));
    summary.add(sample_at(3, 60));
    EXPECT_EQ(summary.joules(0), 150);
}

}  // namespace
}  // namespace millrace::record
