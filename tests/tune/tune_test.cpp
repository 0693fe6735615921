#include "tune/tune.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "fake_clock.h"
#include "train/tiny_run.h"
#include "tune/candidates.h"

namespace millrace::tune {
namespace {

using namespace std::chrono_literals;

/// Ways of known speed on a machine that wanders from round to round; every window takes its time of the fake clock.
class Races : public ::testing::Test {
protected:
    Timer way(double seconds, double noise) {
        counts_.push_back(0);
        return [this, seconds, noise, i = counts_.size() - 1](double window) -> base::Result<Window> {
            counts_[i] += 1;
            clock_.advance(std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 * window)));
            const double drift = 1 + 0.3 * std::sin(std::chrono::duration<double>(clock_.now()).count() / 50);
            Window timed;
            timed.seconds = window;
            timed.seconds_per_sample = seconds * drift * std::exp(noise * normal_(random_));
            return timed;
        };
    }
    RaceResult run(const std::vector<Timer>& ways, RaceOptions options = {}) {
        if (options.deadline == 0ns) options.deadline = clock_.now() + 1000s;
        return race(ways, options, clock_);
    }

    base::FakeClock clock_;
    std::mt19937_64 random_{7};
    std::normal_distribution<double> normal_;
    std::vector<int> counts_;
};

TEST_F(Races, FindTheBestOfNoisyWays) {
    int right = 0;
    for (int trial = 0; trial < 50; ++trial) {
        const RaceResult result = run({way(1.10, 0.02), way(1.05, 0.02), way(1.00, 0.02), way(1.06, 0.02), way(1.2, 0.02)});
        right += result.fastest == 2 && result.preferred == 2;
        EXPECT_LE(result.ways[result.preferred].ratio.value, 1.03);
    }
    EXPECT_GE(right, 47);
}

TEST_F(Races, StopEarlyAndLeaveOutWhatIsSlow) {
    const RaceResult result = run({way(1.0, 0.01), way(1.1, 0.01), way(2.0, 0.01)});
    EXPECT_EQ(result.preferred, 0u);
    EXPECT_EQ(counts_[2], 2) << "half as fast needs no more rounds";
    EXPECT_EQ(result.rounds, 6u) << "six rounds separate what differs by ten times the noise";
    EXPECT_GT(result.ways[1].ratio.low, 1);
    EXPECT_NEAR(result.ways[1].ratio.value, 1.1, 0.03);
}

TEST_F(Races, TiesGoToTheFirstWay) {
    const RaceResult result = run({way(1.004, 0.001), way(1.0, 0.001)});
    EXPECT_EQ(result.fastest, 1u);
    EXPECT_EQ(result.preferred, 0u);
}

TEST_F(Races, KeepTheFirstWayUntilAnotherIsShownToBeFaster) {
    RaceOptions options;
    options.window_seconds = 1;
    options.deadline = clock_.now() + 6s;
    const RaceResult result = run({way(1.2, 0), way(1.0, 0)}, options);
    EXPECT_EQ(result.rounds, 3u);
    EXPECT_EQ(result.fastest, 1u);
    EXPECT_EQ(result.preferred, 0u) << "three rounds show no difference of a fifth";
    options.deadline = clock_.now() + 6s;
    EXPECT_EQ(run({way(2, 0), way(1.0, 0)}, options).preferred, 1u);
}

TEST_F(Races, AWayThatFailsIsARow) {
    const Timer broken = [](double) -> base::Result<Window> { return base::Error{"the plan does not fit"}; };
    const RaceResult result = run({broken, way(1, 0.01), way(1.2, 0.01)});
    EXPECT_EQ(result.ways[0].failure, "the plan does not fit");
    EXPECT_EQ(result.preferred, 1u);
    EXPECT_FALSE(run({broken}).any);
}

TEST_F(Races, EndAtTheDeadline) {
    RaceOptions options;
    options.window_seconds = 1;
    options.deadline = clock_.now() + 5s;
    const RaceResult result = run({way(1, 0), way(1.02, 0)}, options);
    EXPECT_EQ(result.rounds, 2u);
    EXPECT_EQ(result.ways[0].windows.size(), 2u) << "half a round is no round";
    options.deadline = clock_.now() + 1s;
    const RaceResult cut = run({way(1, 0), way(1, 0)}, options);
    EXPECT_TRUE(cut.ways[0].ok());
    EXPECT_EQ(cut.ways[1].failure, "no time was left");
}

