#include "sweep/page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "browser_pages.h"
#include "search/stream.h"
#include "search/trial.h"

namespace millrace::sweep {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
constexpr const char* kHostile =
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">'\"&\xc3\xa9\xff";

bool page_has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

size_t how_often(const std::string& text, const std::string& part) {
    size_t count = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
    return count;
}

search::Space page_space() {
    const auto entries = base::read_toml(
        "[space]\n\"optim.lr\" = { log = [1e-5, 0.1] }\n"
        "\"optim.weight_decay\" = { log = [1e-6, 0.1], or = 0 }\n"
        "\"model.dropout\" = { uniform = [0.0, 0.5] }\n"
        "\"model.width\" = { int = [4, 16], step = 4 }\n"
        "\"model.activation\" = { choice = ['relu', 'gelu', 'silu'] }\n",
        "study.toml");
    return search::parse_space(entries.value()).value();
}

PageData empty_study(size_t objectives = 1) {
    PageData data;
    data.study = "digits";
    data.space = page_space();
    data.objectives = {{"validation_accuracy", true}};
    if (objectives > 1) data.objectives.push_back({"step_ms", false});
    data.command = "millrace sweep studies/digits.toml --trials 280 --lanes auto";
    data.recipe = "recipes/digits.toml";
    return data;
}

storage::StoredTrial& add_trial(PageData& data, search::Configuration configuration, search::TrialState state,
                                search::Objectives values) {
    storage::StoredTrial stored;
    stored.trial.number = static_cast<int64_t>(data.trials.size());
    stored.trial.configuration = std::move(configuration);
    stored.trial.state = state;
    stored.trial.values = std::move(values);
    stored.started = storage::WallTime{} + std::chrono::seconds(1'790'000'000 + 9 * stored.trial.number);
    if (state != search::TrialState::running) stored.completed = *stored.started + std::chrono::milliseconds(37'250);
    data.trials.push_back(std::move(stored));
    return data.trials.back();
}

/// An accuracy with its best place near lr 0.003 and dropout 0.2: what a study of a small network looks like under ASHA.
PageData plausible_study(size_t trials, size_t objectives) {
    PageData data = empty_study(objectives);
    data.seconds = 1520;
    data.constraints = {"parameters at most 600000"};
    search::Stream random(7, 0, search::Purpose::uniform_draw);
    for (size_t i = 0; i < trials; ++i) {
        std::vector<double> unit(data.space.size());
        for (double& coordinate : unit) coordinate = random.uniform();
        // The sampler comes closer to the best place as it learns.
        const double learned = std::min(0.85, static_cast<double>(i) / static_cast<double>(trials));
        unit[0] += (0.62 - unit[0]) * learned;
        unit[2] += (0.4 - unit[2]) * learned;
        const search::Configuration configuration = data.space.from_unit(unit);
        const double off = unit[0] - 0.62;
        const double final_value = 0.93 - 1.6 * off * off - 0.2 * (unit[2] - 0.4) * (unit[2] - 0.4) + 0.002 * configuration[3] -
                                   (configuration[4] == 0 ? 0.02 : 0.0) + 0.012 * (random.uniform() - 0.5);
        const double step_ms = 0.4 + 0.05 * configuration[3] + 0.03 * random.uniform();
        storage::StoredTrial& stored = add_trial(data, configuration, search::TrialState::complete, {});
        search::Trial& trial = stored.trial;
        const bool diverges = unit[0] > 0.8;
        const int64_t steps = diverges ? 2 : final_value > 0.92 ? 27 : final_value > 0.89 ? 9 : final_value > 0.8 ? 3 : 1;
        for (int64_t step = 1; step <= steps; ++step) {
            const double value =
                final_value - 0.5 * std::exp(-0.35 * static_cast<double>(step)) + 0.006 * (random.uniform() - 0.5);
            trial.reports[step] = {diverges ? kNaN : -value};
            if (objectives > 1) trial.reports[step].push_back(step_ms);
        }
        trial.violations = {configuration[3] == 16 && configuration[4] == 2 ? 31'000.0 : -1000.0};
        if (diverges)
            search::finish(trial, objectives > 1 ? search::Objectives{kNaN, step_ms} : search::Objectives{kNaN});
        else if (steps == 27)
            search::finish(trial, trial.reports.rbegin()->second);
        else
            trial.state = steps == 9 ? search::TrialState::paused : search::TrialState::pruned;
        stored.attributes = {{"commit", "0a1b2c3"}, {"recipe", "[model]\nname = \"mlp\"\n"}};
    }
    std::vector<search::Trial> plain;
    for (const storage::StoredTrial& stored : data.trials) plain.push_back(stored.trial);
    // Replicates of the best, as the driver runs them for finalists.
    for (const search::Finalist& finalist : search::finalists(plain, 5))
        for (int replicate = 0; replicate < 2; ++replicate) {
            search::Objectives values = finalist.mean;
            values[0] += 0.01 * (random.uniform() - 0.3);
            plain.push_back(add_trial(data, finalist.configuration, search::TrialState::complete, values).trial);
        }
    data.finalists = search::finalists(plain, 5);
    data.importance = search::parameter_importance(data.space, plain, 0, 1);
    return data;
}

PageData all_failed() {
    PageData data = empty_study();
    for (int i = 0; i < 12; ++i) add_trial(data, {0.1, 0, 0.1, 8, 1}, search::TrialState::failed, {kNaN});
    return data;
}

PageData one_trial() {
    PageData data = empty_study();
    add_trial(data, {1e-3, 1e-4, 0.25, 8, 1}, search::TrialState::complete, {-0.875}).trial.reports = {{1, {-0.5}},
                                                                                                       {2, {-0.875}}};
    return data;
}

/// One trial of each state and value that can make trouble.
PageData troubled_study() {
    PageData data = empty_study(2);
    data.constraints = {"parameters at most 600000", "step_ms at most 3"};
    add_trial(data, {1e-3, 0, 0.25, 8, 1}, search::TrialState::complete, {-0.5, 2}).trial.violations = {-1, 0};
    add_trial(data, {1e-3, 0, 0.25, 8, 2}, search::TrialState::complete, {kNaN, 2});
    add_trial(data, {1e-3, 0, 0.25, 8, 2}, search::TrialState::failed, {-kInfinity, kInfinity}).trial.violations = {kNaN,
                                                                                                                    kInfinity};
    add_trial(data, {1e-3, 0, 0, 4, 0}, search::TrialState::complete, {-0.75, 4}).trial.violations = {-1, 1};
    add_trial(data, {1e-5, 0, 0.5, 16, 0}, search::TrialState::running, {}).is_waiting = true;
    add_trial(data, {1e-5, 0, 0.5, 16, 0}, search::TrialState::running, {}).trial.reports = {{1, {kNaN, 1}}, {2, {-0.25, 1}}};
    add_trial(data, {0.1, 0.1, 0.5, 16, 0}, search::TrialState::paused, {}).trial.reports = {{1, {-0.125, 1e308}}};
    add_trial(data, {0.1, 0.1, 0.5, 16, 0}, search::TrialState::pruned, {}).trial.reports = {{3, {kNaN, kNaN}}};
    add_trial(data, {1e-3, 0, 0.25, 8, 1}, search::TrialState::complete, {-1e308, 1e-308});
    return data;
}

PageData hostile_study() {
    PageData data = plausible_study(40, 2);
    data.study = data.command = data.recipe = kHostile;
    for (search::Parameter& parameter : data.space.parameters) parameter.name = kHostile;
    for (base::RawScalar& choice : data.space.parameters[4].choices) choice = std::string(kHostile);
    for (storage::Objective& objective : data.objectives) objective.metric = kHostile;
    data.constraints = {kHostile};
    for (storage::StoredTrial& stored : data.trials) {
        stored.attributes = {{kHostile, kHostile}};
        stored.worker = kHostile;
    }
    return data;
}

TEST(SweepPage, ShowsTheBestWithTheSignOfItsMetric) {
    PageData data = one_trial();
    const std::string html = page(data);
    EXPECT_TRUE(page_has(html, "<h1>0.875 <small>validation_accuracy</small></h1>"));
    EXPECT_TRUE(page_has(html, "<code>optim.lr=0.001</code>"));
    EXPECT_TRUE(page_has(html, "trial 0, tried once"));
    EXPECT_TRUE(page_has(html, "<code>model.activation=gelu</code>"));
    EXPECT_TRUE(page_has(html, "Learning curve<"));
    EXPECT_TRUE(page_has(html, "too few to tell which parameters matter"));
    EXPECT_FALSE(page_has(html, "-0.875"));
    EXPECT_FALSE(page_has(html, "Pareto"));
    data.objectives[0].maximize = false;
    EXPECT_TRUE(page_has(page(data), "<h1>-0.875 <small>"));
}

TEST(SweepPage, NamesFinalistsWithTheirSpread) {
    PageData data = empty_study();
    for (const double value : {-0.5, -0.6, -0.7}) add_trial(data, {1e-3, 0, 0.25, 8, 1}, search::TrialState::complete, {value});
    data.finalists = {{{1e-3, 0, 0.25, 8, 1}, {0, 1, 2}, {-0.6}}};
    data.trials[0].attributes = {{"run", "runs/first\nsecond"}};
    const std::string html = page(data);
    EXPECT_TRUE(page_has(html, "<b>0.6</b> &plusmn; 0.1<small>0.5 to 0.7</small>"));
    EXPECT_TRUE(page_has(html, "the mean of its 3 trials"));
    EXPECT_TRUE(page_has(html, "--set optim.lr=0.001\n--set optim.weight_decay=0.0\n"));
    EXPECT_TRUE(page_has(html, "<pre>runs/first\nsecond\n</pre>"));
    EXPECT_TRUE(page_has(html, "<code>optim.weight_decay=0</code>"));
}

TEST(SweepPage, SaysWhyNothingIsBest) {
    EXPECT_TRUE(page_has(page(empty_study()), "<h1>No trials yet</h1>"));
    EXPECT_TRUE(page_has(page(all_failed()), "<h1>All 12 trials failed</h1>"));
    PageData data = empty_study();
    add_trial(data, {1e-3, 0, 0.25, 8, 1}, search::TrialState::running, {});
    EXPECT_TRUE(page_has(page(data), "<h1>No trial is complete yet</h1>"));
    add_trial(data, {1e-3, 0, 0.25, 8, 1}, search::TrialState::complete, {-0.5}).trial.violations = {1};
    EXPECT_TRUE(page_has(page(data), "<h1>No trial fits</h1>"));
}

TEST(SweepPage, TellsStatesAndValuesThatAreNoNumbers) {
    const std::string html = page(troubled_study());
    for (const char* state : {"complete", "infeasible", "running", "waiting", "paused", "pruned", "failed"})
        EXPECT_TRUE(page_has(html, "class=\"chip " + std::string(state) + "\"")) << state;
    EXPECT_TRUE(page_has(html, "<td>NaN</td>"));
    EXPECT_TRUE(page_has(html, "<td>infinite</td>"));
    EXPECT_TRUE(page_has(html, "step_ms at most 3: by 1</td>"));
    EXPECT_TRUE(page_has(html, "parameters at most 600000: by NaN; step_ms at most 3: by infinite"));
    EXPECT_EQ(how_often(html, "<tr id=\"t"), 9u);
    // No coordinate of a picture is NaN or infinite.
    for (const char* word : {"nan", "inf "}) EXPECT_EQ(how_often(html, std::string("\" d=\"M") + word), 0u);
    for (const char* word : {"Vnan", "Lnan", " nan", "Hnan", "Hinf", "Vinf", "Linf"}) EXPECT_FALSE(page_has(html, word)) << word;
}

TEST(SweepPage, FarOutliersDoNotStretchAnAxis) {
    PageData data = empty_study();
    data.objectives[0].maximize = false;
    const PageView view(data);
    std::vector<double> losses;
    for (int i = 0; i < 50; ++i) losses.push_back(1 + 0.01 * i);
    EXPECT_NEAR(view.axis(0, losses).high, 1.5, 0.11);
    losses.push_back(900);
    EXPECT_LT(view.axis(0, losses).high, 2);
    EXPECT_EQ(view.axis(0, losses).share(900), 1);
    for (int i = 0; i < 50; ++i) losses.push_back(std::pow(10, 0.1 * i));
    EXPECT_TRUE(view.axis(0, losses).is_log);
    EXPECT_EQ(view.axis(0, {kNaN, kInfinity}).low, 0);
}

TEST(SweepPage, ColoursByRankAndFindsTheFront) {
    const PageData data = plausible_study(200, 2);
    const PageView view(data);
    std::array<size_t, kColours> counts{};
    for (size_t at = 0; at < view.trials.size(); ++at)
        if (const auto colour = view.colour(at)) ++counts[*colour];
    const size_t valued = counts[0] + counts[1] + counts[2] + counts[3] + counts[4];
    EXPECT_EQ(counts[0], (valued + 9) / 10);
    EXPECT_NEAR(static_cast<double>(counts[1]), static_cast<double>(counts[4]), 2);
    const auto by_value = [&](size_t a, size_t b) { return view.metric(a, 0).value_or(0.5) < view.metric(b, 0).value_or(0.5); };
    std::vector<size_t> positions(view.trials.size());
    std::iota(positions.begin(), positions.end(), size_t{0});
    EXPECT_EQ(view.colour(*std::max_element(positions.begin(), positions.end(), by_value)), 0u);
    EXPECT_EQ(view.colour(*std::min_element(positions.begin(), positions.end(), by_value)), kColours - 1);
    ASSERT_FALSE(view.front.empty());
    for (const size_t one : view.front)
        for (size_t other = 0; other < view.trials.size(); ++other) {
            EXPECT_TRUE(view.counts(one));
            EXPECT_FALSE(view.counts(other) && search::dominates(view.trials[other].values, view.trials[one].values));
        }
}

/// tests/tools/sweep_page_test.py opens what this writes in a browser, in the folder MILLRACE_REPORTS_TO.
TEST(SweepPage, WritesPagesForABrowser) {
    const test::BrowserPages pages(page_script(), page_script_hash());
    const auto write_page = [&](const char* name, const PageData& data, size_t most) {
        const std::string html = page(data);
        EXPECT_LT(html.size(), most) << name;
        pages.write_page(name, html);
    };
    write_page("one_objective.html", plausible_study(280, 1), 500'000);
    write_page("two_objectives.html", plausible_study(60, 2), 200'000);
    write_page("many.html", plausible_study(2000, 1), 3'000'000);
    write_page("empty.html", empty_study(), 100'000);
    write_page("one_trial.html", one_trial(), 100'000);
    write_page("all_failed.html", all_failed(), 100'000);
    write_page("troubled.html", troubled_study(), 100'000);
    write_page("hostile.html", hostile_study(), 500'000);
}

}  // namespace
}  // namespace millrace::sweep
