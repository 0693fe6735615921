// train.class_weights on a table in which one row of twenty is of the class "rare".

#include "models/task.h"

#include <fmt/format.h>

#include "base/philox.h"
#include "models/registry.h"
#include "train/evaluate.h"
#include "train/tiny_run.h"

namespace millrace::train {
namespace {

class ClassWeights : public TinyRun {
protected:
    void SetUp() override {
        TinyRun::SetUp();
        std::ofstream table(folder_ / "table.csv");
        table << "left,right,class,number\n";
        for (std::uint64_t i = 0; i < 3000; ++i) {
            const bool rare = i % 20 == 7;
            const auto value = [&](std::uint32_t stream) { return base::random_normal(3, 0, 0, stream, i) + (rare ? 1 : 0); };
            table << fmt::format("{},{},{},{}\n", value(1), value(2), rare ? "rare" : "usual", value(3));
        }
    }
    std::vector<std::string> settings(std::vector<std::string> more) const {
        std::vector<std::string> all{"model.name=shallow",    "model.preset=debug",
                                     "model.widths=8",        "train.batch=32",
                                     "telemetry.interval=0s", "data.target=class",
                                     "data.test=0.4",         "optim.lr=0.01",
                                     "train.epochs=1",        "data.path=" + (folder_ / "table.csv").string()};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
    /// A run's score on the test part and on what was trained on.
    struct Ran {
        double recall = 0, training_loss = 0, validation_loss = 0;
    };
    Ran ran(const std::string& name, const std::vector<std::string>& more) {
        observer_.epochs.clear();
        const auto result = run(name, settings(more));
        EXPECT_TRUE(result.ok()) << result.error().text();
        const auto report = evaluate_run(folder_ / name, data::Part::test);
        EXPECT_TRUE(report.ok()) << report.error().text();
        if (!report.ok()) return {};
        const auto rare = std::ranges::find(report->class_names, "rare") - report->class_names.begin();
        return {report->members[0].classes->classes.at(static_cast<std::size_t>(rare)).recall,
                observer_.epochs.back().training[0].loss, observer_.epochs.back().validation[0].loss};
    }
};

TEST_F(ClassWeights, MacroF1MayChooseTheBestWeights) {
    const auto result =
        run("run", settings({"checkpoint.best_metric=macro_f1", "train.epochs=4", "members=2", "train.class_weights=balanced"}));
    ASSERT_TRUE(result.ok()) << result.error().text();
    const auto report = evaluate_run(folder_ / "run", data::Part::validation);
    ASSERT_TRUE(report.ok()) << report.error().text();
    for (std::size_t k = 0; k < 2; ++k) {
        double best = 0;
        std::uint32_t epoch = 0;
        for (const EpochReport& each : observer_.epochs) {
            const models::Figure* figure = each.validation.at(k).more.find("macro_f1");
            ASSERT_NE(figure, nullptr);
            if (figure->value > best) best = figure->value, epoch = each.epoch;
        }
        EXPECT_EQ(result->members.at(k).best_epoch, epoch);
        EXPECT_EQ(report->members.at(k).classes->macro_f1, best);
    }
    const auto refused = run("number", settings({"checkpoint.best_metric=macro_f1", "data.target=number"}));
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().text().find("predicts no classes"), std::string::npos) << refused.error().text();
}

TEST_F(ClassWeights, MoreOfTheRareClassIsFound) {
    for (const std::string members : {"members=1", "members=3"}) {
        const Ran plain = ran("plain", {members}), balanced = ran("balanced", {members, "train.class_weights=balanced"});
        EXPECT_LT(plain.recall, 0.4);
        EXPECT_GT(balanced.recall, 0.6);
        for (const char* name : {"plain", "balanced"}) std::filesystem::remove_all(folder_ / name);
    }
}

TEST_F(ClassWeights, WeighTheTrainingLossAlone) {
    const Ran plain = ran("plain", {"optim.lr=0"}), balanced = ran("balanced", {"optim.lr=0", "train.class_weights=balanced"});
    EXPECT_EQ(plain.validation_loss, balanced.validation_loss) << "evaluation knows no weights";
    EXPECT_NE(plain.training_loss, balanced.training_loss);
}

TEST_F(ClassWeights, AResumedRunIsTheSameRunAndKeepsItsWeights) {
    const auto until = [&](const char* steps, const char* weights) { return settings({steps, weights}); };
    const char* const balanced = "train.class_weights=balanced";
    ASSERT_TRUE(run("whole", until("train.steps=8", balanced)).ok());
    ASSERT_TRUE(run("parts", until("train.steps=4", balanced)).ok());
    const auto other = run("parts", until("train.steps=8", "train.class_weights=none"), true);
    ASSERT_FALSE(other.ok());
    EXPECT_NE(other.error().text().find("train.class_weights"), std::string::npos) << other.error().text();
    ASSERT_TRUE(run("parts", until("train.steps=8", balanced), true).ok());
    EXPECT_EQ(last("whole"), last("parts"));
    EXPECT_NE(last("whole").find("loss.weights"), std::string::npos);
}

TEST_F(ClassWeights, WithoutATestPartTheConfusionMatrixIsOfValidation) {
    ASSERT_TRUE(run("untested", settings({"data.test=0", "train.class_weights=balanced"})).ok());
    EXPECT_NE(bytes("untested/confusion.svg").find("300 rows of validation, best weights; accuracy"), std::string::npos);
}

TEST_F(ClassWeights, OfARegressionAreRefused) {
    const auto refused = run("numbers", settings({"data.target=number", "train.class_weights=balanced"}));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().exit_status, 2);
    for (const char* part : {"train.class_weights", "a number is predicted", "\"none\" would be right"})
        EXPECT_NE(refused.error().text().find(part), std::string::npos) << refused.error().text();
    EXPECT_FALSE(std::filesystem::exists(folder_ / "numbers" / "manifest.json"));
}

TEST(ClassWeightsOfModels, ALossThatWeighsClassesItselfTakesNone) {
    const auto family = models::find_family("leak_cnn");
    ASSERT_TRUE(family.ok());
    const auto made = [&](const std::string& loss) {
        const auto recipe =
            parse_recipe("", "", {{"model.name=leak_cnn", "model.preset=debug", "train.class_weights=balanced", loss}, {}});
        EXPECT_TRUE(recipe.ok()) << recipe.error().text();
        return models::make(*recipe, (*family)->usual);
    };
    for (const char* loss : {"model.loss=weighted", "model.loss=focal"}) {
        const auto refused = made(loss);
        ASSERT_FALSE(refused.ok());
        EXPECT_NE(refused.error().text().find("weighs the classes itself"), std::string::npos) << refused.error().text();
    }
    EXPECT_TRUE(made("model.loss=plain").ok());
    const auto text = parse_recipe("", "", {{"model.name=transformer", "train.class_weights=balanced"}, {}});
    ASSERT_FALSE(text.ok()) << "a language model has no such key";
}

TEST(ClassWeightsOfModels, AreInverseToTheCountsWithMeanOneOverTheRows) {
    EXPECT_EQ(models::balanced_weights({90, 10, 0}), (std::vector<double>{100 / 180.0, 5, 1}));
    EXPECT_EQ(models::balanced_weights({7}), (std::vector<double>{1}));
    EXPECT_EQ(models::balanced_weights({0, 0}), (std::vector<double>{1, 1}));
}

}  // namespace
}  // namespace millrace::train
