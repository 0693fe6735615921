#include "sweep/study_file.h"

#include "places.h"
#include "sweep/fake_lanes.h"

namespace millrace::sweep {
namespace {

using StudyFiles = Sweeps;

TEST_F(StudyFiles, EveryKeyIsRead) {
    const auto read = load_study(
        file("objectives = [\n  { metric = \"validation_accuracy\", direction = \"maximize\" },\n"
             "  { metric = \"step_ms\", direction = \"minimize\" }]\n"
             "constraints = [{ metric = \"parameters\", at_most = 600000 }, { metric = \"validation_accuracy\", at_least = 0.5 "
             "}]\n"
             "sampler = \"tpe\"\nscheduler = \"asha\"\nrungs = { first = 1, factor = 3, last = 27, unit = \"epochs\" }\n"
             "trials = 280\nreplicates = 2\nfinalists = 4\nseed = 7\nprune_by = \"step_ms\"\n",
             kSpace, "[set]\noptim.name = \"adamw\"\n\"train.batch\" = 64\n"),
        {"optim.beta1=0.8"});
    ASSERT_TRUE(read.ok()) << read.error().text();
    EXPECT_EQ(read->name, "s");
    ASSERT_EQ(read->objectives.size(), 2u);
    EXPECT_TRUE(read->objectives[0].maximize);
    EXPECT_FALSE(read->objectives[1].maximize);
    ASSERT_EQ(read->constraints.size(), 2u);
    EXPECT_DOUBLE_EQ(read->constraints[0].violation(600001), 1);
    EXPECT_DOUBLE_EQ(read->constraints[1].violation(0.25), 0.25);
    EXPECT_EQ(read->sampler.name, "tpe");
    EXPECT_EQ(read->sampler.seed, 7u);
    EXPECT_EQ(read->scheduler.name, "asha");
    EXPECT_EQ(read->scheduler.rungs.last, 27);
    EXPECT_EQ(read->scheduler.objective, 1u);
    EXPECT_EQ(read->trials, 280);
    EXPECT_EQ(read->replicates, 2);
    EXPECT_EQ(read->finalists, 4);
    EXPECT_EQ(read->recipe.text("optim.name"), "adamw");
    EXPECT_EQ(read->recipe.integer("train.batch"), 64);
    EXPECT_DOUBLE_EQ(read->recipe.real("optim.beta1"), 0.8);
    EXPECT_EQ(read->recipe.integer("train.epochs"), 27) << "the schedule is as long as the last rung";
}

TEST_F(StudyFiles, WithoutRungsATrialIsAsLongAsTheRecipe) {
    EXPECT_EQ(study("").scheduler.rungs.last, 9);
    EXPECT_EQ(study("").name, "s");
}

TEST_F(StudyFiles, ARecipeTakesItsConfigurationAndSeed) {
    const StudyFile read =
        study("", "\"optim.lr\" = { log = [1e-5, 0.1] }\n\"optim.name\" = { choice = [\"sgd\", \"adamw\"] }\n");
    const base::Recipe recipe = recipe_of(read, {0.012345678901234567, 1}, 105);
    EXPECT_EQ(recipe.real("optim.lr"), 0.012345678901234567);
    EXPECT_EQ(recipe.text("optim.name"), "adamw");
    EXPECT_EQ(recipe.integer("seed"), 105);
    EXPECT_EQ(recipe.integer("train.batch"), 32);
    EXPECT_EQ(structural_parameters(read.space, {"optim.lr"}), std::vector<std::size_t>{1});
}

/// What is wrong, where the error is, and a word of what would be right.
struct Refused {
    std::string study, space, rest, place, word;
};

TEST_F(StudyFiles, MistakesAreRefusedWithTheirLine) {
    const std::string objective = kObjective;
    const std::string lr = "\"optim.lr\" = { log = [1e-5, 0.1] }\n";
    const std::vector<Refused> all = {
        {objective + "trails = 3", lr, "", "study.toml:5", "study.trials"},
        {objective + "trials = \"many\"", lr, "", "study.toml:5", "whole number"},
        {objective + "sampler = \"magic\"", lr, "", "study.toml:5", "tpe"},
        {objective + "rungs = { first = 5, last = 3 }", lr, "", "study.toml:5", "first"},
        {objective + "prune_by = \"speed\"", lr, "", "study.toml:5", "objectives"},
        {"trials = 3", lr, "", "study.toml", "objectives = ["},
        {"objectives = [\"validation_loss\"]", lr, "", "study.toml:4", "list of tables"},
        {"objectives = [{ metric = \"validation_loss\" }]", lr, "", "study.toml:4", "direction"},
        {"objectives = [{ metric = \"test_loss\", direction = \"minimize\" }]", lr, "", "study.toml:4", "validation"},
        {objective + "constraints = [{ metric = \"parameters\" }]", lr, "", "study.toml:5", "at_most"},
        {objective + "constraints = [{ metric = \"parameters\", atmost = 3 }]", lr, "", "study.toml:5", "at_most"},
        {objective, "\"optim.lr\" = { log = [0.1, 0.1] }\n", "", "study.toml:7", "empty"},
        {objective, "\"optim.rl\" = { log = [0.01, 0.1] }\n", "", "study.toml:7", "optim.lr"},
        {objective, "\"optim.lr\" = { uniform = [-1.0, 0.1] }\n", "", "study.toml:7", "optim.lr"},
        {objective, "\"data.path\" = { choice = [\"a\", \"b\"] }\n", "", "study.toml:7", "cannot be searched"},
        {objective, "\"seed\" = { int = [1, 3] }\n", "", "study.toml:7", "replicates"},
        {objective, "\"train.epochs\" = { int = [1, 3] }\n", "", "study.toml:7", "rungs"},
        {objective, "\"train.batch\" = { uniform = [1.0, 3.0] }\n", "", "study.toml:7", "int = ["},
        {objective, "\"train.batch\" = { choice = [32, \"big\"] }\n", "", "study.toml:7", "whole number"},
        {objective, "\"optim.name\" = { int = [1, 2] }\n", "", "study.toml:7", "choice"},
        {objective, lr, "[set]\ntrain.batch = \"x\"\n", "study.toml:9", "whole number"},
        {objective, lr, "[set]\ntrain.bach = 3\n", "study.toml:9", "train.batch"},
        {objective, lr, "[set]\noptim.lr = 0.1\n", "study.toml:7", "searched"},
        {objective, lr, "[set]\ntrain.steps = 5\n", "train.steps", "whole epochs"},
        {objective + "sampler = \"cmaes\"", "\"optim.name\" = { choice = [\"sgd\", \"adam\"] }\n", "", "study.toml", "cmaes"},
    };
    for (const Refused& one : all) {
        const std::string text = refusal(file(one.study, one.space, one.rest));
        EXPECT_NE(text.find(one.place), std::string::npos) << text << "\nshould be at " << one.place;
        EXPECT_NE(text.find(one.word), std::string::npos) << text << "\nshould say " << one.word;
    }
    EXPECT_NE(refusal(file(objective), {"optim.lr=0.1"}).find("--set"), std::string::npos);
    write("none.toml", "recipe = \"missing.toml\"\n[study]\n" + objective + "[space]\n" + lr);
    EXPECT_NE(refusal((folder_ / "none.toml").string()).find("missing.toml"), std::string::npos);
    write("empty.toml", "");
    EXPECT_NE(refusal((folder_ / "empty.toml").string()).find("recipe ="), std::string::npos);
    EXPECT_NE(refusal((folder_ / "absent.toml").string()).find("absent.toml"), std::string::npos);
}

TEST(StudyExamples, StudiesOfTheProjectAreValid) {
    int found = 0;
    for (const auto& entry : std::filesystem::directory_iterator(testing::source_root() / "recipes")) {
        if (!entry.path().stem().string().starts_with("study-")) continue;
        const auto read = load_study(entry.path().string(), {});
        EXPECT_TRUE(read.ok()) << read.error().text();
        ++found;
    }
    EXPECT_GE(found, 1);
}

}  // namespace
}  // namespace millrace::sweep
