#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <map>

#include "io/checkpoint.h"
#include "record/run_directory.h"
#include "train/evaluate.h"
#include "train/run_state.h"
#include "train/tiny_run.h"

namespace millrace::train {
namespace {

using Trainer = TinyRun;

TEST_F(Trainer, AFewEpochsBeatChanceAndTestOnce) {
    const auto result = run("a", {"train.epochs=6"});
    ASSERT_TRUE(result.ok()) << result.error().text();
    ASSERT_EQ(result->members.size(), 1u);
    EXPECT_GT(result->members[0].validation_accuracy, 0.3);
    EXPECT_GT(result->members[0].test_accuracy, 0.3);
    EXPECT_EQ(result->epochs, 6u);
    EXPECT_EQ(result->step, 6u * 7u);  // 394 images in batches of 64: six whole ones and a tail
    ASSERT_EQ(observer_.epochs.size(), 6u);
    EXPECT_LT(observer_.epochs.back().training[0].loss, observer_.epochs.front().training[0].loss);

    const auto log = record::read_metrics(folder_ / "a/metrics.jsonl");
    ASSERT_TRUE(log.ok());
    EXPECT_EQ(log->skipped, 0u);
    std::map<std::string, int> kinds;
    for (const record::MetricsRow& row : log->rows) kinds[std::get<std::string>(*row.find("kind"))]++;
    EXPECT_EQ(kinds["epoch"], 6);
    EXPECT_EQ(kinds["test"], 1);
    EXPECT_GE(kinds["interval"], 1);
    const auto manifest = record::read_manifest(folder_ / "a");
    ASSERT_TRUE(manifest.ok());
    EXPECT_EQ(manifest->status, record::RunStatus::kFinished);
}

TEST_F(Trainer, EpochMeansCoverEveryImageOnce) {
    ASSERT_TRUE(run("a", {"train.epochs=1"}).ok());
    const auto log = record::read_metrics(folder_ / "a/metrics.jsonl");
    ASSERT_TRUE(log.ok());
    double steps = 0;
    for (const record::MetricsRow& row : log->rows)
        if (std::get<std::string>(*row.find("kind")) == "interval") steps += *row.number("steps");
    EXPECT_EQ(steps, 7);
    const double accuracy = observer_.epochs.at(0).training[0].accuracy * 394;
    EXPECT_NEAR(accuracy, std::round(accuracy), 1e-9);
    const double validation = observer_.epochs.at(0).validation[0].accuracy * 43;
    EXPECT_NEAR(validation, std::round(validation), 1e-9);
}

TEST_F(Trainer, SameSeedTwiceGivesTheSameBits) {
    ASSERT_TRUE(run("a", {}).ok());
    ASSERT_TRUE(run("b", {}).ok());
    EXPECT_EQ(last("a"), last("b"));
    ASSERT_TRUE(run("c", {"seed=43"}).ok());
    EXPECT_NE(last("a"), last("c"));
}

TEST_F(Trainer, EvaluationSizeAndLoggingChangeNoWeight) {
    ASSERT_TRUE(run("a", {}).ok());
    ASSERT_TRUE(run("b", {"eval.batch=43", "train.log_interval=1ms", "checkpoint.every_epochs=2"}).ok());
    EXPECT_EQ(last("a"), last("b"));
}

TEST_F(Trainer, ResumedRunEqualsTheUninterruptedToTheBit) {
    for (const std::vector<std::string>& extra :
         {std::vector<std::string>{},
          {"optim.name=sgd", "optim.schedule=cosine", "optim.warmup_steps=3"},
          {"optim.decay_biases=false", "optim.weight_decay=0.1"},
          {"train.accumulate=3", "train.batch=32", "data.augment=true", "checkpoint.compress=true"}}) {
        std::vector<std::string> eight = extra, four = extra;
        eight.push_back("train.steps=8");
        four.push_back("train.steps=4");
        ASSERT_TRUE(run("whole", eight).ok());
        ASSERT_TRUE(run("parts", four).ok());
        const std::string early = last("parts");
        const auto resumed = run("parts", eight, true);
        ASSERT_TRUE(resumed.ok()) << resumed.error().text();
        EXPECT_EQ(resumed->step, 8u);
        EXPECT_NE(last("parts"), early);
        EXPECT_EQ(last("whole"), last("parts"));
        const char* moments = extra.size() < 4 ? "optimizer.safetensors" : "optimizer.safetensors.zst";
        EXPECT_EQ(last("whole", moments), last("parts", moments));
        std::filesystem::remove_all(folder_ / "whole");
        std::filesystem::remove_all(folder_ / "parts");
    }
}

TEST_F(Trainer, ResumeTruncatesMetricsToTheCheckpoint) {
    ASSERT_TRUE(run("a", {"train.epochs=1"}).ok());
    {
        std::ofstream more(folder_ / "a/metrics.jsonl", std::ios::app);
        more << "{\"kind\": \"interval\", \"step\": 999}\n{\"torn";
    }
    ASSERT_TRUE(run("a", {"train.epochs=2"}, true).ok());
    const auto log = record::read_metrics(folder_ / "a/metrics.jsonl");
    ASSERT_TRUE(log.ok());
    EXPECT_EQ(log->skipped, 0u);
    double before = 0;
    for (const record::MetricsRow& row : log->rows) {
        EXPECT_NE(*row.number("step"), 999);
        EXPECT_GE(*row.number("step"), before);
        before = *row.number("step");
    }
    EXPECT_EQ(before, 14);
}

TEST_F(Trainer, ResumeMayRaiseEpochsAndEqualsTheLongRun) {
    ASSERT_TRUE(run("short", {"train.epochs=1"}).ok());
    ASSERT_TRUE(run("short", {"train.epochs=3"}, true).ok());
    ASSERT_TRUE(run("long", {"train.epochs=3"}).ok());
    EXPECT_EQ(last("short"), last("long"));
    const auto fewer = run("short", {"train.epochs=2"}, true);
    ASSERT_FALSE(fewer.ok());
    EXPECT_NE(fewer.error().text().find("train.epochs"), std::string::npos);
}

TEST_F(Trainer, ResumeInF16HasTheBitsAndTheLossScale) {
    if (const auto there = ops::cuda_available(); !there.ok()) GTEST_SKIP() << there.error().text();
    std::vector<std::string> settings{"device=cuda", "precision=f16", "deterministic=true", "train.epochs=1"};
    ASSERT_TRUE(run("short", settings).ok());
    settings.back() = "train.epochs=3";
    ASSERT_TRUE(run("short", settings, true).ok());
    ASSERT_TRUE(run("long", settings).ok());
    EXPECT_EQ(last("short"), last("long"));
    const ops::MemberState resumed = decode_state(last("short", "state.json"), "short").value().members[0],
                           whole = decode_state(last("long", "state.json"), "long").value().members[0];
    EXPECT_GT(whole.loss_scale, 1);
    EXPECT_EQ(std::pair(resumed.loss_scale, resumed.good_steps), std::pair(whole.loss_scale, whole.good_steps));
}

TEST_F(Trainer, ResumeOfACompleteRunTrainsNothing) {
    const auto first = run("a", {});
    ASSERT_TRUE(first.ok());
    const auto again = run("a", {}, true);
    ASSERT_TRUE(again.ok()) << again.error().text();
    EXPECT_TRUE(again->was_complete);
    EXPECT_EQ(again->members[0].test_accuracy, first->members[0].test_accuracy);
    EXPECT_EQ(again->members[0].validation_accuracy, first->members[0].validation_accuracy);
    const auto log = record::read_metrics(folder_ / "a/metrics.jsonl");
    const auto tests = std::ranges::count_if(
        log->rows, [](const record::MetricsRow& row) { return std::get<std::string>(*row.find("kind")) == "test"; });
    EXPECT_EQ(tests, 1);
}

TEST_F(Trainer, ResumeRefusesAChangedKeyByName) {
    ASSERT_TRUE(run("a", {"train.steps=2"}).ok());
    for (const char* change : {"optim.lr=0.01", "train.batch=32", "model.n_experts=3", "seed=1"}) {
        const std::string setting = change;
        const auto refused = run("a", {"train.steps=4", setting}, true);
        ASSERT_FALSE(refused.ok()) << change;
        EXPECT_NE(refused.error().text().find(setting.substr(0, setting.find('='))), std::string::npos) << refused.error().text();
        EXPECT_EQ(refused.error().exit_status, 2);
    }
    const auto other = run("a", {"train.steps=4", "model.name=shallow"}, true);
    ASSERT_FALSE(other.ok());
    EXPECT_NE(other.error().text().find("model.name"), std::string::npos) << other.error().text();
}

TEST_F(Trainer, ResumeRefusesOtherData) {
    ASSERT_TRUE(run("a", {"train.steps=2"}).ok());
    ASSERT_TRUE(data::make_garments(folder_ / "other", {kTrain, kTest, 8}).ok());
    const auto refused = run("a", {"train.steps=4", "data.path=" + (folder_ / "other").string()}, true);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().text().find("other data"), std::string::npos) << refused.error().text();
    std::filesystem::rename(folder_ / "data", folder_ / "moved");
    EXPECT_TRUE(run("a", {"train.steps=4", "data.path=" + (folder_ / "moved").string()}, true).ok());
}

TEST_F(Trainer, NewRunRefusesAFolderThatHoldsOne) {
    ASSERT_TRUE(run("a", {"train.steps=1"}).ok());
    const auto again = run("a", {"train.steps=1"});
    ASSERT_FALSE(again.ok());
    EXPECT_EQ(again.error().exit_status, 2);
    EXPECT_FALSE(run("missing", {}, true).ok());
}

TEST_F(Trainer, StopSavesAndTheRestEqualsTheWholeRun) {
    const std::atomic<int> stop{SIGTERM};
    const auto stopped = run("a", {}, false, &stop);
    ASSERT_TRUE(stopped.ok()) << stopped.error().text();
    EXPECT_EQ(stopped->signal, SIGTERM);
    const auto manifest = record::read_manifest(folder_ / "a");
    ASSERT_TRUE(manifest.ok());
    EXPECT_EQ(manifest->status, record::RunStatus::kInterrupted);
    ASSERT_TRUE(run("a", {}, true).ok());
    ASSERT_TRUE(run("b", {}).ok());
    EXPECT_EQ(last("a"), last("b"));
}

TEST_F(Trainer, MembersEqualSeparateRunsToTheBitWhenDeterministic) {
    const char* rates[] = {"1e-3", "3e-3", "5e-4", "2e-3"};
    ASSERT_TRUE(
        run("all", {"members=4", "deterministic=true", "train.epochs=1", "seed=10", "optim.lr=1e-3,3e-3,5e-4,2e-3"}).ok());
    for (int k = 0; k < 4; ++k) {
        const std::string name = "one" + std::to_string(k);
        ASSERT_TRUE(run(name, {"deterministic=true", "train.epochs=1", "seed=" + std::to_string(10 + k),
                               std::string("optim.lr=") + rates[k]})
                        .ok());
        EXPECT_EQ(bytes("all/checkpoints/last/member-00" + std::to_string(k) + "/model.safetensors"), last(name)) << k;
    }
}

TEST_F(Trainer, MembersWithTheirOwnHyperParametersEqualSeparateRuns) {
    const std::vector<std::string> common{"deterministic=true", "train.epochs=1", "optim.schedule=cosine",
                                          "optim.decay_biases=false"};
    const std::vector<std::pair<std::string, std::vector<std::string>>> lists{
        {"optim.weight_decay", {"0.1", "0.01"}}, {"optim.beta1", {"0.9", "0.5"}},      {"optim.beta2", {"0.999", "0.9"}},
        {"optim.eps", {"1e-8", "1e-5"}},         {"optim.clip_norm", {"0", "0.1"}},    {"optim.warmup_epochs", {"0.5", "0"}},
        {"optim.floor", {"0", "0.3"}},           {"optim.step_epochs", {"1", "0.25"}}, {"seed", {"10", "20"}}};
    std::vector<std::string> all = common;
    all.emplace_back("members=2");
    for (const auto& [key, values] : lists) all.push_back(key + "=" + values[0] + "," + values[1]);
    const auto together = run("all", all);
    ASSERT_TRUE(together.ok()) << together.error().text();
    for (std::size_t k = 0; k < 2; ++k) {
        std::vector<std::string> one = common;
        for (const auto& [key, values] : lists) one.push_back(key + "=" + values[k]);
        const std::string name = "one" + std::to_string(k);
        ASSERT_TRUE(run(name, one).ok());
        EXPECT_EQ(bytes("all/checkpoints/last/member-00" + std::to_string(k) + "/model.safetensors"), last(name)) << k;
    }
}

TEST_F(Trainer, MembersAreReportedAndResumed) {
    const auto result = run("a", {"members=3", "train.steps=4"});
    ASSERT_TRUE(result.ok()) << result.error().text();
    EXPECT_EQ(result->members.size(), 3u);
    ASSERT_TRUE(run("a", {"members=3", "train.steps=8"}, true).ok());
    ASSERT_TRUE(run("b", {"members=3", "train.steps=8"}).ok());
    for (int k = 0; k < 3; ++k) {
        const std::string file = "/checkpoints/last/member-00" + std::to_string(k) + "/model.safetensors";
        EXPECT_EQ(bytes("a" + file), bytes("b" + file));
    }
    const auto evaluated = evaluate_run(folder_ / "b", data::Part::test);
    ASSERT_TRUE(evaluated.ok()) << evaluated.error().text();
    EXPECT_EQ(evaluated->members.size(), 3u);
}

TEST_F(Trainer, EvaluationRepeatsTheRunsOwnScores) {
    const auto result = run("a", {});
    ASSERT_TRUE(result.ok());
    const auto test = evaluate_run(folder_ / "a", data::Part::test);
    ASSERT_TRUE(test.ok()) << test.error().text();
    EXPECT_EQ(test->members[0].accuracy, result->members[0].test_accuracy);
    EXPECT_EQ(test->members[0].loss, result->members[0].test_loss);
    EXPECT_EQ(test->samples, kTest);
    const auto validation = evaluate_run(folder_ / "a", data::Part::validation);
    ASSERT_TRUE(validation.ok());
    EXPECT_EQ(validation->members[0].accuracy, result->members[0].validation_accuracy);
}

TEST_F(Trainer, NoValidationDataKeepsTheNewestAsBest) {
    const auto result = run("a", {"data.validation=0", "train.epochs=2"});
    ASSERT_TRUE(result.ok()) << result.error().text();
    EXPECT_TRUE(std::isnan(result->members[0].validation_accuracy));
    EXPECT_EQ(bytes("a/checkpoints/best/model.safetensors"), last("a"));
    const auto refused = evaluate_run(folder_ / "a", data::Part::validation);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().exit_status, 4);
}