TEST(MedianSpan, HasOrderStatisticsAroundTheMedian) {
    const Span few = median_span({3, 1, 2});
    EXPECT_EQ(few.value, 2);
    EXPECT_EQ(few.low, 1);
    EXPECT_EQ(few.high, 3);
    std::vector<double> values;
    for (int i = 1; i <= 20; ++i) values.push_back(i);
    const Span many = median_span(values);  // P(Bin(20, 1/2) <= 4) = 0.6 %, <= 5: 2.1 %
    EXPECT_EQ(many.value, 10.5);
    EXPECT_EQ(many.low, 6 - 1);
    EXPECT_EQ(many.high, 16);
}

/// Norms of gradients of `dimensions` independent entries with a known B_noise that grows from `first` to `last`.
std::vector<NormPair> drawn_norms(std::size_t points, double small, double big, double first, double last,
                                  std::mt19937_64& random) {
    constexpr int kDimensions = 200, kBatches = 4;
    std::normal_distribution<double> normal;
    std::vector<NormPair> pairs;
    for (std::size_t i = 0; i < points; ++i) {
        const double noise = first + (last - first) * static_cast<double>(i) / static_cast<double>(points - 1);
        const double strength = 1 + 9.0 / static_cast<double>(i + 1);  // gradients shrink while it trains
        const auto norm = [&](double batch) {
            double sum = 0;
            for (int b = 0; b < kBatches; ++b)
                for (int d = 0; d < kDimensions; ++d) {
                    const double entry = strength * (1 + std::sqrt(noise / batch) * normal(random));
                    sum += entry * entry / kBatches;
                }
            return sum;
        };
        pairs.push_back({norm(small), norm(big)});
    }
    return pairs;
}

TEST(NoiseScale, IntervalContainsTheKnownScale) {
    std::mt19937_64 random(3);
    int inside = 0;
    for (int trial = 0; trial < 40; ++trial) {
        const NoiseScale scale = noise_scale(drawn_norms(24, 32, 512, 300, 300, random), 32, 512);
        EXPECT_TRUE(scale.known);
        EXPECT_NEAR(scale.samples.value, 300, 60);
        inside += scale.samples.low <= 300 && 300 <= scale.samples.high;
    }
    EXPECT_GE(inside, 34);
}

TEST(NoiseScale, IsTheMeanOverTheTrainingNotOverItsSteepBeginning) {
    std::mt19937_64 random(4);
    const NoiseScale scale = noise_scale(drawn_norms(40, 32, 1024, 50, 450, random), 32, 1024);
    EXPECT_NEAR(scale.samples.value, 250, 40);
    ASSERT_EQ(scale.segments.size(), 4u);
    EXPECT_LT(scale.segments.front(), scale.segments.back() / 2);
}

TEST(NoiseScale, IsNotKnownWhereTheIntervalIsWide) {
    std::mt19937_64 random(5);
    EXPECT_FALSE(noise_scale(drawn_norms(12, 8, 16, 1e5, 1e5, random), 8, 16).known);
    EXPECT_FALSE(noise_scale(drawn_norms(7, 32, 512, 300, 300, random), 32, 512).known) << "seven points are too few";
}

TEST(NoiseScale, PredictsTheTimeToTarget) {
    NoiseScale noise;
    noise.samples = {300, 200, 400};
    const Span half = time_to_target(noise, 200, 100, {0.5, 0.4, 0.6});
    EXPECT_DOUBLE_EQ(half.value, 0.5 * 500 / 400);
    EXPECT_DOUBLE_EQ(half.low, 0.4 * 1100 / 1000 / 1.1) << "three times the noise";
    EXPECT_DOUBLE_EQ(half.high, 0.6 * 300 / 200 * 1.1) << "a third of it";
    noise.segments = {50, 1900};
    EXPECT_DOUBLE_EQ(time_to_target(noise, 200, 100).low, 2100.0 / 2000 / 1.1) << "a target at the end of the training";
    EXPECT_DOUBLE_EQ(time_to_target(noise, 200, 100).high, 250.0 / 150 * 1.1) << "and at its beginning";
    EXPECT_DOUBLE_EQ(time_to_target(noise, 100, 100).high, 1) << "the batch itself";
}

