// Each member of a run is judged by its own epochs.
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.h"
#include "train/evaluate.h"
#include "train/tiny_run.h"

namespace millrace::train {
namespace {

namespace fs = std::filesystem;

class MemberBests : public TinyRun {
protected:
    static constexpr const char* kRates[] = {"1e-3", "3e-2", "1e-1"};
    static std::vector<std::string> settings(const std::string& epochs, const std::vector<std::string>& more) {
        std::vector<std::string> all{"deterministic=true", "train.epochs=" + epochs, "checkpoint.keep=1"};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
    static std::vector<std::string> three(const std::string& epochs) {
        return settings(epochs, {"members=3", "seed=10", "optim.lr=1e-3,3e-2,1e-1"});
    }
    static std::string file(int member) { return "checkpoints/best/member-00" + std::to_string(member) + "/model.safetensors"; }
};

TEST_F(MemberBests, EachKeepsTheWeightsThatItHasAlone) {
    const auto all = run("all", three("5"));
    ASSERT_TRUE(all.ok()) << all.error().text();
    const auto evaluated = evaluate_run(folder_ / "all", data::Part::test);
    ASSERT_TRUE(evaluated.ok()) << evaluated.error().text();
    std::set<std::uint32_t> epochs;
    double highest = 0;
    for (int k = 0; k < 3; ++k) {
        const auto member = static_cast<std::size_t>(k);
        const std::string name = "one" + std::to_string(k);
        const auto one = run(name, settings("5", {"seed=" + std::to_string(10 + k), std::string("optim.lr=") + kRates[member]}));
        ASSERT_TRUE(one.ok()) << one.error().text();
        const MemberResult &own = all->members[member], &alone = one->members[0];
        EXPECT_EQ(own.best_epoch, alone.best_epoch) << k;
        EXPECT_EQ(own.validation_accuracy, alone.validation_accuracy) << k;
        EXPECT_EQ(own.validation_loss, alone.validation_loss) << k;
        EXPECT_EQ(own.test_accuracy, alone.test_accuracy) << k;
        EXPECT_EQ(own.test_loss, alone.test_loss) << k;
        EXPECT_EQ(evaluated->members[member].accuracy, alone.test_accuracy) << k;
        EXPECT_TRUE(bytes("all/" + file(k)) == bytes(name + "/checkpoints/best/model.safetensors")) << k;
        epochs.insert(own.best_epoch);
        highest = std::max(highest, own.validation_accuracy);
    }
    ASSERT_GT(epochs.size(), 1u) << "equal best epochs would show nothing";
    EXPECT_EQ(all->members[all->chosen.value()].validation_accuracy, highest);
    EXPECT_EQ(evaluated->best, *all->chosen);
    EXPECT_EQ(evaluated->step, all->members[*all->chosen].best_epoch * all->step / all->epochs);
}

TEST_F(MemberBests, AreTheSameAfterAResume) {
    const auto whole = run("whole", three("5"));
    ASSERT_TRUE(whole.ok()) << whole.error().text();
    for (const char* epochs : {"1", "3", "4", "5"}) ASSERT_TRUE(run("cut", three(epochs), std::string(epochs) != "1").ok());
    const auto again = run("cut", three("5"), true);
    ASSERT_TRUE(again.ok()) << again.error().text();
    const auto best = [&](const std::string& name) { return base::json_or_throw(last(name, "state.json")).at("best"); };
    EXPECT_EQ(best("cut"), best("whole"));
    EXPECT_EQ(best("whole").at("epochs").size(), 3u);
    for (int k = 0; k < 3; ++k) {
        const auto member = static_cast<std::size_t>(k);
        EXPECT_TRUE(bytes("cut/" + file(k)) == bytes("whole/" + file(k))) << k;
        EXPECT_EQ(again->members[member].best_epoch, whole->members[member].best_epoch) << k;
        EXPECT_EQ(again->members[member].test_loss, whole->members[member].test_loss) << k;
    }
}

TEST_F(MemberBests, AreChosenAnewWhenSomebodyRemovedThem) {
    struct Remover final : Listener {
        fs::path folder;
        base::Status on_epoch(EpochReport& report) override {
            if (report.epoch == 2) fs::remove(folder);
            return base::ok();
        }
    } remover;
    remover.folder = folder_ / "a/checkpoints/best";
    TrainRequest request;
    request.out = folder_ / "a";
    request.command = {"test"};
    const auto result = train(recipe(three("4")), request, {&remover});
    ASSERT_TRUE(result.ok()) << result.error().text();
    for (const MemberResult& member : result->members) EXPECT_GT(member.best_epoch, 2u);
    EXPECT_TRUE(evaluate_run(folder_ / "a", data::Part::test).ok());
}

TEST_F(MemberBests, EqualAccuraciesAreToldApartByTheLoss) {
    // Four samples set aside have five accuracies.
    const auto result = run("a", settings("9", {"data.validation=0.01", "optim.lr=3e-3", "members=2"}));
    ASSERT_TRUE(result.ok()) << result.error().text();
    int ties = 0;
    for (std::size_t k = 0; k < 2; ++k) {
        const EpochReport* best = &observer_.epochs.front();
        for (const EpochReport& epoch : observer_.epochs) {
            const Score &score = epoch.validation[k], &known = best->validation[k];
            ties += &epoch != best && score.accuracy == known.accuracy && score.loss < known.loss ? 1 : 0;
            if (score.accuracy > known.accuracy || (score.accuracy == known.accuracy && score.loss < known.loss)) best = &epoch;
        }
        EXPECT_EQ(result->members[k].best_epoch, best->epoch) << k;
        EXPECT_EQ(result->members[k].validation_loss, best->validation[k].loss) << k;
    }
    ASSERT_GT(ties, 0) << "without a tie this shows nothing";
    const MemberResult &chosen = result->members[*result->chosen], &other = result->members[1 - *result->chosen];
    EXPECT_GE(chosen.validation_accuracy, other.validation_accuracy);
    if (chosen.validation_accuracy == other.validation_accuracy) {
        EXPECT_LE(chosen.validation_loss, other.validation_loss);
    }
}

TEST_F(MemberBests, OneMemberHasNoFolderOfItsOwn) {
    ASSERT_TRUE(run("a", settings("3", {"optim.lr=3e-2"})).ok());
    for (const auto& entry : fs::directory_iterator(folder_ / "a/checkpoints"))
        EXPECT_FALSE(entry.path().filename().string().starts_with("best-")) << entry.path();
    const auto best = base::json_or_throw(last("a", "state.json")).at("best");
    for (const char* key : {"values", "epochs", "steps"}) EXPECT_FALSE(best.contains(key)) << key;
}

}  // namespace
}  // namespace millrace::train