TEST_F(Trainer, KeptCheckpointsAreBounded) {
    ASSERT_TRUE(run("a", {"train.epochs=6", "checkpoint.keep=2"}).ok());
    int folders = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "a/checkpoints"))
        if (entry.is_directory() && !entry.is_symlink()) ++folders;
    EXPECT_LE(folders, 3);  // two newest and the best
    EXPECT_GE(folders, 2);
}

TEST_F(Trainer, HugeLearningRateDropsStepsOrNamesTheOperator) {
    const auto dropped = run("a", {"optim.name=sgd", "optim.lr=1e30", "train.epochs=1"});
    ASSERT_FALSE(dropped.ok());
    EXPECT_EQ(dropped.error().exit_status, 1);
    EXPECT_NE(dropped.error().text().find("never finite"), std::string::npos) << dropped.error().text();
    ASSERT_EQ(observer_.epochs.size(), 1u);
    EXPECT_GT(observer_.epochs[0].dropped, 0u);
    EXPECT_FALSE(observer_.epochs[0].best);
    const auto named = run("b", {"optim.name=sgd", "optim.lr=1e30", "train.epochs=1", "train.debug_nonfinite=true"});
    ASSERT_FALSE(named.ok());
    EXPECT_EQ(named.error().exit_status, 1);
    EXPECT_NE(named.error().text().find("step "), std::string::npos) << named.error().text();
}