/// Losses that fall as samples^-0.2, with a scale of the samples for each rate; each evaluation is off by `noise`.
LossCurves curves(std::array<double, 4> scales, double noise = 0, std::uint64_t seed = 1) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    LossCurves curves;
    for (int point = 1; point <= 64; ++point) {
        curves.samples.push_back(48000.0 / 64 * point);
        auto& losses = curves.losses.emplace_back();
        for (std::size_t k = 0; k < kTargetMembers; ++k)
            losses[k] = std::pow(curves.samples.back() / scales[k / kTargetSeeds], -0.2) * std::exp(noise * normal(random));
    }
    return curves;
}
TargetBatch compared(const LossCurves& own, const LossCurves& other) {
    TargetBatch batch;
    compare_curves(own, other, batch);
    return batch;
}

TEST(CompareCurves, GivesTheRatioOfSamplesAtTheBestRates) {
    const LossCurves own = curves({2000, 3000, 1000, 3000});
    const TargetBatch same = compared(own, own), twice = compared(own, curves({3000, 2000, 3000, 3000}));
    ASSERT_TRUE(same.samples && twice.samples);
    EXPECT_NEAR(same.samples->low, 1 / 1.1, 1e-9);
    EXPECT_NEAR(same.samples->high, 1.1, 1e-9);
    EXPECT_EQ(same.rate, 2);
    EXPECT_NEAR(twice.samples->value, 2, 0.01);
    EXPECT_NEAR(twice.samples->high, 2 * 1.1, 0.05);
    EXPECT_EQ(twice.rate, 0.5);
}

TEST(CompareCurves, IntervalContainsTheKnownRatio) {
    int inside = 0, narrow = 0;
    for (std::uint64_t trial = 1; trial <= 40; ++trial) {
        const TargetBatch batch =
            compared(curves({2000, 3000, 1500, 1600}, 0.05, trial), curves({2000, 1800, 3000, 4000}, 0.05, 100 + trial));
        ASSERT_TRUE(batch.samples);
        inside += batch.samples->low <= 1.2 && 1.2 <= batch.samples->high;
        narrow += batch.samples->high <= 1.8 * batch.samples->low;
    }
    EXPECT_GE(inside, 38);
    EXPECT_GE(narrow, 38);
}

TEST(CompareCurves, OneSeedThatDiffersWidensTheInterval) {
    const LossCurves own = curves({2000, 2000, 2000, 2000});
    LossCurves other = own;
    for (auto& losses : other.losses)
        for (std::size_t k = 0; k < losses.size(); k += kTargetSeeds) losses[k] *= 1.3;
    const TargetBatch batch = compared(own, other);
    ASSERT_TRUE(batch.samples);
    EXPECT_GT(batch.samples->high, 1.5 * 1.1 * 1.1 * batch.samples->low);
    EXPECT_LT(batch.samples->low, 1);
}

TEST(CompareCurves, KnowNothingWhereTargetsAreNotReached) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    LossCurves own = curves({2000, 2000, 2000, 2000}, 0);
    EXPECT_FALSE(compared(own, curves({13000, 13000, 13000, 13000}, 0)).samples) << "six and a half times the samples";
    EXPECT_FALSE(compared(own, curves({nan, nan, nan, nan}, 0)).samples);
    EXPECT_TRUE(compared(own, curves({nan, 2000, nan, nan}, 0)).samples);
    for (std::size_t point = 12; point < 24; ++point) own.losses[point].fill(3);
    const TargetBatch later = compared(own, curves({2000, 2000, 2000, 2000}, 0));
    ASSERT_TRUE(later.samples) << "targets are those of falling losses, whatever comes later";
    EXPECT_NEAR(later.samples->value, 1, 1e-6);
}

TEST(Candidates, KeepTheRowsOfAStep) {
    Facts facts;
    facts.batch = 64;
    facts.accumulate = 2;
    facts.micro_batch = 64;
    facts.samples = 1000;
    const std::vector<Settings> rows = row_candidates(facts);
    ASSERT_EQ(rows.size(), 4u);
    EXPECT_TRUE(rows[0].empty());
    EXPECT_EQ(settings_text(rows[1]), "train.batch=128 train.accumulate=1 train.micro_batch=128");
    EXPECT_EQ(settings_text(rows[2]), "train.micro_batch=32");
    facts.couples_rows = true;
    EXPECT_EQ(row_candidates(facts).size(), 1u) << "a model that normalizes over rows is not split";
}

