// Changes of a tree: its shape by hand, what nodes take over, what becomes of the function, and what the statistics propose.

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "models/k1/k1.h"
#include "models/k1/node_report.h"
#include "models/language_rig.h"
#include "train/recipe_keys.h"

namespace millrace::models {
namespace {

using testing::LanguageRig;
using Arena = tape::Store::Arena;
using Parents = std::vector<std::int32_t>;
using Weights = std::vector<double>;

/// 0 (1 (2, 3), 4 (5, 6)).
Tree binary() { return Tree::regular({2, 2}); }

std::vector<Parents> nodes_of(const std::vector<std::vector<Origin>>& origins) {
    std::vector<Parents> nodes;
    for (const std::vector<Origin>& one : origins) {
        nodes.emplace_back();
        for (const Origin& origin : one) nodes.back().push_back(origin.node);
    }
    return nodes;
}

TEST(Reshape, SplitLeavesShareTheWeight) {
    const Reshaped made = split_leaf(binary(), 3);
    EXPECT_EQ(made.tree.parent, (Parents{-1, 0, 1, 1, 0, 4, 4, 1}));
    EXPECT_EQ(made.tree.weight, (Weights{1, 1, 1, 0.5, 1, 1, 1, 0.5}));
    EXPECT_EQ(nodes_of(made.origins), (std::vector<Parents>{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {3}}));
    EXPECT_EQ(made.grown, 7);
    EXPECT_EQ(made.tree.shares(), (Weights{0, 0, 0.25, 0.125, 0, 0.25, 0.25, 0.125}));
}

TEST(Reshape, PrunedLeavesLeaveNoHole) {
    const Reshaped made = prune_leaf(binary(), 2);
    EXPECT_EQ(made.tree.parent, (Parents{-1, 0, 1, 0, 3, 3}));
    EXPECT_EQ(nodes_of(made.origins), (std::vector<Parents>{{0}, {1}, {3}, {4}, {5}, {6}}));
    EXPECT_EQ(made.grown, -1);
}

TEST(Reshape, MergedLeavesAddTheirWeights) {
    Tree tree = binary();
    tree.weight = {1, 1, 1, 1, 1, 3, 1};
    const Reshaped made = merge_leaves(tree, 5, 6);
    EXPECT_EQ(made.tree.parent, (Parents{-1, 0, 1, 1, 0, 4}));
    EXPECT_EQ(made.tree.weight, (Weights{1, 1, 1, 1, 1, 4}));
    EXPECT_EQ(nodes_of(made.origins).back(), (Parents{5, 6}));
    EXPECT_EQ(made.origins.back()[0].share, 0.75);
    EXPECT_EQ(made.origins.back()[1].share, 0.25);
}

TEST(Reshape, MovedLeavesComeLast) {
    const Reshaped made = move_leaf(binary(), 2, 4);
    EXPECT_EQ(made.tree.parent, (Parents{-1, 0, 1, 0, 3, 3, 3}));
    EXPECT_EQ(nodes_of(made.origins), (std::vector<Parents>{{0}, {1}, {3}, {4}, {5}, {6}, {2}}));
    EXPECT_EQ(move_leaf(binary(), 5, 1).tree.parent, (Parents{-1, 0, 1, 1, 0, 4, 1}));
}

std::unique_ptr<K1> model_of(const Tree& tree) {
    K1Config config;
    config.language = {23, 7, 16, 2, 24};
    config.tree = tree;
    config.count = 3;
    return std::make_unique<K1>(config);
}

/// A tree after a few steps, and the changed one beside it.
class Transfer : public ::testing::Test {
protected:
    void SetUp() override {
        begin(before, binary());
        for (std::uint32_t step = 0; step < 6; ++step) {
            before.feed_random(step);
            before.training->run();
        }
    }
    static void begin(LanguageRig& rig, const Tree& tree) {
        rig.device = ops::DeviceKind::cpu;
        rig.precision = tape::Precision::f32;
        rig.settings.kind = ops::OptimizerKind::adamw;
        const auto begun = rig.begin(model_of(tree), 4, {5});
        ASSERT_TRUE(begun.ok()) << begun.error().text();
    }
    void change(const Reshaped& made, double noise = 0) {
        begin(after, made.tree);
        transfer_nodes(made, noise, *before.store, *after.store);
        after.store->write_states(before.store->read_states());
    }
    static double loss(LanguageRig& rig) {
        tape::BuildOptions options;
        options.training = false;
        tape::Builder builder(*rig.store, options);
        (void)rig.model->build(builder, *rig.windows, data::Part::test, rig.rows);
        builder.close_section();
        tape::Arena arena(*rig.backend);
        tape::Program program("evaluation", *rig.store, std::move(builder), arena);
        EXPECT_TRUE(arena.allocate().ok() && program.prepare().ok());
        rig.feed_random(99);
        auto states = rig.store->read_states();
        states[0].loss = 0;
        rig.store->write_states(states);
        program.run();
        return rig.store->read_states()[0].loss / rig.rows;
    }
    static ops::GroupState group(LanguageRig& rig, const std::string& name) {
        const auto found = std::ranges::find(rig.store->groups(), name, &tape::ParameterGroup::name);
        EXPECT_NE(found, rig.store->groups().end()) << name;
        return rig.store->read_groups()[static_cast<std::size_t>(found - rig.store->groups().begin())];
    }
    /// Node `now` has every bit of node `was`: parameters, moments, count, statistics.
    void expect_same(std::int32_t now, std::int32_t was) {
        for (const Arena arena : {Arena::value, Arena::first_moment, Arena::second_moment}) {
            const auto left = testing::trained_tensors(*before.store, arena),
                       right = testing::trained_tensors(*after.store, arena);
            std::size_t seen = 0;
            for (const auto& [name, values] : left)
                if (name.starts_with(K1::prefix_of(was))) {
                    ++seen;
                    EXPECT_EQ(right.at(K1::prefix_of(now) + name.substr(K1::prefix_of(was).size())), values) << name;
                }
            EXPECT_EQ(seen, 12u);
        }
        EXPECT_EQ(group(after, K1::group_of(now)).applied, group(before, K1::group_of(was)).applied);
        EXPECT_EQ(group(after, K1::group_of(now)).last_applied, group(before, K1::group_of(was)).last_applied);
        EXPECT_EQ(statistics(after, now), statistics(before, was));
    }
    void expect_shared_parts() {
        for (const Arena arena : {Arena::value, Arena::first_moment, Arena::second_moment}) {
            const auto left = testing::trained_tensors(*before.store, arena),
                       right = testing::trained_tensors(*after.store, arena);
            std::size_t seen = 0;
            for (const auto& [name, values] : left)
                if (!name.starts_with("nodes.")) {
                    ++seen;
                    EXPECT_EQ(right.at(name), values) << name;
                }
            EXPECT_EQ(seen, 6u) << "tokens, positions, norm and head";
        }
        EXPECT_EQ(group(after, "weights").applied, 6u);
    }
    static std::vector<float> statistics(LanguageRig& rig, std::int32_t node) {
        return rig.store->read_parameter(static_cast<const K1&>(*rig.model).statistics(), node, 0);
    }
    LanguageRig before, after;
};

TEST_F(Transfer, AnEqualTwinChangesNothing) {
    change(split_leaf(binary(), 3));
    EXPECT_NEAR(loss(after), loss(before), 1e-6);
    for (std::int32_t node = 0; node < 7; ++node) expect_same(node, node);
    expect_shared_parts();
    const auto values = testing::trained_tensors(*after.store, Arena::value),
               moments = testing::trained_tensors(*after.store, Arena::first_moment);
    EXPECT_EQ(values.at("nodes.7.linear1.weight"), values.at("nodes.3.linear1.weight"));
    EXPECT_EQ(moments.at("nodes.7.linear1.weight"), std::vector<float>(16 * 24));
    EXPECT_EQ(group(after, "node.7").applied, 0u);
    EXPECT_EQ(statistics(after, 7), std::vector<float>(statistics(after, 7).size()));
    after.training->run();  // and it trains
    EXPECT_EQ(after.store->read_states()[0].step, 7u);
}

TEST_F(Transfer, NoiseIsAShareOfEachTensor) {
    change(split_leaf(binary(), 3), 0.01);
    const auto values = testing::trained_tensors(*after.store, Arena::value);
    const double apart = testing::relative_distance(values.at("nodes.7.linear1.weight"), values.at("nodes.3.linear1.weight"));
    EXPECT_NEAR(apart, 0.01, 0.002);
    for (std::int32_t node = 0; node < 7; ++node) expect_same(node, node);
    EXPECT_NEAR(loss(after), loss(before), 0.01);
}

TEST_F(Transfer, APrunedLeafLeavesTheOthersAlone) {
    change(prune_leaf(binary(), 2));
    expect_shared_parts();
    const std::vector<std::int32_t> was{0, 1, 3, 4, 5, 6};
    for (std::int32_t node = 0; node < 6; ++node) expect_same(node, was[static_cast<std::size_t>(node)]);
    std::int64_t size = 0;
    for (const auto& [name, values] : testing::trained_tensors(*before.store, Arena::value))
        if (name.starts_with("nodes.2.")) size += static_cast<std::int64_t>(values.size());
    EXPECT_EQ(after.store->trainable_count(), before.store->trainable_count() - size);
    EXPECT_NE(loss(after), loss(before));
}

TEST_F(Transfer, MergedLeavesAreTheirMean) {
    Reshaped made = merge_leaves(binary(), 5, 6);
    made.origins[5] = {{5, 0.75}, {6, 0.25}};
    change(made);
    expect_shared_parts();
    for (std::int32_t node = 0; node < 5; ++node) expect_same(node, node);
    for (const Arena arena : {Arena::value, Arena::first_moment, Arena::second_moment}) {
        const auto left = testing::trained_tensors(*before.store, arena), right = testing::trained_tensors(*after.store, arena);
        for (const char* name : {"linear1.weight", "norm2.bias"}) {
            const std::vector<float>&a = left.at(fmt::format("nodes.5.{}", name)), &b = left.at(fmt::format("nodes.6.{}", name)),
                  &mean = right.at(fmt::format("nodes.5.{}", name));
            for (std::size_t i = 0; i < mean.size(); ++i)
                EXPECT_NEAR(mean[i], 0.75 * a[i] + 0.25 * b[i], 1e-6 + 1e-6 * std::abs(mean[i])) << name;
        }
    }
    EXPECT_EQ(group(after, "node.5").applied, std::max(group(before, "node.5").applied, group(before, "node.6").applied));
    EXPECT_EQ(statistics(after, 5), std::vector<float>(statistics(after, 5).size()));
}

TEST_F(Transfer, TwinsThatMergeAreTheLeafBefore) {
    LanguageRig twins, whole;
    const Reshaped split = split_leaf(binary(), 3), merged = merge_leaves(split.tree, 3, 7);
    begin(twins, split.tree);
    transfer_nodes(split, 0, *before.store, *twins.store);
    begin(whole, merged.tree);
    transfer_nodes(merged, 0, *twins.store, *whole.store);
    EXPECT_EQ(merged.tree.parent, binary().parent);
    EXPECT_EQ(testing::trained_tensors(*whole.store, Arena::value), testing::trained_tensors(*before.store, Arena::value));
    EXPECT_EQ(loss(whole), loss(before));
}

TEST_F(Transfer, AMovedLeafKeepsItsBits) {
    change(move_leaf(binary(), 2, 4));
    expect_shared_parts();
    const std::vector<std::int32_t> was{0, 1, 3, 4, 5, 6, 2};
    for (std::int32_t node = 0; node < 7; ++node) expect_same(node, was[static_cast<std::size_t>(node)]);
    EXPECT_NE(loss(after), loss(before));
}

TEST_F(Transfer, StatisticsCountEveryStep) {
    const auto& model = static_cast<const K1&>(*before.model);
    const std::vector<NodeStatistics> counted = read_statistics(model, *before.store, 0);
    double chosen = 0, worst = 0;
    for (std::int32_t node = 0; node < 7; ++node) {
        const NodeStatistics& one = counted[static_cast<std::size_t>(node)];
        EXPECT_EQ(one.steps(), 6);
        EXPECT_EQ(one.chosen_steps(), one.updates);
        EXPECT_GT(one.recent, 0);
        EXPECT_TRUE(one.worst == 0 || model.config().tree.is_leaf(node)) << node;
        chosen += one.chosen_steps();
        worst += one.worst;
    }
    EXPECT_EQ(chosen, 6 * 3);
    EXPECT_EQ(worst, 6);
}

/// Proposals by statistics that the test writes.
class Propose : public Transfer {
protected:
    StructureChange propose(const std::string& operation, const std::vector<std::string>& keys = {}) {
        const auto recipe = train::parse_recipe("[model]\nname = \"k1\"\npreset = \"debug\"\n", "test", {keys, {}});
        EXPECT_TRUE(recipe.ok()) << recipe.error().text();
        return tree_structure().propose(operation, *before.model, *before.store, *recipe);
    }
    /// Of ten steps.
    void count(std::int32_t node, float recent, float chosen) {
        std::vector<float> row = statistics(before, node);
        std::ranges::fill(row, 0.0f);
        row[ops::kRecent] = recent;
        row[ops::kLabelColumn] = chosen;
        row[ops::kLabelColumn + 8] = 10;
        before.store->write_parameter(static_cast<const K1&>(*before.model).statistics(), node, 0, row);
    }
};

TEST_F(Propose, TheStatisticsDecide) {
    const std::vector<float> recent{9, 9, 1, 2, 9, 4, 3}, chosen{10, 5, 2, 3, 5, 8, 7};
    for (std::int32_t node = 0; node < 7; ++node)
        count(node, recent[static_cast<std::size_t>(node)], chosen[static_cast<std::size_t>(node)]);
    const StructureChange grown = propose("grow");
    EXPECT_EQ(grown.settings.front(), "model.tree=-1,0,1,1,0,4,4,4") << grown.text;
    EXPECT_EQ(grown.settings.back(), "model.weights=1,1,1,1,1,0.5,1,0.5");
    EXPECT_EQ(propose("prune").settings.front(), "model.tree=-1,0,1,0,3,3") << "leaf 2 was chosen least";
    EXPECT_EQ(propose("reorganise").settings.front(), "model.tree=-1,0,1,0,3,3,3") << "leaf 2 joins 5 and 6";
    // 5 and 6 become equal but for their length: their cosine is 1.
    for (std::size_t id = 0; id < before.store->parameters().size(); ++id)
        for (int g = 0; g < before.store->parameters()[id].matrices && !before.store->parameters()[id].fixed; ++g)
            if (const std::string& name = before.store->parameters()[id].names[static_cast<std::size_t>(g)];
                name.starts_with("nodes.6.")) {
                std::vector<float> twice = testing::trained_tensors(*before.store, Arena::value).at("nodes.5." + name.substr(8));
                for (float& value : twice) value *= 2;
                before.store->write_parameter(static_cast<tape::ParameterId>(id), g, 0, twice);
            }
    const StructureChange merged = propose("merge");
    EXPECT_EQ(merged.settings.front(), "model.tree=-1,0,1,1,0,4") << merged.text;
    EXPECT_NE(merged.text.find("leaves 5 and 6 become one: the cosine 1.0000"), std::string::npos) << merged.text;
}

TEST_F(Propose, LimitsAndWhatWasNotMeasuredAreNoChange) {
    EXPECT_TRUE(propose("grow", {"structure.most_nodes=7"}).settings.empty());
    EXPECT_FALSE(propose("grow", {"structure.most_nodes=8"}).settings.empty());
    for (const char* operation : {"prune", "merge"}) {
        EXPECT_TRUE(propose(operation, {"structure.least_nodes=7"}).settings.empty());
        EXPECT_FALSE(propose(operation, {"structure.least_nodes=6"}).settings.empty());
    }
    for (std::int32_t node = 0; node < 7; ++node) count(node, 0, 5);
    EXPECT_TRUE(propose("grow").settings.empty());
    EXPECT_EQ(propose("reorganise").text, "no parent's leaves are chosen more often than those of another on its level");
}

}  // namespace
}  // namespace millrace::models
