// The recipes in the tree name a model, a preset and only model keys that exist.

#include <gtest/gtest.h>

#include <filesystem>

#include "io/recipe_file.h"
#include "models/registry.h"
#include "places.h"

namespace millrace::models {
namespace {

TEST(Recipes, EachNamesTheModelAndPresetOfItsFileName) {
    int found = 0;
    for (const auto& entry : std::filesystem::directory_iterator(testing::source_root() / "recipes")) {
        if (entry.path().extension() != ".toml" || entry.path().stem().string().starts_with("study-")) continue;
        const std::string place = entry.path().string();
        auto text = io::read_recipe_file(place);
        ASSERT_TRUE(text.ok()) << text.error().text();
        auto name = base::peek_recipe_text(*text, place, "model.name"),
             preset = base::peek_recipe_text(*text, place, "model.preset");
        ASSERT_TRUE(name.ok() && preset.ok()) << place;
        ASSERT_TRUE(name->has_value() && preset->has_value()) << place;
        EXPECT_EQ(entry.path().stem().string(), **name + "-" + **preset);
        auto keys = schema(**name, **preset);
        EXPECT_TRUE(keys.ok()) << keys.error().text();
        ++found;
    }
    EXPECT_GE(found, 5);
}

}  // namespace
}  // namespace millrace::models
