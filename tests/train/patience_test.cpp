// train.patience: a run ends when no member's validation improves any more, and at the same epoch after a kill.

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "record/run_directory.h"
#include "train/console.h"
#include "train/killer.h"
#include "train/tiny_run.h"

namespace millrace::train {
namespace {

namespace fs = std::filesystem;

/// Seven steps per epoch, ten epochs. Without a learning rate the first evaluation is the last that improves.
class PatientRun : public TinyRun {
protected:
    std::vector<std::string> settings(std::vector<std::string> more) const {
        std::vector<std::string> all{"model.name=cnn",        "model.preset=debug", "train.epochs=10",
                                     "telemetry.interval=0s", "optim.lr=0",         "checkpoint.best_metric=validation_loss"};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
    base::Result<RunResult> go(const std::string& name, std::vector<std::string> more, bool resume = false) {
        return run(name, settings(std::move(more)), resume);
    }
    nlohmann::json state(const std::string& name) const { return base::json_or_throw(last(name, "state.json")); }
};

TEST_F(PatientRun, EndsWhenValidationNoLongerImproves) {
    const auto result = go("a", {"train.patience=2"});
    ASSERT_TRUE(result.ok()) << result.error().text();
    EXPECT_EQ(result->epochs, 3u);
    EXPECT_FALSE(result->stopped);
    EXPECT_TRUE(result->tested) << "the run is complete, so the best weights meet the test set";
    EXPECT_EQ(result->members.at(0).best_epoch, 1u);
    const std::string reason = "validation did not improve in 2 evaluations (train.patience = 2)";
    EXPECT_EQ(result->ended_early, reason);
    EXPECT_TRUE(finish_text(*result).starts_with("ended after epoch 3: " + reason + "\n")) << finish_text(*result);
    const auto manifest = record::read_manifest(folder_ / "a");
    EXPECT_EQ(manifest->status, record::RunStatus::kFinished);
    EXPECT_EQ(manifest->reason, reason);
    EXPECT_TRUE(state("a").at("complete"));
}

TEST_F(PatientRun, ZeroNeverEndsARun) {
    const auto result = go("a", {"train.epochs=4"});
    ASSERT_TRUE(result.ok()) << result.error().text();
    EXPECT_EQ(result->epochs, 4u);
    EXPECT_TRUE(result->ended_early.empty());
    EXPECT_EQ(record::read_manifest(folder_ / "a")->reason, "the run ended");
}

TEST_F(PatientRun, GoesOnWhileAnyMemberImproves) {
    const auto result = go("a", {"members=2", "optim.name=sgd", "optim.lr=0,1e-3", "train.patience=1", "train.epochs=4"});
    ASSERT_TRUE(result.ok()) << result.error().text();
    EXPECT_EQ(result->epochs, 4u);
    EXPECT_TRUE(result->ended_early.empty());
    const auto still = go("b", {"members=2", "train.patience=1"});
    ASSERT_TRUE(still.ok()) << still.error().text();
    EXPECT_EQ(still->epochs, 2u);
    EXPECT_NE(still->ended_early.find("of 2 members"), std::string::npos) << still->ended_early;
}

TEST_F(PatientRun, KilledBetweenTwoEvaluationsEndsAtTheSameEpoch) {
    // After the second of three evaluations without an improvement, in the middle of the fourth epoch.
    Killer killer(folder_ / "whole", folder_ / "killed", 24);
    TrainRequest request;
    request.out = folder_ / "whole";
    request.saves = &killer.saves;
    const auto whole = train(recipe(settings({"train.patience=3"})), request, {&killer});
    ASSERT_TRUE(whole.ok()) << whole.error().text();
    EXPECT_EQ(whole->epochs, 4u);
    ASSERT_EQ(state("killed").at("step"), 24);
    EXPECT_EQ(state("killed").at("staleness").at("evaluations"), 2);

    const auto resumed = go("killed", {"train.patience=3"}, true);
    ASSERT_TRUE(resumed.ok()) << resumed.error().text();
    EXPECT_EQ(resumed->epochs, 4u);
    EXPECT_EQ(resumed->ended_early, whole->ended_early);
    EXPECT_EQ(last("killed"), last("whole"));
    EXPECT_EQ(last("killed", "optimizer.safetensors"), last("whole", "optimizer.safetensors"));
    EXPECT_EQ(state("killed").at("staleness"), state("whole").at("staleness"));
}

TEST_F(PatientRun, EndedRunGoesOnOnlyWithMorePatience) {
    ASSERT_TRUE(go("a", {"train.patience=1"}).ok());
    const auto same = go("a", {"train.patience=1"}, true);
    ASSERT_TRUE(same.ok()) << same.error().text();
    EXPECT_TRUE(same->was_complete);
    EXPECT_EQ(same->epochs, 2u);
    EXPECT_NE(start_text(observer_.starts.back()).find("nothing left of 14 steps"), std::string::npos);
    const auto more = go("a", {"train.patience=3"}, true);
    ASSERT_TRUE(more.ok()) << more.error().text();
    EXPECT_EQ(more->epochs, 4u);
    ASSERT_TRUE(go("whole", {"train.patience=3"}).ok());
    EXPECT_EQ(last("a"), last("whole"));
}

TEST_F(PatientRun, NeedsValidationData) {
    const auto result = go("a", {"train.patience=2", "data.validation=0"});
    ASSERT_FALSE(result.ok());
    EXPECT_NE(result.error().text().find("train.patience = 2 needs images set aside"), std::string::npos)
        << result.error().text();
    EXPECT_FALSE(fs::exists(folder_ / "a"));
}

}  // namespace
}  // namespace millrace::train
