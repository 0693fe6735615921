#include "search/space.h"

#include <gtest/gtest.h>

#include "base/recipe.h"
#include "search/problems.h"

namespace millrace::search {
namespace {

const char* const kStudySpace = R"("optim.lr" = { log = [1e-5, 1e-1] }
"optim.weight_decay" = { log = [1e-6, 1e-1], or = 0 }
"model.dropout" = { uniform = [0.0, 0.5] }
"train.batch" = { choice = [32, 64, 128] }
model.width = { int = [4, 16], step = 4 }
"model.activation" = { choice = ["relu", "tanh"] }
"train.deterministic" = { choice = [true, false] }
)";

TEST(Space, ReadsEveryKindInTheOrderOfTheFile) {
    const Space space = space_of(kStudySpace);
    ASSERT_EQ(space.size(), 7u);
    EXPECT_EQ(space.parameters[0].name, "optim.lr");
    EXPECT_EQ(space.parameters[0].kind, ParameterKind::log);
    EXPECT_EQ(space.parameters[0].high, 0.1);
    EXPECT_EQ(space.parameters[1].alternative, 0.0);
    EXPECT_EQ(space.parameters[3].cells(), 3);
    EXPECT_EQ(space.parameters[4].name, "model.width");
    EXPECT_EQ(space.parameters[4].cells(), 4);
    EXPECT_EQ(space.parameters[4].place, "study.toml:6");
}

TEST(Space, UnitCubeAndBack) {
    const Space space = space_of(kStudySpace);
    const Configuration low = space.from_unit(std::vector<double>(7, 0.0));
    EXPECT_EQ(low, (Configuration{1e-5, 0, 0, 0, 4, 0, 0}));
    const Configuration high = space.from_unit(std::vector<double>(7, 1.0));
    EXPECT_EQ(high, (Configuration{0.1, 0.1, 0.5, 2, 16, 1, 1}));
    const Configuration middle = space.from_unit(std::vector<double>(7, 0.5));
    EXPECT_NEAR(middle[0], 1e-3, 1e-12);
    EXPECT_NEAR(middle[1], std::exp(std::log(1e-6) + std::log(1e5) / 3), 1e-15);
    EXPECT_EQ(middle[3], 1);
    EXPECT_EQ(middle[4], 12);
    for (int i = 0; i < 200; ++i) {
        const Configuration drawn = random_configuration(space, 7, i);
        const Configuration again = space.from_unit(space.to_unit(drawn));
        for (size_t p = 0; p < space.size(); ++p) {
            EXPECT_TRUE(space.parameters[p].holds(drawn[p])) << p << ": " << drawn[p];
            EXPECT_NEAR(again[p], drawn[p], 1e-12 * std::abs(drawn[p])) << p;
        }
    }
}

TEST(Space, TheAlternativeHasAQuarterOfTheDraws) {
    const Space space = space_of("a = { log = [1e-6, 1e-1], or = 0 }\n");
    int zeros = 0;
    for (int i = 0; i < 4000; ++i) zeros += random_configuration(space, 1, i)[0] == 0 ? 1 : 0;
    EXPECT_NEAR(zeros, 1000, 100);
}

TEST(Space, SettingsReadBackAsFlags) {
    base::Schema schema;
    schema.real("optim.lr", 1, "");
    schema.integer("model.width", 1, "");
    schema.boolean("fast", false, "");
    schema.text("name", "", "");
    const Space space = space_of(
        "\"optim.lr\" = { log = [1e-5, 1e-1] }\n\"model.width\" = { int = [4, 16] }\nfast = { choice = [true] }\n"
        "name = { choice = [\"a b\", \"\\\"quoted\\\"\", \"\"] }\n");
    for (double name = 0; name < 3; ++name) {
        const Configuration drawn{0.1 / 3, 7, 0, name};
        const auto recipe = base::Recipe::parse("", "empty", schema, {space.settings(drawn), {}});
        ASSERT_TRUE(recipe.ok()) << recipe.error().text();
        EXPECT_EQ(recipe->real("optim.lr"), 0.1 / 3);
        EXPECT_EQ(recipe->integer("model.width"), 7);
        EXPECT_TRUE(recipe->boolean("fast"));
        EXPECT_EQ(recipe->text("name"), std::get<std::string>(space.parameters[3].choices[static_cast<size_t>(name)]));
    }
}

TEST(Space, HostileSpacesAreRefusedWithTheirPlace) {
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"a = { log = [0, 1] }", "above 0"},
        {"a = { log = [-1.0, 1] }", "above 0"},
        {"a = { uniform = [1, 1] }", "is empty"},
        {"a = { uniform = [2, 1] }", "is empty"},
        {"a = { uniform = [0, inf] }", "two finite numbers"},
        {"a = { uniform = [nan, 1] }", "two finite numbers"},
        {"a = { uniform = [-1e308, 1e308] }", "too wide"},
        {"a = { uniform = [1, 2, 3] }", "two finite numbers"},
        {"a = { uniform = 3 }", "two finite numbers"},
        {"a = { uniform = [\"x\", 3] }", "two finite numbers"},
        {"a = { int = [1, 2.5] }", "two finite whole numbers"},
        {"a = { int = [0, 9223372036854775807] }", "two finite whole numbers"},
        {"a = { int = [4, 16], step = 5 }", "does not divide"},
        {"a = { int = [4, 16], step = 0 }", "at least 1"},
        {"a = { uniform = [4, 16], step = 4 }", "only { int"},
        {"a = { choice = [] }", "at least one value"},
        {"a = { choice = 3 }", "at least one value"},
        {"a = { choice = [1, nan] }", "nothing else"},
        {"a = { choice = [[1], [2]] }", "nothing else"},
        {"a = { choice = [1, 2, 1] }", "holds 1 twice"},
        {"a = { choice = [1, 2], or = 0 }", "add the value to its list"},
        {"a = { log = [1, 2], or = 1.5 }", "lies inside"},
        {"a = { log = [1, 2], or = \"x\" }", "one finite number"},
        {"a = { log = [1, 2], uniform = [1, 2] }", "two kinds"},
        {"a = { lgo = [1, 2] }", "did you mean log?"},
        {"a = {}", "needs a range or a choice"},
        {"\"a\" = 3", "needs a range or a choice"},
        {"\"a.b\" = { log = [1, 2] }\na.b = { log = [1, 2] }", "twice"},
        {"\"A b\" = { log = [1, 2] }", "not a recipe's key"},
        {"\"a\\\"b\" = { log = [1, 2] }", "not a recipe's key"},
    };
    for (const auto& [line, message] : cases) {
        const auto read = read_space("good = { uniform = [0, 1] }\n" + line + "\n");
        ASSERT_FALSE(read.ok()) << line;
        EXPECT_NE(read.error().message.find(message), std::string::npos) << line << "\n" << read.error().text();
        EXPECT_TRUE(read.error().place.starts_with("study.toml:")) << line << ": " << read.error().place;
        EXPECT_EQ(read.error().exit_status, 2);
    }
    EXPECT_FALSE(read_space("").ok());
}

}  // namespace
}  // namespace millrace::search
