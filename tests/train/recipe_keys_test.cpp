#include "train/recipe_keys.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "models/backend_options.h"
#include "places.h"
#include "train/run_settings.h"

namespace millrace::train {
namespace {

base::Result<base::Recipe> parsed(std::vector<std::string> flags, const std::string& text = "") {
    return parse_recipe(text, "test.toml", {std::move(flags), {}});
}

std::string refusal(std::vector<std::string> flags, const std::string& text = "") {
    const auto recipe = parsed(std::move(flags), text);
    if (recipe.ok()) return "";
    EXPECT_EQ(recipe.error().exit_status, 2);
    return recipe.error().text();
}

TEST(RecipeKeys, EmptyRecipeIsTheSmallCollective) {
    const auto recipe = parsed({});
    ASSERT_TRUE(recipe.ok()) << recipe.error().text();
    EXPECT_EQ(recipe->text("model.name"), "collective");
    EXPECT_EQ(recipe->text("model.preset"), "debug");
    EXPECT_EQ(recipe->integer("train.batch"), 32);
}

TEST(RecipeKeys, BadValuesAreRefusedByName) {
    EXPECT_NE(refusal({"optim.lr=nan"}).find("optim.lr"), std::string::npos);
    EXPECT_NE(refusal({"optim.lr=-1"}).find("optim.lr"), std::string::npos);
    EXPECT_NE(refusal({"train.epochs=0"}).find("train.epochs"), std::string::npos);
    EXPECT_NE(refusal({"train.epochs=two"}).find("train.epochs"), std::string::npos);
    EXPECT_NE(refusal({"data.validation=1"}).find("data.validation"), std::string::npos);
    EXPECT_NE(refusal({"optim.name=rmsprop"}).find("adamw"), std::string::npos);
    EXPECT_NE(refusal({"train.epoch=1"}).find("train.epochs"), std::string::npos);
    EXPECT_NE(refusal({}, "[train]\nbatch = \"big\"\n").find("test.toml:2"), std::string::npos);
    EXPECT_NE(refusal({"model.name=colective"}).find("collective"), std::string::npos);
    EXPECT_NE(refusal({"train.f32=fast"}).find("strict"), std::string::npos);
    EXPECT_NE(refusal({"model.preset=huge"}).find("debug"), std::string::npos);
}

TEST(RecipeKeys, RecipesOfTheProjectAreValid) {
    const std::filesystem::path folder = testing::source_root() / "recipes";
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().stem().string().starts_with("study-")) continue;  // of a sweep
        const auto recipe = load_recipe(entry.path().string(), {});
        EXPECT_TRUE(recipe.ok()) << recipe.error().text();
        ++count;
    }
    EXPECT_GE(count, 2);
}

TEST(RunSettings, SchedulesCountInEpochs) {
    const auto recipe = parsed({"train.epochs=10", "train.batch=50", "optim.warmup_epochs=0.5", "optim.schedule=step",
                                "optim.step_epochs=2", "optim.step_gamma=0.5"});
    ASSERT_TRUE(recipe.ok());
    const auto settings = read_settings(*recipe, 1010);  // 21 steps
    ASSERT_TRUE(settings.ok());
    EXPECT_EQ(settings->optimizer.schedule.total_steps, 210u);
    EXPECT_EQ(settings->optimizer.schedule.warmup_steps, 11u);
    EXPECT_EQ(settings->optimizer.schedule.interval, 42u);
    EXPECT_EQ(settings->optimizer.schedule.gamma, 0.5);
}

TEST(RunSettings, SeedsFollowTheMembersUnlessListed) {
    const auto counted = read_settings(*parsed({"members=3", "seed=7"}), 100);
    ASSERT_TRUE(counted.ok());
    EXPECT_EQ(counted->seeds, (std::vector<std::uint64_t>{7, 8, 9}));
    const auto listed = read_settings(*parsed({"members=3", "seed=5,5,1"}), 100);
    ASSERT_TRUE(listed.ok());
    EXPECT_EQ(listed->seeds, (std::vector<std::uint64_t>{5, 5, 1}));
    EXPECT_FALSE(read_settings(*parsed({"members=3", "seed=5,5"}), 100).ok());
    EXPECT_FALSE(read_settings(*parsed({"members=2", "optim.lr=1,2,3"}), 100).ok());
}

