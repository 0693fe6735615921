
#include <gtest/gtest.h>

#include "train/recipe_keys.h"

namespace millrace::train {
namespace {

std::vector<std::string> idle(const std::vector<std::string>& settings) {
    const auto recipe = parse_recipe("", "r.toml", {settings, {}});
    EXPECT_TRUE(recipe.ok()) << recipe.error().text();
    return idle_keys(*recipe);
}

TEST(IdleKeys, WhatNothingReadsIsNamedWithWhatWouldReadIt) {
    const auto rotated = idle({"data.rotate=180"});
    ASSERT_EQ(rotated.size(), 1u);
    EXPECT_EQ(rotated[0], "data.rotate = 180.0 changes nothing: it is read where data.augment is true, not false");
    const auto momentum = idle({"optim.momentum=0.5", "optim.name=adamw"});
    ASSERT_EQ(momentum.size(), 1u);
    EXPECT_EQ(momentum[0], "optim.momentum = 0.5 changes nothing: it is read where optim.name is sgd, not adamw");
    EXPECT_EQ(idle({"optim.beta1=0.5,0.6", "members=2", "optim.name=sgd"}).size(), 1u);
}

TEST(IdleKeys, WhatIsReadOrAtItsDefaultIsNoMistake) {
    EXPECT_TRUE(idle({}).empty());
    EXPECT_TRUE(idle({"data.rotate=180", "data.augment=true"}).empty());
    EXPECT_TRUE(idle({"data.rotate=15"}).empty()) << "a recipe that was written by a search names every key";
    EXPECT_TRUE(idle({"optim.beta1=0.5", "optim.name=adamw"}).empty());
    EXPECT_TRUE(idle({"optim.floor=0.1", "optim.schedule=cosine"}).empty());
}

}  // namespace
}  // namespace millrace::train