TEST(Candidates, StayWithinTheDataAndTheMachine) {
    Facts facts;
    facts.batch = facts.micro_batch = 64;
    facts.samples = 300;
    std::vector<std::int64_t> sizes;
    for (const BatchCandidate& each : batch_candidates(facts)) sizes.push_back(each.rows);
    EXPECT_EQ(sizes, (std::vector<std::int64_t>{64, 128, 32, 256, 16, 8}));
    EXPECT_EQ(settings_text(batch_candidates(facts)[3].split), "train.batch=256 train.micro_batch=64");
    facts.threads = 6;
    facts.cores = 6;
    std::string all;
    for (const Settings& each : machine_candidates(facts)) all += settings_text(each) + ";";
    EXPECT_EQ(all, "as it is;threads=3;threads=2;threads=1;");
    EXPECT_EQ(reader_threads(1e6, 2.5e-6, 8), (std::vector<std::int64_t>{3, 4}));
    EXPECT_EQ(reader_threads(1e6, 1, 2), (std::vector<std::int64_t>{2}));
}

class TuneRun : public train::TinyRun {};

TEST_F(TuneRun, WritesARecipeThatTrains) {
    const base::Recipe own = recipe({"train.batch=8", "threads=1"});
    TuneOptions options;
    options.seconds = 3;
    options.verify = true;
    std::vector<std::string> stages;
    options.progress = [&](const std::string& what, double share) {
        EXPECT_LE(share, 1);
        if (stages.empty() || stages.back() != what) stages.push_back(what);
    };
    auto report = tune(own, options);
    ASSERT_TRUE(report.ok()) << report.error().text();
    EXPECT_LT(report->seconds, 20);
    EXPECT_GT(stages.size(), 4u);
    EXPECT_EQ(report->step_rows, 8);
    std::size_t batches = 0;
    for (const Row& row : report->rows) {
        if (row.stage != "batch" || !row.failure.empty()) continue;
        batches += 1;
        EXPECT_GT(row.samples_per_second, 0);
        EXPECT_NEAR(row.step_seconds * row.samples_per_second, static_cast<double>(row.step_rows), 1e-6);
        EXPECT_EQ(row.chosen, row.own) << "the batch is the user's";
        EXPECT_TRUE(!row.time_to_target || report->targets->reason.empty() || report->noise.scale.known);
    }
    EXPECT_GE(batches, 2u);
    EXPECT_TRUE(report->noise.scale.known == report->noise.reason.empty()) << report->noise.reason;

    report->changes = joined(report->changes, {{"threads", "2"}});
    report->reasons = {"threads=2: a reason\nof two lines"};
    const auto text = tuned_recipe(own, *report, "2026-01-31");
    ASSERT_TRUE(text.ok()) << text.error().text();
    EXPECT_EQ(text->rfind(kTunedMark, 0), 0u);
    for (const char* part : {"2026-01-31", "# threads=2: a reason of two lines\n", "threads = 2\n", "batch = 8\n", "[model]\n"})
        EXPECT_NE(text->find(part), std::string::npos) << part << *text;
    auto tuned = train::parse_recipe(*text, "tuned.toml", {});
    ASSERT_TRUE(tuned.ok()) << tuned.error().text();
    EXPECT_EQ(tuned->text("data.path"), own.text("data.path"));
    train::TrainRequest request;
    request.out = folder_ / "run";
    const auto trained = train::train(*tuned, request, {});
    ASSERT_TRUE(trained.ok()) << trained.error().text();
    EXPECT_GT(trained->step, 0u);
    for (const std::string& printed : {report_text(*report), report_json(*report)})
        EXPECT_NE(printed.find("threads"), std::string::npos) << printed;
}

