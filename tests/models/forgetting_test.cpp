// What was forgotten, by hand values.

#include "models/forgetting.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace millrace::models {
namespace {

/// Three domains of two epochs each; members of two groups with the seeds 1 and 2. The losses of the last stage are given by
/// member; after its own stage every domain had a loss of 2.
Course course_with(const std::vector<std::vector<double>>& last) {
    Course course;
    course.domains = {"sea", "land", "air"};
    course.epochs_each = 2;
    course.compare = "model.way";
    course.groups = {"new", "old", "new", "old"};
    course.seeds = {1, 1, 2, 2};
    course.controls = {"old"};
    const std::vector<std::vector<double>> before(4, {2, 2, 2}), between(4, {9, 9, 9});
    for (std::uint32_t epoch = 1; epoch <= 6; ++epoch)
        course.epochs.push_back({epoch, epoch == 6 ? last : epoch % 2 == 0 ? before : between});
    return course;
}

TEST(Forgetting, IsTheRiseSinceADomainWasLearned) {
    const Course course = course_with({{2.5, 2.1, 1}, {3, 2.4, 1.5}, {2.7, 2.3, 1.1}, {3.4, 2.4, 1.3}});
    ASSERT_TRUE(course.complete());
    EXPECT_DOUBLE_EQ(course.forgetting(0, 0), 0.5);
    EXPECT_DOUBLE_EQ(course.mean_forgetting(0), 0.3);
    const Forgetting measured = measure_forgetting(course);
    ASSERT_EQ(measured.groups.size(), 2u);
    const GroupForgetting& group = measured.groups[0];
    EXPECT_EQ(group.name, "new");
    EXPECT_DOUBLE_EQ(group.losses[1][2].mean, 2) << "after the second stage, not after its first epoch";
    ASSERT_EQ(group.by_domain.size(), 2u);
    EXPECT_NEAR(group.by_domain[0].mean, 0.6, 1e-12);
    EXPECT_NEAR(group.by_domain[0].error, 0.1, 1e-12);  // 0.5 and 0.7
    EXPECT_NEAR(group.mean.mean, 0.4, 1e-12);           // 0.3 and 0.5
    EXPECT_NEAR(group.mean.error, 0.1, 1e-12);
    EXPECT_NEAR(group.final_loss.mean, (5.6 / 3 + 6.1 / 3) / 2, 1e-12);
    // Seed by seed: 0.3 - 0.7 and 0.5 - 0.9.
    ASSERT_EQ(measured.comparisons.size(), 1u) << "a control is not compared with itself";
    EXPECT_NEAR(measured.comparisons[0].forgetting.mean, -0.4, 1e-12);
    EXPECT_NEAR(measured.comparisons[0].forgetting.error, 0, 1e-12);
    EXPECT_TRUE(measured.comparisons[0].conclusion().starts_with("new forgets less than old: 0.400 +- 0.000 nats (2 seeds); "))
        << measured.comparisons[0].conclusion();
}

TEST(Forgetting, WithoutPartnersErrorsAddUp) {
    Course course = course_with({{2.5, 2.1, 1}, {3, 2.4, 1.5}, {2.7, 2.3, 1.1}, {3.4, 2.4, 1.3}});
    course.seeds = {1, 2, 3, 4};
    const Comparison comparison = measure_forgetting(course).comparisons.at(0);
    EXPECT_NEAR(comparison.forgetting.mean, -0.4, 1e-12);
    EXPECT_NEAR(comparison.forgetting.error, std::hypot(0.1, 0.1), 1e-12);
    EXPECT_EQ(comparison.forgetting.sign(), -1);
}

TEST(Forgetting, WithinTwoStandardErrorsThereIsNoDifference) {
    // Differences of the means over two domains: 0.1 and -0.3, so -0.1 +- 0.2.
    const Comparison alike =
        measure_forgetting(course_with({{2.3, 2.3, 1}, {2.2, 2.2, 1}, {2.1, 2.1, 1}, {2.4, 2.4, 1}})).comparisons.at(0);
    EXPECT_EQ(alike.forgetting.sign(), 0);
    EXPECT_NE(alike.conclusion().find("no difference in forgetting beyond noise, -0.100 +- 0.200 nats (2 seeds)"),
              std::string::npos)
        << alike.conclusion();
    EXPECT_NE(alike.conclusion().find("differs by no more than noise"), std::string::npos) << alike.conclusion();
    const Comparison more =
        measure_forgetting(course_with({{2.3, 2.3, 1}, {2.2, 2.2, 1}, {2.5, 2.5, 1}, {2.4, 2.4, 1}})).comparisons.at(0);
    EXPECT_TRUE(more.conclusion().starts_with("new forgets more than old: 0.100 ")) << more.conclusion();
    EXPECT_NE(more.conclusion().find("at the end is higher by 0.067"), std::string::npos) << more.conclusion();
}

TEST(Forgetting, WhereNothingIsForgottenNobodyForgetsLess) {
    const Comparison comparison =
        measure_forgetting(course_with({{1.5, 1.4, 1}, {1.8, 1.7, 1}, {1.6, 1.5, 1}, {1.9, 1.8, 1}})).comparisons.at(0);
    EXPECT_EQ(comparison.forgetting.sign(), -1);
    EXPECT_EQ(comparison.verdict(), 0);
    EXPECT_TRUE(comparison.conclusion().starts_with("new and old have forgotten nothing beyond noise: "))
        << comparison.conclusion();
    EXPECT_NE(comparison.conclusion().find("at the end is lower by 0.200"), std::string::npos) << comparison.conclusion();
}

TEST(Forgetting, OneSeedOrALostLossIsNoResult) {
    Course course = course_with({{2.5, 2.1, 1}, {3, 2.4, 1.5}, {2.7, 2.3, 1.1}, {3.4, 2.4, 1.3}});
    course.groups = {"new", "old", "other", "another"};
    EXPECT_NE(measure_forgetting(course).comparisons.at(0).conclusion().find("one seed says nothing"), std::string::npos);
    course = course_with({{std::nan(""), 2.1, 1}, {3, 2.4, 1.5}, {2.7, 2.3, 1.1}, {3.4, 2.4, 1.3}});
    EXPECT_NE(measure_forgetting(course).comparisons.at(0).conclusion().find("not finite"), std::string::npos);
}

TEST(Forgetting, ACourseThatEndedEarlyHasItsLossesAlone) {
    Course course = course_with({});
    course.epochs.resize(4);
    const Forgetting measured = measure_forgetting(course);
    EXPECT_EQ(measured.groups[0].losses.size(), 2u);
    EXPECT_TRUE(measured.comparisons.empty());
    EXPECT_NE(forgetting_text(course, measured).find("no forgetting to measure"), std::string::npos);
    const auto document = base::json_or_throw(forgetting_json(course, measured));
    EXPECT_FALSE(document.at("complete").get<bool>());
    EXPECT_FALSE(document.at("members")[0].contains("forgetting"));
}

TEST(Forgetting, TextJsonAndPictureSayTheSame) {
    const Course course = course_with({{2.5, 2.1, 1}, {3, 2.4, 1.5}, {2.7, 2.3, 1.1}, {3.4, 2.4, std::nan("")}});
    const Forgetting measured = measure_forgetting(course);
    const std::string text = forgetting_text(course, measured);
    EXPECT_NE(text.find("after air  2.600 (13.5)"), std::string::npos) << text;
    EXPECT_NE(text.find("0.600 +- 0.100"), std::string::npos) << text;
    const auto document = base::json_or_throw(forgetting_json(course, measured));
    EXPECT_EQ(document.at("members").size(), 4u);
    EXPECT_EQ(document["members"][2]["seed"], 2);
    EXPECT_EQ(document["members"][2]["group"], "new");
    EXPECT_EQ(document["members"][2]["loss"][2][1], 2.3);
    EXPECT_DOUBLE_EQ(document["members"][2]["perplexity"][2][1].get<double>(), std::exp(2.3));
    EXPECT_TRUE(document["members"][3]["loss"][2][2].is_null());
    EXPECT_NEAR(document["groups"][0]["mean_forgetting"]["mean"].get<double>(), 0.4, 1e-12);
    EXPECT_EQ(document["epochs"].size(), 6u);
    EXPECT_EQ(document["comparisons"][0]["verdict"], "less");
    const std::string svg = forgetting_svg(course, measured);
    EXPECT_TRUE(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    std::size_t lines = 0;
    for (std::size_t at = svg.find("<polyline"); at != std::string::npos; at = svg.find("<polyline", at + 1)) ++lines;
    EXPECT_EQ(lines, 6u) << "a line for each group in each domain's panel";
}

}  // namespace
}  // namespace millrace::models
