// The energy flow model through the same doors as every other: trained, resumed and scored on a few pairs of sentences.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "data/makers.h"
#include "train/evaluate.h"
#include "train/tiny_run.h"

namespace millrace::train {
namespace {

using nlohmann::json;

class EnergyFlowRun : public TinyRun {
protected:
    static constexpr std::uint32_t kPairs = 131, kDimensions = 24;  // 118 to train on, 13 to select by: tails in every pass

    void SetUp() override {
        TinyRun::SetUp();
        data::PairsOptions options;
        options.count = kPairs;
        options.dimensions = kDimensions;
        ASSERT_TRUE(data::make_pairs(folder_ / "pairs", options).ok());
    }
    base::Result<base::Recipe> flow_recipe(const std::vector<std::string>& settings) const {
        const std::string text =
            "device = \"cpu\"\nthreads = 2\n[model]\nname = \"energy_flow\"\nwidth = 5\nheight = 4\ndepth = 8\n"
            "hidden = 8\n[data]\npath = \"" +
            (folder_ / "pairs").string() + "\"\n[train]\nepochs = 2\nbatch = 16\n[eval]\nbatch = 5\n[optim]\nlr = 0.01\n";
        return parse_recipe(text, "flow.toml", {settings, {}});
    }
    base::Result<RunResult> flow(const std::string& name, const std::vector<std::string>& settings, bool resume = false,
                                 const std::atomic<int>* stop = nullptr) {
        MILLRACE_LET(recipe, flow_recipe(settings));
        TrainRequest request;
        request.out = folder_ / name;
        request.resume = resume;
        request.command = {"test"};
        request.stop = stop;
        return train(recipe, request, {&observer_});
    }
    std::string refusal(const std::vector<std::string>& settings) {
        const auto result = flow("refused", settings);
        EXPECT_FALSE(result.ok());
        if (result.ok()) return {};
        EXPECT_EQ(result.error().exit_status, 2) << result.error().text();
        EXPECT_FALSE(std::filesystem::exists(folder_ / "refused")) << "nothing half-written";
        return result.error().text();
    }
    std::vector<json> rows(const std::string& run) const {
        std::ifstream in(folder_ / run / "metrics.jsonl");
        std::vector<json> all;
        for (std::string line; std::getline(in, line);) all.push_back(base::json_or_throw(line));
        return all;
    }
};

TEST_F(EnergyFlowRun, TrainingLowersTheLossAndScoresSurfaces) {
    const auto result = flow("run", {"train.epochs=6"});
    ASSERT_TRUE(result.ok()) << result.error().text();
    ASSERT_EQ(observer_.epochs.size(), 6u);
    EXPECT_LT(observer_.epochs.back().training[0].loss, 0.9 * observer_.epochs.front().training[0].loss);
    EXPECT_FALSE(result->classifies);
    EXPECT_FALSE(result->tested);
    EXPECT_EQ(result->held, 13);
    const models::Scored& scored = result->members[0].more;
    for (const char* name : {"validation_cosine", "retrieval_at_1", "mapper_loss", "mapper_cosine", "mapper_retrieval_at_1"})
        ASSERT_NE(scored.find(name), nullptr) << name;
    EXPECT_GT(scored.find("validation_cosine")->value, 0.1);
    EXPECT_NEAR(scored.find("cosine_ceiling")->value, std::sqrt(20.0 / 24), 1e-9);
    EXPECT_EQ(scored.find("flows_created")->value, 13 * 20);
    EXPECT_EQ(scored.find("flow_steps_used")->value, 4);
    EXPECT_EQ(
        scored.find("flows_arrived_up")->value + scored.find("flows_arrived_down")->value + scored.find("flows_projected")->value,
        13 * 20);
    EXPECT_NE(scored.summary.find("ceiling 0.913"), std::string::npos) << scored.summary;
}

TEST_F(EnergyFlowRun, RowsHoldTheFiguresAndNoAccuracy) {
    ASSERT_TRUE(flow("run", {"train.log_interval=1ms"}).ok());
    std::map<std::string, int> kinds;
    for (const json& row : rows("run")) {
        kinds[row.at("kind")] += 1;
        for (const auto& [key, value] : row.items()) EXPECT_EQ(key.find("accuracy"), std::string::npos) << base::json_text(row);
        if (row.at("kind") != "epoch") continue;
        for (const char* key : {"train_loss", "validation_loss", "validation_cosine", "mapper_loss", "flows_reflected",
                                "cell_coverage", "flow_steps_used"})
            EXPECT_TRUE(row.contains(key)) << key;
    }
    EXPECT_EQ(kinds["epoch"], 2);
    EXPECT_GT(kinds["interval"], 0);
    EXPECT_EQ(kinds["test"], 0) << "pairs have no test part";
}

TEST_F(EnergyFlowRun, SpeedInFlopsIsAbsentWhereStepsMayBeLeftOut) {
    // A step at a time: the small products of this model would otherwise run as one chunk, in which nothing is left out.
    const std::vector<std::string> settings{"train.log_interval=1ms", "model.gradient_budget=1B"};
    for (const bool skips : {true, false}) {
        observer_.epochs.clear();
        std::vector<std::string> all = settings;
        if (!skips) all.emplace_back("model.skip_arrived=false");
        const std::string name = skips ? "skips" : "whole";
        const auto result = flow(name, all);
        ASSERT_TRUE(result.ok()) << result.error().text();
        ASSERT_EQ(observer_.epochs.size(), 2u);
        for (const EpochReport& epoch : observer_.epochs) {
            EXPECT_EQ(epoch.pace.flops_per_second.has_value(), !skips);
            EXPECT_FALSE(epoch.pace.flops_share_percent);
            EXPECT_TRUE(epoch.pace.step_ms_p50);
        }
        int seen = 0;
        for (const json& row : rows(name)) {
            if (row.at("kind") != "epoch") {
                EXPECT_FALSE(skips && row.contains("flops_per_second")) << base::json_text(row);
                continue;
            }
            ++seen;
            EXPECT_EQ(row.contains("flops_per_second"), !skips) << base::json_text(row);
            EXPECT_FALSE(row.contains("flops_share_percent")) << base::json_text(row);
        }
        EXPECT_EQ(seen, 2);
    }
}

TEST_F(EnergyFlowRun, ResumedRunHasTheBitsOfOneThatWasNotInterrupted) {
    const std::vector<std::string> settings{"model.noise=0.3", "model.headroom=0.25", "model.spawn_length=0.2"};
    ASSERT_TRUE(flow("whole", settings).ok());
    std::vector<std::string> half = settings;
    half.emplace_back("train.steps=11");  // of 16, in the second epoch
    ASSERT_TRUE(flow("halves", half).ok());
    EXPECT_NE(last("halves"), last("whole"));
    const auto result = flow("halves", settings, true);
    ASSERT_TRUE(result.ok()) << result.error().text();
    EXPECT_EQ(last("halves"), last("whole"));
    EXPECT_EQ(last("halves", "optimizer.safetensors"), last("whole", "optimizer.safetensors"));
}

TEST_F(EnergyFlowRun, EvaluationOfTheCheckpointGivesTheFiguresOfTraining) {
    const auto result = flow("run", {});
    ASSERT_TRUE(result.ok()) << result.error().text();
    const auto evaluated = evaluate_run(folder_ / "run", {});
    ASSERT_TRUE(evaluated.ok()) << evaluated.error().text();
    EXPECT_EQ(evaluated->part, data::Part::validation);
    EXPECT_EQ(evaluated->unit, "pairs");
    EXPECT_EQ(evaluated->members[0].loss, result->members[0].validation_loss);
    ASSERT_EQ(evaluated->members[0].more.figures.size(), result->members[0].more.figures.size());
    for (const models::Figure& figure : result->members[0].more.figures)
        EXPECT_EQ(evaluated->members[0].more.find(figure.name)->value, figure.value) << figure.name;
    // A run that had nothing left to do scores the same weights.
    const auto again = flow("run", {}, true);
    ASSERT_TRUE(again.ok()) << again.error().text();
    EXPECT_EQ(again->members[0].more.summary, result->members[0].more.summary);

    const auto tested = evaluate_run(folder_ / "run", data::Part::test);
    ASSERT_FALSE(tested.ok());
    EXPECT_EQ(tested.error().exit_status, 2);
    EXPECT_NE(tested.error().text().find("no test part"), std::string::npos);
}

TEST_F(EnergyFlowRun, BestWeightsAreBestAtWhatTheRecipeSays) {
    const auto result = flow("run", {"checkpoint.best_metric=validation_cosine", "train.epochs=3"});
    ASSERT_TRUE(result.ok()) << result.error().text();
    double most = -2;
    for (const EpochReport& epoch : observer_.epochs)
        most = std::max(most, epoch.validation[0].more.find("validation_cosine")->value);
    EXPECT_EQ(result->members[0].more.find("validation_cosine")->value, most);
    EXPECT_NE(refusal({"checkpoint.best_metric=validation_accuracy"}).find("checkpoint.best_metric"), std::string::npos);
}

TEST_F(EnergyFlowRun, NothingSetAsideIsSaidAndScoresNothing) {
    const auto result = flow("run", {"data.validation=0"});
    ASSERT_TRUE(result.ok()) << result.error().text();
    EXPECT_EQ(result->held, 0);
    EXPECT_TRUE(result->members[0].more.figures.empty());
    const auto evaluated = evaluate_run(folder_ / "run", {});
    ASSERT_FALSE(evaluated.ok());
    EXPECT_EQ(evaluated.error().exit_status, 4);
}

TEST_F(EnergyFlowRun, DeepMapperTrainsToo) {
    const auto result = flow("run", {"model.mapper=deep", "train.epochs=6", "optim.lr=0.003"});
    ASSERT_TRUE(result.ok()) << result.error().text();
    EXPECT_LT(observer_.epochs.back().training[0].loss, 0.9 * observer_.epochs.front().training[0].loss);
    // Narrowest first layer 384; 24 -> 384 -> 40 -> 20 with two norms.
    const int wanted = 24 * 384 + 384 + 2 * 384 + 384 * 40 + 40 + 2 * 40 + 40 * 20 + 20;
    EXPECT_NE(observer_.starts[0].make.find("deep mapper of " + std::to_string(wanted)), std::string::npos)
        << observer_.starts[0].make;
}

TEST_F(EnergyFlowRun, BadSettingsAreRefusedByName) {
    const std::string images = "data.path=" + (folder_ / "data").string();
    EXPECT_NE(refusal({images}).find("holds images"), std::string::npos);
    EXPECT_NE(refusal({"data.path=" + (folder_ / "nowhere").string()}).find("data.path"), std::string::npos);
    EXPECT_NE(refusal({"data.augment=true"}).find("data.augment"), std::string::npos);
    EXPECT_NE(refusal({"model.headroom=-0.5"}).find("model.headroom"), std::string::npos);
    EXPECT_NE(refusal({"model.hidden=7"}).find("model.hidden"), std::string::npos);
    EXPECT_NE(refusal({"model.mapper=huge"}).find("compact"), std::string::npos);
    EXPECT_NE(refusal({"model.stop_at=1.5"}).find("model.stop_at"), std::string::npos);
    EXPECT_NE(refusal({"members=2"}).find("one member"), std::string::npos);
    EXPECT_NE(refusal({"train.batch=119"}).find("train.batch"), std::string::npos);
    EXPECT_NE(refusal({"model.width=4096", "model.height=4096", "train.batch=100"}).find("train.batch"), std::string::npos);
    const auto collective = run("wrong", {"data.path=" + (folder_ / "pairs").string()});
    ASSERT_FALSE(collective.ok());
    EXPECT_EQ(collective.error().exit_status, 2);
    EXPECT_NE(collective.error().text().find("pairs of sentences"), std::string::npos) << collective.error().text();
}

TEST_F(EnergyFlowRun, VectorsOfAnotherWidthAreRefusedWhenResuming) {
    ASSERT_TRUE(flow("run", {"train.steps=3"}).ok());
    data::PairsOptions narrow;
    narrow.count = kPairs;
    narrow.dimensions = kDimensions - 1;
    ASSERT_TRUE(data::make_pairs(folder_ / "narrow", narrow).ok());
    const std::string path = "data.path=" + (folder_ / "narrow").string();
    const auto resumed = flow("run", {path}, true);
    ASSERT_FALSE(resumed.ok());
    EXPECT_EQ(resumed.error().exit_status, 2);
    const auto evaluated = evaluate_run(folder_ / "run", {}, "", (folder_ / "narrow").string());
    ASSERT_FALSE(evaluated.ok());
    EXPECT_EQ(evaluated.error().exit_status, 2);
    EXPECT_NE(evaluated.error().text().find("mapper.weight"), std::string::npos) << evaluated.error().text();
}

}  // namespace
}  // namespace millrace::train