TEST_F(TuneRun, TargetsAreMeasuredAtTheSameSamples) {
    const base::Recipe own = recipe({"train.batch=16", "train.steps=24", "data.validation=0.02"});
    int calls = 0;
    const TrainingRequest request{own, {}, {}, 1e-6, base::SteadyClock::shared().now() + 600s, [&] { calls += 1; }};
    const std::vector<BatchCandidate> batches{
        {16, {}, {}}, {32, {{"train.batch", "32"}}, {}}, {4096, {{"train.batch", "4096"}}, {}}};
    const TargetRun run = measure_targets(request, {batches.begin(), batches.begin() + 2}, base::SteadyClock::shared());
    EXPECT_EQ(run.reason, "");
    EXPECT_TRUE(run.validation);
    EXPECT_EQ(run.samples, 24 * 16);
    EXPECT_EQ(calls, 2 + 16 + 2 + 8) << "after 64 and 128 samples, then after every step of either batch";
    ASSERT_EQ(run.batches.size(), 2u);
    ASSERT_TRUE(run.batches[0].samples) << run.batches[0].failure;
    EXPECT_NEAR(run.batches[0].samples->value, 1, 1e-9);
    EXPECT_NEAR(run.batches[0].samples->high, 1, 1e-9) << "the batch itself";
    EXPECT_TRUE(run.batches[1].samples || !run.batches[1].failure.empty());
    auto alone = Stepper::open(own, {});
    ASSERT_TRUE(alone.ok() && (*alone)->steps(4).ok());
    const auto scores = (*alone)->engine().evaluate(data::Part::validation, nullptr, {false});
    ASSERT_TRUE(scores.ok());
    EXPECT_EQ(run.curves[0].samples[0], 64);
    EXPECT_NEAR(run.curves[0].losses[0][0], (*scores)[0].loss, 1e-5) << "of validation, at the recipe's seed and rate";
    TrainingRequest slow = request;
    slow.step_seconds = 60;
    EXPECT_NE(measure_targets(slow, batches, base::SteadyClock::shared()).reason.find("--seconds"), std::string::npos);
}

TEST_F(TuneRun, LanesGoOnFromTheSameWeightsWithOtherSamples) {
    const base::Recipe own = recipe({"members=2"});
    auto start = Stepper::open(own, {}), same = Stepper::open(own, {}), other = Stepper::open(own, {{"train.accumulate", "2"}});
    ASSERT_TRUE(start.ok() && same.ok() && other.ok());
    ASSERT_TRUE((*start)->steps(2).ok());
    for (const auto& stepper : {same->get(), other->get()}) copy_weights((*start)->engine(), stepper->engine());
    (*other)->change_order();
    const auto before = (*same)->steps(1), after = (*other)->steps(1);
    ASSERT_TRUE(before.ok() && after.ok());
    EXPECT_EQ((*other)->step_samples(), 2 * 2 * 64);
    EXPECT_NE((*before)[0].loss, (*before)[1].loss) << "members read in orders of their own";
    EXPECT_EQ((*after)[0].rows, 128u);
    for (const bool changes : {false, true}) {
        auto again = Stepper::open(own, {});
        ASSERT_TRUE(again.ok());
        copy_weights((*start)->engine(), (*again)->engine());
        if (changes) (*again)->change_order();
        const auto rows = (*again)->steps(1);
        ASSERT_TRUE(rows.ok());
        EXPECT_EQ((*rows)[0].loss == (*before)[0].loss, !changes);
    }
}

TEST_F(TuneRun, WhatDoesNotFitIsARow) {
    const base::Recipe own = recipe({"train.batch=32", "train.memory=10MiB", "eval.batch=1"});
    TuneOptions options;
    options.seconds = 2;
    const auto report = tune(own, options);
    ASSERT_TRUE(report.ok()) << report.error().text();
    bool refused = false;
    for (const Row& row : report->rows) refused = refused || row.failure.find("does not fit") != std::string::npos;
    EXPECT_TRUE(refused) << report_text(*report);
    const auto hopeless = tune(recipe({"train.memory=64KiB"}), options);
    ASSERT_FALSE(hopeless.ok());
    EXPECT_EQ(hopeless.error().exit_status, 2);
}

TEST_F(TuneRun, ARecipeThatCannotRunIsRefusedAtItsOwnPlace) {
    std::filesystem::remove_all(folder_ / "data");
    const auto refused = tune(recipe({}), {});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().exit_status, 2);
    EXPECT_TRUE(refused.error().text().starts_with("tiny.toml:")) << refused.error().text();
}

}  // namespace
}  // namespace millrace::tune