TEST_F(Trainer, CheckedModeGivesTheSameWeights) {
    ASSERT_TRUE(run("a", {"train.steps=3"}).ok());
    ASSERT_TRUE(run("b", {"train.steps=3", "train.debug_nonfinite=true"}).ok());
    EXPECT_EQ(last("a"), last("b"));
}

TEST_F(Trainer, BatchLargerThanTheDataIsRefused) {
    const auto refused = run("a", {"train.batch=395"});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().text().find("395 exceeds the 394"), std::string::npos) << refused.error().text();
    EXPECT_FALSE(std::filesystem::exists(folder_ / "a"));
    EXPECT_TRUE(run("b", {"train.batch=394", "train.epochs=1"}).ok());
}

TEST_F(Trainer, BatchThatLeavesOneRowToNormalizeIsRefused) {
    const auto single = run("a", {"train.batch=1"});
    ASSERT_FALSE(single.ok());
    EXPECT_NE(single.error().text().find("train.batch = 2 would be right"), std::string::npos) << single.error().text();
    const auto tail = run("a", {"train.batch=131", "train.accumulate=2", "model.name=shallow"});  // 394 = 3 * 131 + 1
    ASSERT_FALSE(tail.ok());
    EXPECT_EQ(tail.error().exit_status, 2);
    EXPECT_NE(tail.error().text().find("train.batch = 130 would be right"), std::string::npos) << tail.error().text();
    EXPECT_FALSE(std::filesystem::exists(folder_ / "a"));
    EXPECT_TRUE(run("b", {"train.batch=196", "train.epochs=1"}).ok());  // two are left
}

