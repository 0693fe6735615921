// Runs that learn texts of several domains one after the other.

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "data/makers.h"
#include "data/text/text_files.h"
#include "train/console.h"
#include "train/evaluate.h"
#include "train/tiny_run.h"

namespace millrace::train {
namespace {

class DomainRun : public TinyRun {
protected:
    void SetUp() override {
        TinyRun::SetUp();
        ASSERT_TRUE(data::make_text(folder_ / "texts/sea", {2600, 7}).ok());
        ASSERT_TRUE(data::make_text(folder_ / "texts/land", {1900, 8}).ok());
        ASSERT_TRUE(data::make_text(folder_ / "texts/air", {2200, 9}).ok());
    }
    /// Four members: two policies with two seeds.
    base::Result<RunResult> start(const std::string& name, std::vector<std::string> settings, bool resume = false,
                                  const io::Path& init = {}) {
        for (const std::string usual : {"model.name=k1",
                                        "model.preset=debug",
                                        "model.branching=[2]",
                                        "model.k=1",
                                        "model.width=8",
                                        "model.inner=8",
                                        "data.length=9",
                                        "data.vocabulary=200",
                                        "data.domains=sea,land,air",
                                        "data.windows_per_epoch=50",
                                        "train.batch=24",
                                        "train.epochs=6",
                                        "eval.batch=10",
                                        "optim.lr=0.03",
                                        "telemetry.interval=0s",
                                        "members=4",
                                        "seed=[5,6,5,6]",
                                        "model.policy=topk,topk,dense,dense",
                                        "eval.compare=model.policy",
                                        "eval.controls=dense"})
            settings.insert(settings.begin(), usual);
        settings.insert(settings.begin(), "data.path=" + (folder_ / "texts").string());
        TrainRequest request;
        request.out = folder_ / name;
        request.resume = resume;
        request.init = init;
        request.command = {"test"};
        observer_.epochs.clear();
        return train(recipe(std::move(settings)), request, {&observer_});
    }
    [[nodiscard]] std::string refusal(const std::string& name, std::vector<std::string> settings, bool resume = false) {
        const auto result = start(name, std::move(settings), resume);
        EXPECT_FALSE(result.ok());
        if (result.ok()) return {};
        EXPECT_EQ(result.error().exit_status, 2);
        return result.error().text();
    }
    [[nodiscard]] nlohmann::json continual(const std::string& name) const {
        return base::json_or_throw(bytes(name + "/continual.json"));
    }
};

TEST_F(DomainRun, EveryDomainIsScoredAfterEveryStage) {
    const auto result = start("a", {});
    ASSERT_TRUE(result.ok()) << result.error().text();
    ASSERT_EQ(observer_.epochs.size(), 6u);
    const char* learned[] = {"sea", "sea", "land", "land", "air", "air"};
    const auto json = continual("a");
    EXPECT_TRUE(json.at("complete").get<bool>());
    EXPECT_EQ(json.at("domains"), (std::vector<std::string>{"sea", "land", "air"}));
    for (std::size_t i = 0; i < 6; ++i) {
        const EpochReport& epoch = observer_.epochs[i];
        EXPECT_EQ(epoch.domain, learned[i]);
        EXPECT_NE(epoch_text(epoch).find(std::string(" (") + learned[i] + ")"), std::string::npos);
        ASSERT_EQ(epoch.validation.size(), 4u);
        for (std::size_t k = 0; k < 4; ++k) {
            ASSERT_EQ(epoch.validation[k].domains.size(), 3u);
            for (std::size_t d = 0; d < 3; ++d) {
                const double loss = json.at("epochs")[i].at("loss")[k][d].get<double>();
                EXPECT_DOUBLE_EQ(loss, std::log(epoch.validation[k].domains[d].more.find("perplexity")->value));
                if (i % 2 == 1) {
                    EXPECT_EQ(json.at("members")[k].at("loss")[i / 2][d].get<double>(), loss);
                }
            }
        }
    }
    EXPECT_EQ(json.at("members")[1].at("group"), "topk");
    EXPECT_EQ(json.at("members")[3].at("seed"), 6);
    ASSERT_EQ(json.at("comparisons").size(), 1u);
    const std::string sentence = json["comparisons"][0].at("conclusion");
    EXPECT_NE(finish_text(*result).find(sentence), std::string::npos) << finish_text(*result);
    EXPECT_TRUE(sentence.find("topk") == 0 && sentence.find("dense") != std::string::npos) << sentence;
    EXPECT_TRUE(bytes("a/continual.svg").starts_with("<svg"));
}

TEST_F(DomainRun, ADomainsLossIsThatOfASeparateEvaluation) {
    ASSERT_TRUE(start("a", {}).ok());
    const auto json = continual("a");
    const auto evaluated = evaluate_run(folder_ / "a", data::Part::validation);
    ASSERT_TRUE(evaluated.ok()) << evaluated.error().text();
    EXPECT_EQ(evaluated->domains, (std::vector<std::string>{"sea", "land", "air"}));
    const char* names[] = {"sea", "land", "air"};
    for (std::size_t d = 0; d < 3; ++d) {
        // The last weights on the text of one domain by itself: nothing is learned at a rate of 0.
        ASSERT_TRUE(start(names[d],
                          {"data.path=" + (folder_ / "texts" / names[d]).string(), "data.domains=", "data.windows_per_epoch=0",
                           "optim.lr=0", "train.epochs=1"},
                          false, folder_ / "a")
                        .ok());
        ASSERT_EQ(observer_.epochs.size(), 1u);
        for (std::size_t k = 0; k < 4; ++k) {
            const Score& alone = observer_.epochs[0].validation[k];
            EXPECT_EQ(evaluated->members[k].domains[d].loss, alone.loss);
            EXPECT_DOUBLE_EQ(json.at("members")[k].at("perplexity")[2][d].get<double>(), alone.more.find("perplexity")->value);
        }
    }
}

TEST_F(DomainRun, WhatALaterDomainContradictsIsForgotten) {
    const auto repeated = [](const char* words, int times) {
        std::string text;
        for (int i = 0; i < times; ++i) text += words;
        return text;
    };
    for (const auto& [name, words] : {std::pair{"xy", "x y "}, std::pair{"xz", "x z "}})
        data::testing::write_texts(folder_ / "texts" / name, repeated(words, 600), repeated(words, 60), repeated(words, 60));
    const auto result = start("a", {"data.domains=xy,xz", "data.vocabulary=20", "train.epochs=16"});
    ASSERT_TRUE(result.ok()) << result.error().text();
    for (const auto& member : continual("a").at("members")) {
        EXPECT_LT(member.at("loss")[0][0].get<double>(), 0.1) << member;
        EXPECT_LT(member.at("loss")[1][1].get<double>(), 0.1) << member;
        EXPECT_GT(member.at("mean_forgetting").get<double>(), 1) << member;
        EXPECT_EQ(member.at("forgetting").size(), 1u);
    }
    // Learning the last domain well makes the whole worse, and yet its weights are the ones that count.
    double least = INFINITY;
    for (const EpochReport& epoch : observer_.epochs) least = std::min(least, epoch.validation[0].loss);
    EXPECT_GT(observer_.epochs.back().validation[0].loss, least + 0.5);
    EXPECT_EQ(result->members[0].best_epoch, 16u);
    for (const EpochReport& epoch : observer_.epochs) EXPECT_TRUE(epoch.best) << epoch.epoch;
}

TEST_F(DomainRun, MembersOfOneSeedStartAlikeAndDifferByTheirPolicy) {
    ASSERT_TRUE(start("a", {"train.epochs=3", "model.policy=dense,dense,dense,dense", "eval.controls="}).ok());
    auto json = continual("a");
    EXPECT_EQ(json.at("members")[0].at("loss"), json.at("members")[2].at("loss")) << "the same weights, windows and updates";
    EXPECT_NE(json.at("members")[0].at("loss"), json.at("members")[1].at("loss"));
    ASSERT_TRUE(start("b", {"train.epochs=3"}).ok());
    json = continual("b");
    EXPECT_NE(json.at("members")[0].at("loss"), json.at("members")[2].at("loss"));
}

TEST_F(DomainRun, AResumedRunHasTheSameBits) {
    ASSERT_TRUE(start("whole", {}).ok());
    // Three steps an epoch: in the middle of the second epoch of the second domain.
    ASSERT_TRUE(start("parts", {"train.steps=11"}).ok());
    EXPECT_FALSE(continual("parts").at("complete").get<bool>());
    EXPECT_EQ(continual("parts").at("members")[0].at("loss").size(), 1u) << "the second stage has not ended";
    EXPECT_EQ(continual("parts").at("epochs").size(), 3u);
    ASSERT_TRUE(start("parts", {}, true).ok());
    for (const char* file : {"member-000/model.safetensors", "member-003/model.safetensors"})
        EXPECT_EQ(last("parts", file), last("whole", file));
    EXPECT_EQ(bytes("parts/continual.json"), bytes("whole/continual.json"));
    EXPECT_EQ(bytes("parts/continual.svg"), bytes("whole/continual.svg"));
    EXPECT_NE(refusal("parts", {"train.epochs=9"}, true).find("which its domains share"), std::string::npos);
    EXPECT_NE(refusal("parts", {"data.domains=sea,air,land"}, true).find("data.domains"), std::string::npos);
}

TEST_F(DomainRun, AnyKeyOfTheMembersCanBeCompared) {
    const auto result = start("a", {"train.epochs=3", "optim.lr=[0.03,0.03,0,0]", "eval.compare=optim.lr", "eval.controls=0.0"});
    ASSERT_TRUE(result.ok()) << result.error().text();
    const auto json = continual("a");
    EXPECT_EQ(json.at("members")[0].at("group"), "0.03");
    EXPECT_EQ(json.at("groups")[1].at("mean_forgetting").at("mean"), 0) << "nothing learned, nothing forgotten";
}

TEST_F(DomainRun, MistakesAreRefusedBeforeARunBegins) {
    EXPECT_NE(refusal("a", {"data.domains=sea,fire"}).find("texts/fire: no such folder"), std::string::npos);
    EXPECT_NE(refusal("a", {"train.epochs=7"}).find("9 would be right"), std::string::npos);
    EXPECT_NE(refusal("a", {"train.patience=2"}).find("train.patience = 0 would be right"), std::string::npos);
    EXPECT_NE(refusal("a", {"eval.compare=model.polcy"}).find("is no key of the recipe; one with a value for each of 4 members"),
              std::string::npos);
    EXPECT_NE(refusal("a", {"eval.compare=optim.lr"}).find("one for each of 4 members"), std::string::npos);
    EXPECT_NE(refusal("a", {"eval.controls=dense,random_k"}).find("'random_k', which no member has"), std::string::npos);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "a"));
}

}  // namespace
}  // namespace millrace::train
