// Changes of structure while a run trains: kept, turned down, resumed, evaluated, refused.

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.h"
#include "data/makers.h"
#include "train/evaluate.h"
#include "train/structure.h"
#include "train/tiny_run.h"

namespace millrace::train {
namespace {

constexpr const char* kAll = "structure.operations=grow,prune,merge,reorganise";

class StructureRun : public TinyRun {
protected:
    void SetUp() override {
        TinyRun::SetUp();
        ASSERT_TRUE(data::make_text(folder_ / "text", {1500, 7}).ok());
    }
    static std::vector<std::string> with(std::vector<std::string> settings, const std::vector<std::string>& more) {
        settings.insert(settings.end(), more.begin(), more.end());
        return settings;
    }
    base::Result<RunResult> start(const std::string& name, std::vector<std::string> settings, bool resume = false,
                                  const std::string& text = "text") {
        for (const char* usual :
             {"model.name=k1", "model.preset=debug", "model.width=8", "model.heads=2", "model.inner=8", "data.length=9",
              "data.vocabulary=100", "train.batch=24", "eval.batch=10", "optim.lr=0.01", "telemetry.interval=0s"})
            settings.insert(settings.begin(), usual);
        settings.push_back("data.path=" + (folder_ / text).string());
        TrainRequest request;
        request.out = folder_ / name;
        request.resume = resume;
        request.command = {"test"};
        return train(recipe(std::move(settings)), request, {&observer_});
    }
    struct Event {
        std::int64_t step;
        std::string operation, outcome;
        double before, after;
    };
    std::vector<Event> events(const std::string& name) {
        std::vector<Event> found;
        const std::string text = bytes(name + "/events.jsonl");
        for (std::size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1) {
            const auto row = base::json_or_throw(text.substr(begin, text.find('\n', begin) - begin));
            const auto number = [&](const char* key) { return row.at(key).is_null() ? std::nan("") : row.at(key).get<double>(); };
            if (row.at("kind") == "structure")
                found.push_back(
                    {row.at("step"), row.at("operation"), row.at("outcome"), number("loss_before"), number("loss_after")});
        }
        return found;
    }
    static std::set<std::string> outcomes(const std::vector<Event>& events) {
        std::set<std::string> found;
        for (const Event& event : events) found.insert(event.outcome);
        return found;
    }
    std::string tree(const std::string& name, const std::string& which = "last") {
        const auto state = base::json_or_throw(bytes(name + "/checkpoints/" + which + "/state.json"));
        return base::json_text(state.at("recipe").at("model").at("tree"));
    }
    void expect_equal(const std::string& one, const std::string& other) {
        for (const char* file : {"model.safetensors", "optimizer.safetensors"})
            EXPECT_TRUE(last(one, file) == last(other, file)) << file << " differs";
        const auto state = [&](const std::string& name) {
            auto kept = base::json_or_throw(bytes(name + "/checkpoints/last/state.json"));
            return nlohmann::json{kept.at("members"), kept.at("best"), kept.at("step"), kept.at("epoch_sums")};
        };
        EXPECT_EQ(state(one), state(other));
    }
};

/// The bar of the whole: what is turned down leaves no trace.
TEST_F(StructureRun, AChangeThatIsTurnedDownNeverHappened) {
    const std::vector<std::string> usual{"train.epochs=3", "model.dropout=0.1", "model.policy=path_cooldown", "model.cooldown=3"};
    const auto plain = start("plain", usual);
    ASSERT_TRUE(plain.ok()) << plain.error().text();
    // Three paths lead to the leaves of two parents: one of them has more to give its leaf to.
    const std::vector<std::string> never =
        with(usual, {"structure.operations=reorganise,grow,prune,merge", "structure.interval=3", "structure.tolerance=-100"});
    ASSERT_TRUE(start("direct", never).ok());
    EXPECT_EQ(outcomes(events("direct")), (std::set<std::string>{"turned down"}));
    EXPECT_GE(events("direct").size(), 4u);
    expect_equal("direct", "plain");
    EXPECT_EQ(bytes("direct/nodes.json"), bytes("plain/nodes.json"));

    ASSERT_TRUE(start("trial", with(never, {"structure.trial_steps=4"})).ok());
    EXPECT_EQ(outcomes(events("trial")), (std::set<std::string>{"turned down"}));
    expect_equal("trial", "plain");
}

TEST_F(StructureRun, EachOperationHappensAndTheRunGoesOn) {
    const std::vector<std::string> always{kAll, "train.epochs=3", "structure.interval=4", "structure.tolerance=100",
                                          "structure.tries=4"};
    const auto result = start("a", always);
    ASSERT_TRUE(result.ok()) << result.error().text();
    const std::vector<Event> found = events("a");
    ASSERT_EQ(found.size(), 4u);
    const std::vector<std::string> operations{"grow", "prune", "merge", "reorganise"};
    for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(found[i].operation, operations[i]);
        EXPECT_EQ(found[i].outcome, "kept") << operations[i];
        EXPECT_EQ(found[i].step, static_cast<std::int64_t>(4 * (i + 1)));
    }
    EXPECT_NEAR(found[0].before, found[0].after, 0.01) << "a copy with little noise changes little";
    EXPECT_NE(found[3].before, found[3].after);
    // 7 nodes, one more, two fewer.
    EXPECT_EQ(base::json_or_throw(tree("a")).size(), 6u);
    EXPECT_EQ(base::json_or_throw(bytes("a/nodes.json")).at("members").at(0).at("nodes").size(), 6u);
    EXPECT_TRUE(bytes("a/nodes.svg").starts_with("<svg"));
    EXPECT_EQ(observer_.epochs.size(), 3u);
    EXPECT_LT(observer_.epochs.back().validation[0].loss, observer_.epochs.front().validation[0].loss);
    EXPECT_EQ(result->dropped, 0u);
    EXPECT_LT(result->parameters, observer_.starts[0].parameters);
    // The weights of a changed tree are scored and asked for text by their own recipe.
    const auto scored = evaluate_run(folder_ / "a", std::nullopt);
    ASSERT_TRUE(scored.ok()) << scored.error().text();
    EXPECT_NEAR(scored->members[0].loss, result->members[0].test_loss, 1e-6);
    EXPECT_NE(scored->about.find(" nodes: "), std::string::npos) << scored->about;
    const auto best = load_best(folder_ / "a", "", "");
    ASSERT_TRUE(best.ok());
    const auto told = best->family->go_on({best->recipe, best->checkpoint, ops::DeviceKind::cpu, tape::Precision::f32, "the", 5});
    EXPECT_TRUE(told.ok()) << told.error().text();
}

TEST_F(StructureRun, EveryTokenCountsAlikeWhateverTheBatch) {
    const std::vector<std::string> always{"structure.operations=grow", "train.epochs=1", "structure.interval=4",
                                          "structure.tolerance=100", "data.length=10"};
    ASSERT_TRUE(start("ten", always).ok());
    ASSERT_TRUE(start("seven", with(always, {"eval.batch=7"})).ok());
    const std::vector<Event> ten = events("ten"), seven = events("seven");
    ASSERT_EQ(ten.size(), 1u);
    ASSERT_EQ(seven.size(), 1u);
    EXPECT_NEAR(ten[0].before, seven[0].before, 1e-6);
    EXPECT_NEAR(ten[0].after, seven[0].after, 1e-6);
    EXPECT_GT(std::abs(observer_.epochs[0].validation[0].loss - observer_.epochs[1].validation[0].loss), 1e-5)
        << "the mean over batches, as the last window is short";
}

TEST_F(StructureRun, AResumedRunHasTheSameBits) {
    const std::vector<std::string> always{kAll,
                                          "train.epochs=3",
                                          "structure.interval=4",
                                          "structure.tolerance=100",
                                          "structure.trial_steps=2",
                                          "model.dropout=0.1"};
    ASSERT_TRUE(start("whole", always).ok());
    ASSERT_GT(events("whole").size(), 4u);
    for (const char* stop : {"train.steps=8", "train.steps=9"}) {  // where a change is due, and behind it
        const std::string name = stop;
        ASSERT_TRUE(start(name, with(always, {stop})).ok());
        EXPECT_NE(tree(name), tree("whole"));
        const auto resumed = start(name, always, true);
        ASSERT_TRUE(resumed.ok()) << resumed.error().text();
        EXPECT_EQ(tree(name), tree("whole"));
        expect_equal(name, "whole");
    }
}

/// Each engine has its own captured steps and its own ring.
TEST_F(StructureRun, OnAGpu) {
    if (const base::Status there = ops::cuda_available(); !there.ok()) GTEST_SKIP() << there.error().text();
    const std::vector<std::string> always{kAll,
                                          "device=cuda",
                                          "train.epochs=3",
                                          "structure.interval=4",
                                          "structure.tolerance=100",
                                          "structure.trial_steps=2",
                                          "structure.tries=4"};
    const auto result = start("whole", always);
    ASSERT_TRUE(result.ok()) << result.error().text();
    EXPECT_EQ(result->dropped, 0u);
    EXPECT_EQ(outcomes(events("whole")), (std::set<std::string>{"kept"}));
    EXPECT_EQ(base::json_or_throw(tree("whole")).size(), 6u);
    EXPECT_LT(observer_.epochs.back().validation[0].loss, observer_.epochs.front().validation[0].loss);
    ASSERT_TRUE(start("parts", with(always, {"train.steps=9"})).ok());
    const auto resumed = start("parts", always, true);
    ASSERT_TRUE(resumed.ok()) << resumed.error().text();
    expect_equal("parts", "whole");
}

TEST_F(StructureRun, TheBestWeightsMayHaveAnotherTree) {
    // Nothing is learned, and the change makes the loss larger: the weights of the first epoch stay the best.
    const auto result = start("a", {"structure.operations=grow", "structure.noise=1", "train.epochs=3", "structure.interval=13",
                                    "structure.tolerance=100", "optim.lr=0"});
    ASSERT_TRUE(result.ok()) << result.error().text();
    ASSERT_EQ(tree("a", "best"), "[]");
    ASSERT_NE(tree("a"), "[]");
    const auto scored = evaluate_run(folder_ / "a", std::nullopt);
    ASSERT_TRUE(scored.ok()) << scored.error().text();
    EXPECT_EQ(scored->members[0].loss, result->members[0].test_loss);
}

TEST_F(StructureRun, HostileValuesAreRefused) {
    const auto refused = [&](const std::vector<std::string>& settings, const std::string& what) {
        const auto result = start("a", settings);
        ASSERT_FALSE(result.ok()) << settings.front();
        EXPECT_NE(result.error().text().find(what), std::string::npos) << result.error().text();
        EXPECT_EQ(result.error().exit_status, 2);
        EXPECT_FALSE(std::filesystem::exists(folder_ / "a")) << settings.front();
    };
    refused({"structure.operations=grow,shrink"},
            "structure.operations has 'shrink'; one of grow, prune, merge, reorganise would be right");
    refused({"structure.operations=grow,,prune"}, "has ''");
    refused({"structure.operations=grow,"}, "has ''");
    refused({"structure.operations=grow", "members=2"}, "structure.operations needs members = 1, not 2");
    refused({"model.tree=-1,0,3"}, "model.tree has 3 as the parent of node 2; 0 to 1 would be right");
    refused({"model.tree=0,0"}, "model.tree has 0 as the parent of node 0; -1 would be right");
    refused({"model.tree=-1,0,0", "model.weights=1,2"}, "model.weights has 2 entries for 3 nodes");
    for (const char* setting : {"structure.interval=0", "structure.tries=0", "structure.noise=-1", "model.weights=0,1",
                                "structure.most_nodes=100000", "structure.trial_steps=-1"}) {
        const auto parsed = parse_recipe("[model]\nname = \"k1\"\n", "r.toml", {{setting}, {}});
        ASSERT_FALSE(parsed.ok()) << setting;
        EXPECT_NE(parsed.error().text().find(setting), std::string::npos) << parsed.error().text();
    }
    // A family that cannot change has no such keys.
    EXPECT_FALSE(parse_recipe("[model]\nname = \"transformer\"\n[structure]\ninterval = 5\n", "r.toml", {}).ok());
}

TEST_F(StructureRun, DomainsAreTheLabelsOfNodes) {
    ASSERT_TRUE(data::make_text(folder_ / "texts/sea", {1500, 7}).ok());
    ASSERT_TRUE(data::make_text(folder_ / "texts/land", {1500, 8}).ok());
    const std::vector<std::string> settings{"data.domains=sea,land", "train.epochs=4", "structure.operations=grow",
                                            "structure.interval=9"};
    const auto result = start("a", settings, false, "texts");
    ASSERT_TRUE(result.ok()) << result.error().text();
    const auto nodes = base::json_or_throw(bytes("a/nodes.json"));
    EXPECT_EQ(nodes.at("label_names"), (std::vector<std::string>{"sea", "land"}));
    const auto half = static_cast<double>(result->step) / 2;
    EXPECT_EQ(nodes.at("members").at(0).at("nodes").at(0).at("steps_by_label"), (std::vector<double>{half, half}));
    ASSERT_TRUE(start("parts", with(settings, {"train.steps=13"}), false, "texts").ok());
    ASSERT_TRUE(start("parts", settings, true, "texts").ok());
    expect_equal("parts", "a");
    EXPECT_EQ(bytes("parts/nodes.json"), bytes("a/nodes.json"));
}

TEST_F(StructureRun, AnotherTreeIsAnotherRun) {
    ASSERT_TRUE(start("a", {"train.epochs=2", "train.steps=5", "model.tree=-1,0,0"}).ok());
    const auto resumed = start("a", {"train.epochs=2", "model.tree=-1,0,0,0"}, true);
    ASSERT_FALSE(resumed.ok());
    EXPECT_NE(resumed.error().text().find("model.tree"), std::string::npos) << resumed.error().text();
}

}  // namespace
}  // namespace millrace::train