TEST(RunSettings, TwoWarmUpsAreOneTooMany) {
    const auto refused = read_settings(*parsed({"optim.warmup_steps=5", "optim.warmup_epochs=1"}), 100);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().text().find("warmup_steps"), std::string::npos);
}

TEST(RunSettings, StepsBeyondTheCounterAreRefused) {
    EXPECT_FALSE(read_settings(*parsed({"train.epochs=1000000", "train.batch=1"}), 50000).ok());
}

TEST(RunSettings, PrecisionFollowsTheDevice) {
    EXPECT_EQ(*choose_precision("auto", ops::DeviceKind::cpu), tape::Precision::f32);
    EXPECT_EQ(*choose_precision("auto", ops::DeviceKind::cuda, false), tape::Precision::bf16);
    EXPECT_EQ(*choose_precision("auto", ops::DeviceKind::cuda, true), tape::Precision::f16);
    EXPECT_EQ(*choose_precision("f16", ops::DeviceKind::cuda, false), tape::Precision::f16);
    EXPECT_EQ(*choose_precision("f32", ops::DeviceKind::cuda), tape::Precision::f32);
    for (const char* half : {"bf16", "f16"}) {
        const auto refused = choose_precision(half, ops::DeviceKind::cpu);
        ASSERT_FALSE(refused.ok());
        EXPECT_EQ(refused.error().text(),
                  fmt::format("precision = \"{}\" needs --device cuda; on the CPU use f32 or auto", half));
    }
    const auto lacking = choose_precision("bf16", ops::DeviceKind::cuda, true);
    ASSERT_FALSE(lacking.ok());
    EXPECT_NE(lacking.error().text().find("use f16"), std::string::npos) << lacking.error().text();
}

TEST(RunSettings, Tf32CountsInF32OnAGpuAlone) {
    using ops::DeviceKind;
    using tape::Precision;
    const auto options = [](const char* more, DeviceKind device, Precision precision) {
        return models::backend_options(*parsed({"train.f32=tf32", more}), device, precision);
    };
    const ops::BackendOptions taken = options("threads=3", DeviceKind::cuda, Precision::f32);
    EXPECT_TRUE(taken.tf32);
    EXPECT_EQ(taken.threads, 3);
    EXPECT_EQ(models::products_in(taken, Precision::f32), "tf32");
    EXPECT_FALSE(options("seed=1", DeviceKind::cpu, Precision::f32).tf32);
    const ops::BackendOptions half = options("seed=1", DeviceKind::cuda, Precision::bf16);
    EXPECT_FALSE(half.tf32);
    EXPECT_EQ(models::products_in(half, Precision::bf16), "bf16");
    const ops::BackendOptions pinned = options("deterministic=true", DeviceKind::cuda, Precision::f32);
    EXPECT_TRUE(pinned.deterministic);
    EXPECT_FALSE(pinned.tf32);
    EXPECT_FALSE(models::backend_options(*parsed({}), DeviceKind::cuda, Precision::f32).tf32);
}

TEST(RecipeKeys, ResumeAllowsWhatChangesNoWeight) {
    const auto before = parsed({});
    EXPECT_TRUE(check_resumable(*before, *parsed({"train.epochs=9", "checkpoint.keep=1", "eval.batch=7", "threads=1"})).ok());
    const auto refused = check_resumable(*before, *parsed({"optim.beta1=0.8"}));
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().text().find("optim.beta1 = 0.9, not 0.8"), std::string::npos) << refused.error().text();
    EXPECT_FALSE(check_resumable(*before, *parsed({"train.f32=tf32"})).ok());
}

}  // namespace
}  // namespace millrace::train
