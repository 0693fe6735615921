// The report on nodes: its arithmetic by hand, its shuffled control, and the files of a small tree.

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "models/k1/node_report.h"
#include "models/language_rig.h"

namespace millrace::models {
namespace {

TEST(Gini, ByHand) {
    EXPECT_EQ(gini({}), 0);
    EXPECT_EQ(gini({0, 0, 0}), 0);
    EXPECT_NEAR(gini({4, 4, 4, 4}), 0, 1e-12);
    EXPECT_NEAR(gini({0, 0, 0, 8}), 0.75, 1e-12);
    EXPECT_NEAR(gini({8, 0, 0, 0}), 0.75, 1e-12) << "the order is no matter";
    // Differences of all ordered pairs 2 (1 + 2 + 3 + 1 + 2 + 1) = 20, over 2 n^2 mean = 80.
    EXPECT_NEAR(gini({1, 2, 3, 4}), 0.25, 1e-12);
}

TEST(Information, ByHand) {
    EXPECT_NEAR(information({4, 0}, {4, 4}), 1, 1e-12) << "the choice tells which of two labels";
    EXPECT_NEAR(information({2, 2}, {4, 4}), 0, 1e-12);
    EXPECT_NEAR(information({1, 3}, {4, 12}), 0, 1e-12) << "the same share of unequal labels";
    EXPECT_NEAR(information({8, 8}, {8, 8}), 0, 1e-12) << "always chosen";
    EXPECT_EQ(information({0, 0}, {0, 0}), 0);
    // Joint 3/8, 1/8 of label 0 and 1/8, 3/8 of label 1: 1 - entropy(1/4).
    EXPECT_NEAR(information({3, 1}, {4, 4}), 1 - (0.25 * 2 + 0.75 * std::log2(4.0 / 3)), 1e-12);
}

TEST(Information, ShuffledLabelsAreTheControl) {
    const Shuffled found = shuffled_information({400, 100, 100, 100}, {500, 500, 500, 500}, 1, 200);
    EXPECT_NEAR(found.p, 1.0 / 201, 1e-12) << "no shuffle comes near";
    // Of labels and choices that know nothing of each other: 2 N ln 2 times the bits is chi-squared with 3 degrees of freedom,
    // whose mean is 3 and whose 95th percentile is 7.8.
    const double scale = 2 * 2000 * std::log(2.0);
    EXPECT_NEAR(found.mean * scale, 3, 0.6);
    EXPECT_NEAR(found.high * scale, 7.8, 2);
    EXPECT_GT(information({400, 100, 100, 100}, {500, 500, 500, 500}), 20 * found.high);

    EXPECT_GT(shuffled_information({120, 130, 125, 128}, {500, 500, 500, 500}, 1, 200).p, 0.3);
    EXPECT_EQ(shuffled_information({0, 0}, {10, 10}, 1, 50).mean, 0);
    EXPECT_EQ(shuffled_information({10, 10}, {10, 10}, 1, 50).p, 1);
    EXPECT_EQ(shuffled_information({0, 0}, {0, 0}, 1, 50).p, 1) << "nothing was counted";
    // One choice among labels of one and three steps: shuffled, it is of the first label in a quarter of the draws.
    const Shuffled small = shuffled_information({1, 0}, {1, 3}, 7, 2000);
    EXPECT_NEAR(small.p, 0.25, 0.05);
    EXPECT_NEAR(shuffled_information({100000, 100000}, {1000000, 1000000}, 1, 50).mean * 2 * 2e6 * std::log(2.0), 1, 0.7);
}

class Report : public ::testing::Test {
protected:
    void SetUp() override {
        K1Config config;
        config.language = {23, 7, 16, 2, 24};
        config.tree = Tree::regular({2, 2});
        config.count = 3;
        config.labels = {2};
        rig.device = ops::DeviceKind::cpu;
        rig.precision = tape::Precision::f32;
        ASSERT_TRUE(rig.begin(std::make_unique<K1>(config), 4, {5}).ok());
        // recent, worst, chosen and seen by label
        const std::vector<std::vector<float>> rows{{1, 0, 10, 10, 10, 10}, {1, 0, 6, 6, 10, 10}, {1, 3, 10, 0, 10, 10},
                                                   {1, 0, 0, 0, 10, 10},   {1, 0, 6, 6, 10, 10}, {1, 5, 5, 5, 10, 10},
                                                   {1, 12, 5, 5, 10, 10}};
        for (std::size_t n = 0; n < rows.size(); ++n)
            rig.store->write_parameter(model().statistics(), static_cast<int>(n), 0, rows[n]);
    }
    const K1& model() { return static_cast<const K1&>(*rig.model); }
    testing::LanguageRig rig;
};

TEST_F(Report, FiguresByHand) {
    const NodeReport report = node_report(model(), *rig.store, 0);
    EXPECT_EQ(report.steps, 20);
    ASSERT_EQ(report.levels.size(), 2u) << "the root is left out";
    EXPECT_NEAR(report.levels[0].gini, 0, 1e-12);
    EXPECT_NEAR(report.levels[1].gini, gini({10, 0, 10, 10}), 1e-12);
    ASSERT_EQ(report.paths.size(), 4u);
    EXPECT_EQ(report.paths[0].nodes, (std::vector<std::int32_t>{0, 4, 6}));
    EXPECT_NEAR(report.paths[0].share, 0.6, 1e-12);
    EXPECT_EQ(report.paths[3].nodes, (std::vector<std::int32_t>{0, 1, 3}));
    EXPECT_NEAR(report.nodes[2].information, 1, 1e-12);
    EXPECT_GT(report.nodes[2].information, report.nodes[2].shuffled_high);
    EXPECT_LE(report.nodes[5].information, report.nodes[5].shuffled_high);
    EXPECT_EQ(report.nodes[6].level, 2);
    // All nodes have one size, the rest is always updated.
    const auto all = static_cast<double>(rig.store->trainable_count()), node = static_cast<double>(report.nodes[0].parameters);
    EXPECT_NEAR(report.updated_share, (all - 7 * node + node * (1 + 0.6 + 0.5 + 0 + 0.6 + 0.5 + 0.5)) / all, 1e-12);
}

TEST_F(Report, CountsGoOnBeyondWhatAFloatCounts) {
    std::vector<float> row(6), carries{1, 0, 2, 0, 3};
    row[ops::kWorst] = 5;
    row[ops::kLabelColumn + 3] = 7;
    rig.store->write_parameter(model().statistics(), 2, 0, row);
    rig.store->write_parameter(model().carries(), 2, 0, carries);
    const NodeStatistics one = read_statistics(model(), *rig.store, 0)[2];
    EXPECT_EQ(one.worst, 8388608.0 + 5);
    EXPECT_EQ(one.chosen, (std::vector<double>{0, 2 * 8388608.0}));
    EXPECT_EQ(one.seen, (std::vector<double>{0, 3 * 8388608.0 + 7}));
}

TEST_F(Report, FilesHoldTheFigures) {
    const RunReport made = report_nodes(model(), *rig.store);
    ASSERT_EQ(made.files.size(), 2u);
    EXPECT_EQ(made.files[0].name, "nodes.svg");
    EXPECT_EQ(made.files[1].name, "nodes.json");
    const auto parsed = base::json_or_throw(made.files[1].content);
    const auto& member = parsed.at("members").at(0);
    EXPECT_EQ(member.at("nodes").size(), 7u);
    EXPECT_EQ(member.at("nodes").at(2).at("chosen"), 10);
    EXPECT_EQ(member.at("nodes").at(2).at("chosen_by_label"), (std::vector<double>{10, 0}));
    EXPECT_EQ(member.at("paths").at(0).at("path"), (std::vector<int>{0, 4, 6}));
    EXPECT_EQ(member.at("levels").at(1).at("level"), 2);
    const std::string& svg = made.files[0].content;
    EXPECT_TRUE(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    const auto count = [&](const std::string& part) {
        std::size_t found = 0;
        for (std::size_t at = svg.find(part); at != std::string::npos; at = svg.find(part, at + 1)) ++found;
        return found;
    };
    EXPECT_EQ(count("<circle class=\"node\""), 7u);
    EXPECT_EQ(count("class=\"edge\""), 6u);
    EXPECT_EQ(count("class=\"worst\""), 5u) << "all but that to node 3 lie on a path of largest norms";
    EXPECT_EQ(count("class=\"bar\""), 14u);
    EXPECT_EQ(count("class=\"beyond\""), 1u) << "node 2 alone";
    EXPECT_NE(made.summary.find("error path 0-4-6 in 60.0% of the steps"), std::string::npos) << made.summary;
}

}  // namespace
}  // namespace millrace::models