TEST_F(Trainer, ResumeTakesTheLockBeforeItReads) {
    ASSERT_TRUE(run("a", {"train.steps=2"}).ok());
    const auto held = record::lock_run(folder_ / "a");
    ASSERT_TRUE(held.ok());
    const auto refused = run("a", {"train.steps=4", "optim.lr=0.5"}, true);  // reading before locking would complain of the rate
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().text().find("another process is writing"), std::string::npos) << refused.error().text();
}

TEST_F(Trainer, ResumeWithoutTheLinksTakesTheNewestCompleteStep) {
    ASSERT_TRUE(run("a", {"train.epochs=2"}).ok());
    ASSERT_TRUE(run("whole", {"train.epochs=3"}).ok());
    std::filesystem::remove(folder_ / "a/checkpoints/last");
    std::filesystem::remove(folder_ / "a/checkpoints/best");
    ASSERT_TRUE(run("a", {"train.epochs=3"}, true).ok());
    EXPECT_EQ(observer_.starts.back().first_step, 14u);
    EXPECT_EQ(last("a"), last("whole"));

    std::filesystem::remove(folder_ / "a/checkpoints/last");
    std::filesystem::create_symlink("step-99999999", folder_ / "a/checkpoints/last");
    std::filesystem::remove(folder_ / "a/checkpoints/step-00000021/model.safetensors");
    ASSERT_TRUE(run("a", {"train.epochs=3"}, true).ok());
    EXPECT_EQ(observer_.starts.back().first_step, 14u);
}

TEST_F(Trainer, ResumeWithBrokenStepsAloneIsRefusedAndKeepsTheMetrics) {
    ASSERT_TRUE(run("a", {"train.epochs=1"}).ok());
    const std::string before = bytes("a/metrics.jsonl");
    std::filesystem::remove(folder_ / "a/checkpoints/last");
    std::filesystem::remove(folder_ / "a/checkpoints/step-00000007/model.safetensors");
    const auto refused = run("a", {"train.epochs=1"}, true);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().text().find("step-00000007"), std::string::npos) << refused.error().text();
    EXPECT_EQ(bytes("a/metrics.jsonl"), before);
}

TEST_F(Trainer, StopAtTheEndOfAnEpochSavesOnce) {
    struct StopAfterEpoch final : Listener {
        std::atomic<int> stop{0};
        base::Status on_epoch(EpochReport&) override {
            stop = SIGTERM;
            return base::ok();
        }
    } observer;
    TrainRequest request;
    request.out = folder_ / "a";
    request.stop = &observer.stop;
    ASSERT_TRUE(train(recipe({}), request, {&observer}).ok());
    EXPECT_TRUE(std::filesystem::exists(folder_ / "a/checkpoints/step-00000007"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "a/checkpoints/step-00000007.1"));
}

}  // namespace
}  // namespace millrace::train
