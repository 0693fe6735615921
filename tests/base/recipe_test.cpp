#include "base/recipe.h"
#include "base/json.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdlib>

namespace millrace::base {
namespace {

using namespace std::chrono_literals;

Schema example_schema() {
    Schema schema;
    schema.integer("seed", 42, "seed of all random numbers").at_least(0).per_member();
    schema.boolean("deterministic", false, "pin the kernels");
    schema.integer("train.epochs", 5, "passes over the training data").between(1, 100000);
    schema.integer("train.batch", 32, "samples per step").between(1, 1 << 20);
    schema.real("optim.lr", 1e-3, "learning rate").above(0).per_member();
    schema.real("optim.momentum", 0.9, "momentum of sgd").at_least(0).below(1);
    schema.choice("optim.kind", "adam", {"adam", "adamw", "sgd"}, "optimizer");
    schema.text("data.path", "data/garments", "folder of the data set");
    schema.duration("log.interval", "1s", "time between rows").between(0.01, 3600);
    schema.bytes("checkpoint.limit", "1GiB", "size of kept checkpoints").between(0, 1e12);
    schema.integers("model.widths", {64, 32}, "hidden widths").between(1, 4096).length(1, 8);
    schema.reals("augment.scale", {0.9, 1.1}, "range of scales").length(2, 2);
    schema.text("tag", "", "word to find the run by");
    return schema;
}

Result<Recipe> parse(const std::string& text, std::vector<std::string> flags = {}, std::vector<std::string> environment = {}) {
    return Recipe::parse(text, "r.toml", example_schema(), {std::move(flags), std::move(environment)});
}

void expect_error(const Result<Recipe>& result, const std::string& place, const std::string& part) {
    ASSERT_FALSE(result.ok()) << "expected: " << part;
    EXPECT_EQ(result.error().place, place);
    EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
    EXPECT_EQ(result.error().exit_status, 2);
}

TEST(Recipe, EmptyTextGivesTheDefaults) {
    const auto result = parse("");
    ASSERT_TRUE(result.ok()) << result.error().text();
    const Recipe& recipe = *result;
    EXPECT_EQ(recipe.integer("seed"), 42);
    EXPECT_EQ(recipe.boolean("deterministic"), false);
    EXPECT_EQ(recipe.integer("train.epochs"), 5);
    EXPECT_DOUBLE_EQ(recipe.real("optim.lr"), 1e-3);
    EXPECT_EQ(recipe.text("optim.kind"), "adam");
    EXPECT_EQ(recipe.duration("log.interval"), 1s);
    EXPECT_EQ(recipe.bytes("checkpoint.limit"), 1u << 30);
    EXPECT_EQ(recipe.integers("model.widths"), (std::vector<int64_t>{64, 32}));
    EXPECT_EQ(recipe.text("tag"), "");
    EXPECT_EQ(recipe.place("train.epochs"), "default");
}

TEST(Recipe, FileValuesCarryTheirLine) {
    const auto result = parse(
        "seed = 7\n[train]\nepochs = 3\n\n[optim]\nlr = 1\nkind = \"sgd\"\n[log]\ninterval = \"250ms\"\n"
        "[checkpoint]\nlimit = 4096\n[augment]\nscale = [1, 2.5]\n");
    ASSERT_TRUE(result.ok()) << result.error().text();
    EXPECT_EQ(result->integer("train.epochs"), 3);
    EXPECT_EQ(result->place("train.epochs"), "r.toml:3");
    EXPECT_EQ(result->real("optim.lr"), 1.0) << "a whole number will do where a number is wanted";
    EXPECT_EQ(result->duration("log.interval"), 250ms);
    EXPECT_EQ(result->bytes("checkpoint.limit"), 4096u);
    EXPECT_EQ(result->reals("augment.scale"), (std::vector<double>{1.0, 2.5}));
    EXPECT_EQ(result->bad("train.epochs", "no").text(), "r.toml:3: no");
}

TEST(Recipe, UnknownKeyIsRefusedWithLineAndNearestName) {
    expect_error(parse("[train]\nepoch = 3\n"), "r.toml:2", "unknown key 'train.epoch'; did you mean train.epochs?");
    expect_error(parse("\n[trian]\nepochs = 3\n"), "r.toml:3", "did you mean train.epochs?");
    expect_error(parse("epochs = 3\n"), "r.toml:1", "did you mean train.epochs?");
    expect_error(parse("colour = 3\n"), "r.toml:1", "unknown key 'colour'; millrace train --keys");
    expect_error(parse("[nothing]\n"), "r.toml:1", "unknown key 'nothing'");
    expect_error(parse("train = 3\n"), "r.toml:1", "train is a table");
    expect_error(parse("[train.epochs]\nx = 1\n"), "r.toml:2", "did you mean train.epochs?");
    expect_error(parse("\"train.epochs\" = 3\n"), "r.toml:1", "unknown key");
    expect_error(parse("[[train]]\nepochs = 1\n"), "r.toml:1", "train is a table");
}

TEST(Recipe, FirstMistakeByLineIsReported) {
    expect_error(parse("[train]\nbatch = 0\n[optim]\nlr = -1\n[augment]\nx = 1\n"), "r.toml:2", "train.batch");
}

TEST(Recipe, DuplicatesAndBrokenTomlAreRefusedWithLine) {
    expect_error(parse("[train]\nepochs = 3\nepochs = 4\n"), "r.toml:3", "epochs");
    expect_error(parse("[train]\nepochs = 3\n[train]\nbatch = 4\n"), "r.toml:3", "train");
    expect_error(parse("seed = \n"), "r.toml:1", "");
    expect_error(parse("seed = 99999999999999999999\n"), "r.toml:1", "");
    expect_error(parse("[data]\npath = \"\xff\xfe\"\n"), "r.toml:2", "");
    expect_error(parse(std::string("seed = 1\n\0x = 2", 16)), "r.toml:2", "");
    expect_error(parse("tags = " + std::string(100000, '[')), "r.toml:1", "");
}

TEST(Recipe, WrongTypesSayWhatWouldBeRight) {
    expect_error(parse("[train]\nepochs = 3.0\n"), "r.toml:2", "train.epochs must be a whole number, not 3.0");
    expect_error(parse("[train]\nepochs = \"3\"\n"), "r.toml:2", "not \"3\"");
    expect_error(parse("[train]\nepochs = [3]\n"), "r.toml:2", "not a list");
    expect_error(parse("[train]\nepochs = 2020-01-01\n"), "r.toml:2", "not a date or time");
    expect_error(parse("[optim]\nlr = true\n"), "r.toml:2", "not true");
    expect_error(parse("deterministic = 1\n"), "r.toml:1", "true or false");
    expect_error(parse("[log]\ninterval = 5\n"), "r.toml:2", "write for example \"5s\"");
    expect_error(parse("[log]\ninterval = \"5\"\n"), "r.toml:2", "unit is missing");
    expect_error(parse("[checkpoint]\nlimit = \"64 parrots\"\n"), "r.toml:2", "is no unit of size");
    expect_error(parse("[checkpoint]\nlimit = -1\n"), "r.toml:2", "negative");
    expect_error(parse("[model]\nwidths = 64\n"), "r.toml:2", "list of whole numbers");
    expect_error(parse("[model]\nwidths = [64, 0.5]\n"), "r.toml:2", "not 0.5");
    expect_error(parse("[model]\nwidths = [[64]]\n"), "r.toml:2", "list inside a list");
    expect_error(parse("[data]\npath = \"a\\u0000b\"\n"), "r.toml:2", "zero byte");
}

TEST(Recipe, RangesAndNonFiniteNumbersAreRefused) {
    expect_error(parse("[train]\nepochs = 0\n"), "r.toml:2", "it must be from 1 to 100000");
    expect_error(parse("[optim]\nlr = 0\n"), "r.toml:2", "it must be above 0");
    expect_error(parse("[optim]\nlr = nan\n"), "r.toml:2", "optim.lr = nan is not a finite number");
    expect_error(parse("[optim]\nlr = inf\n"), "r.toml:2", "not a finite number");
    expect_error(parse("[optim]\nlr = [1e-3, nan]\n"), "r.toml:2", "not a finite number");
    expect_error(parse("[optim]\nmomentum = 1\n"), "r.toml:2", "at least 0 and below 1");
    expect_error(parse("[log]\ninterval = \"1ms\"\n"), "r.toml:2", "from 10ms to 1h");
    expect_error(parse("[checkpoint]\nlimit = \"2TB\"\n"), "r.toml:2", "from 0B to 1TB");
    expect_error(parse("[model]\nwidths = []\n"), "r.toml:2", "from 1 to 8");
    expect_error(parse("[optim]\nlr = []\n"), "r.toml:2", "holds 0 values");
    expect_error(parse("[augment]\nscale = [1]\n"), "r.toml:2", "from 2 to 2");
    expect_error(parse("[optim]\nkind = \"adma\"\n"), "r.toml:2", "is not one of adam, adamw, sgd; did you mean adam?");
}

TEST(Recipe, FlagsBeatEnvironmentBeatsFileBeatsDefault) {
    const std::string file = "[train]\nepochs = 10\nbatch = 20\n[optim]\nlr = 0.5\n";
    const auto result =
        parse(file, {"train.epochs=30"}, {"MILLRACE_TRAIN__EPOCHS=40", "MILLRACE_TRAIN__BATCH=50", "MILLRACE_SEED=9"});
    ASSERT_TRUE(result.ok()) << result.error().text();
    EXPECT_EQ(result->integer("train.epochs"), 30);
    EXPECT_EQ(result->place("train.epochs"), "--set train.epochs=30");
    EXPECT_EQ(result->integer("train.batch"), 50);
    EXPECT_EQ(result->place("train.batch"), "MILLRACE_TRAIN__BATCH");
    EXPECT_EQ(result->real("optim.lr"), 0.5);
    EXPECT_EQ(result->integer("seed"), 9);
    EXPECT_EQ(result->place("optim.kind"), "default");
}

TEST(Recipe, FlagsFollowTheRulesOfTheFile) {
    expect_error(parse("", {"train.epoch=3"}), "--set train.epoch=3", "did you mean train.epochs?");
    expect_error(parse("", {"train.epochs"}), "--set train.epochs", "write --set key=value");
    expect_error(parse("", {"train.epochs=abc"}), "--set train.epochs=abc", "not \"abc\"");
    expect_error(parse("", {"train.epochs="}), "--set train.epochs=", "whole number");
    expect_error(parse("", {"train.epochs=3.5"}), "--set train.epochs=3.5", "not 3.5");
    expect_error(parse("", {"train.epochs=0"}), "--set train.epochs=0", "out of range");
    expect_error(parse("", {"optim.lr=nan"}), "--set optim.lr=nan", "not a finite number");
    expect_error(parse("", {"optim.kind=adma"}), "--set optim.kind=adma", "did you mean adam?");
    EXPECT_EQ(parse("", {"seed=1", "seed=2"}).value().integer("seed"), 2) << "the last wins";
    expect_error(parse("", {"seed=x", "seed=2"}), "--set seed=x", "seed must be a whole number");
    expect_error(parse("", {"train.epochs=3\nseed = 4"}), "--set train.epochs=3\nseed = 4", "whole number");
    expect_error(parse("", {"data.path=\xff"}), "--set data.path=\xff", "UTF-8");
    expect_error(parse("", {"=3"}), "--set =3", "unknown key ''");
    expect_error(parse("[train]\nepochs = 0\n", {"train.epochs=3"}), "r.toml:2", "out of range");
}

TEST(Recipe, NumbersBeyondSinglePrecisionAreRefused) {
    for (const std::string small : {"1e-300", "1e-39", "1e-46"})
        expect_error(parse("", {"optim.lr=" + small}), "--set optim.lr=" + small, "too small for 32 bits; 0 or a size from");
    expect_error(parse("", {"optim.lr=1e300"}), "--set optim.lr=1e300", "too large for 32 bits");
    EXPECT_EQ(parse("", {"optim.lr=2e-38"}).value().real("optim.lr"), 2e-38);
}

TEST(Recipe, FlagsNeedNeitherQuotesNorBrackets) {
    const auto result =
        parse("", {"data.path=a b=c", "optim.lr=1e-3,2e-3", "model.widths=128", "tag=red, blue", "optim.kind=\"sgd\"",
                   "log.interval=2m", "checkpoint.limit=64MiB", "deterministic=true", "augment.scale=[1, 2]"});
    ASSERT_TRUE(result.ok()) << result.error().text();
    EXPECT_EQ(result->text("data.path"), "a b=c");
    EXPECT_EQ(result->reals("optim.lr"), (std::vector<double>{1e-3, 2e-3}));
    EXPECT_EQ(result->integers("model.widths"), std::vector<int64_t>{128});
    EXPECT_EQ(result->text("tag"), "red, blue");
    EXPECT_EQ(result->text("optim.kind"), "sgd");
    EXPECT_EQ(result->duration("log.interval"), 2min);
    EXPECT_EQ(result->bytes("checkpoint.limit"), 64u << 20);
    EXPECT_TRUE(result->boolean("deterministic"));
}

TEST(Recipe, EnvironmentRefusesUnknownKeysButLeavesOtherVariablesAlone) {
    expect_error(parse("", {}, {"MILLRACE_TRAIN__EPOCH=3"}), "MILLRACE_TRAIN__EPOCH", "did you mean train.epochs?");
    expect_error(parse("", {}, {"MILLRACE_TRAIN__EPOCHS=x"}), "MILLRACE_TRAIN__EPOCHS", "whole number");
    EXPECT_TRUE(parse("", {}, {"MILLRACE_LOG=debug", "HOME=/root", "MILLRACE_"}).ok());
    ::setenv("MILLRACE_TRAIN__BATCH", "77", 1);
    const auto mine = recipe_environment();
    ::unsetenv("MILLRACE_TRAIN__BATCH");
    EXPECT_EQ(parse("", {}, mine)->integer("train.batch"), 77);
}

TEST(Recipe, MembersHaveTheirOwnValues) {
    const auto result = parse("seed = [1, 2, 3]\n[optim]\nlr = 0.1\n");
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->integer("seed", 2), 3);
    EXPECT_EQ(result->real("optim.lr", 2), 0.1);
    EXPECT_TRUE(result->check_members(3).ok());
    const auto wrong = result->check_members(4);
    ASSERT_FALSE(wrong.ok());
    EXPECT_EQ(wrong.error().place, "r.toml:1");
    EXPECT_NE(wrong.error().message.find("seed has 3 values but members = 4; give one or 4"), std::string::npos);
}

TEST(Recipe, DeepNestingIsRefusedBeforeItIsParsed) {
    // Parsing, walking and freeing such tables recurses: any of these would overflow the stack.
    std::string dots = "a", lists, tables;
    for (int i = 0; i < 30'000; ++i) dots += ".a";
    for (int i = 0; i < 30'000; ++i) lists += "[";
    for (int i = 0; i < 200; ++i) tables += "{a.a.a.a.a.a.a.a.a.a.a.a.a.a.a = ";
    expect_error(parse("seed = 1\n" + dots + " = 1\n"), "r.toml:2", "nested more than 16 deep");
    expect_error(parse("[" + dots + "]\nb = 1\n"), "r.toml:1", "nested more than 16 deep");
    expect_error(parse("seed = " + lists), "r.toml:1", "nested more than 16 deep");
    expect_error(parse("seed = " + tables), "r.toml:1", "nested more than 16 deep");
    expect_error(parse("a = [\"\"\"x\"\"\"\", {" + dots + " = 1}]"), "r.toml:1", "nested more than 16 deep");
    for (const std::string& bad : {lists, "[{" + dots + " = 1}]"})
        expect_error(parse("", {"seed=" + bad}), "--set seed=" + bad.substr(0, 195) + "...", "seed must be a whole number");
    const auto flag = parse("", {dots + "=1"});
    expect_error(flag, "--set " + dots.substr(0, 200) + "...", "unknown key");
    EXPECT_LT(flag.error().text().size(), 1000u);
    std::string variable = "MILLRACE_A";
    for (int i = 0; i < 30'000; ++i) variable += "__A";
    EXPECT_LT(parse("", {}, {variable + "=1"}).error().text().size(), 1000u);
}

TEST(Recipe, DotsAndBracketsInTextsAreNoNesting) {
    const std::string dots(100, '.'), brackets(100, '[');
    const auto result = parse("# " + dots + brackets + "\ntag = \"" + dots + "\\\"" + brackets + '"' + "\n[data]\npath = \"\"\"" +
                              dots + "\n\"" + brackets + "\"\"\"\n[augment]\nscale = [0.5, 1.5]\n");
    ASSERT_TRUE(result.ok()) << result.error().text();
    EXPECT_EQ(result->text("tag"), dots + "\"" + brackets);
    EXPECT_EQ(result->text("data.path"), dots + "\n\"" + brackets);
}

TEST(Recipe, CanonicalTomlReadsBackEqual) {
    const auto first = parse(
        "tag = \"a \\\"quoted\\\" \\\\ word, tab\\there\"\nseed = 9007199254740993\n[optim]\nlr = [0.1, 1e-30]\n"
        "[log]\ninterval = \"90s\"\n[checkpoint]\nlimit = 1025\n[data]\npath = \"gr\u00f6\u00dfe\"\n");
    ASSERT_TRUE(first.ok()) << first.error().text();
    const std::string text = first->to_toml();
    const auto second = parse(text);
    ASSERT_TRUE(second.ok()) << second.error().text() << text;
    EXPECT_TRUE(*first == *second);
    EXPECT_EQ(second->to_toml(), text);
    EXPECT_EQ(second->integer("seed"), 9007199254740993);
    EXPECT_EQ(second->text("tag"), "a \"quoted\" \\ word, tab\there");
    EXPECT_EQ(text.find("[log]\ninterval = \"90s\"\n"), text.find("[log]"));
    EXPECT_NE(text.find("lr = [0.1, 1e-30]"), std::string::npos) << text;
}

TEST(Recipe, JsonHoldsEveryKeyNested) {
    const auto recipe = parse("seed = [1]\n[optim]\nlr = [0.1, 0.2]\n");
    const auto json = base::json_or_throw(recipe->to_json());
    EXPECT_EQ(json["seed"], 1);
    EXPECT_EQ(json["train"]["epochs"], 5);
    EXPECT_EQ(json["optim"]["lr"], (std::vector<double>{0.1, 0.2}));
    EXPECT_EQ(json["log"]["interval"], "1s");
    EXPECT_EQ(json["checkpoint"]["limit"], "1GiB");
    EXPECT_EQ(json["deterministic"], false);
    EXPECT_EQ(json["tag"], "");
    EXPECT_EQ(json["model"]["widths"], (std::vector<int>{64, 32}));
}

TEST(Recipe, DifferencesNameKeyAndBothValues) {
    const auto left = parse("[train]\nbatch = 32\nepochs = 5\n"), right = parse("[train]\nbatch = 64\n");
    const auto found = left->differences(*right);
    ASSERT_EQ(found.size(), 1u) << "a default equals the same value written out";
    EXPECT_EQ(found[0].name, "train.batch");
    EXPECT_EQ(found[0].left, "32");
    EXPECT_EQ(found[0].right, "64");
    Schema larger = example_schema();
    larger.integer("extra", 1, "one more");
    const auto other = Recipe::parse("", "o.toml", larger);
    const auto more = parse("")->differences(*other);
    ASSERT_EQ(more.size(), 1u);
    EXPECT_EQ(more[0].left, "absent");
}

TEST(Recipe, ModelAddsItsOwnKeys) {
    Schema own;
    own.integer("depth", 3, "layers").between(1, 10);
    own.text("vocabulary", "", "file of words");
    Schema schema = example_schema();
    schema.add("model.mine", own);
    schema.at("train.batch").initial = int64_t{128};
    const auto recipe = Recipe::parse("[model.mine]\nvocabulary = \"w.txt\"\n", "r.toml", schema);
    ASSERT_TRUE(recipe.ok()) << recipe.error().text();
    EXPECT_EQ(recipe->integer("model.mine.depth"), 3);
    EXPECT_EQ(recipe->integer("train.batch"), 128);
    EXPECT_EQ(recipe->text("model.mine.vocabulary"), "w.txt");
    const auto again = Recipe::parse(recipe->to_toml(), "again", schema);
    ASSERT_TRUE(again.ok()) << again.error().text();
    EXPECT_TRUE(*again == *recipe);
}

TEST(Recipe, PeekSeesTheStrongestLayer) {
    const std::string text = "[model]\nname = \"collective\"\nother = 3\n";
    EXPECT_EQ(peek_recipe_text(text, "r.toml", "model.name").value(), "collective");
    EXPECT_EQ(peek_recipe_text(text, "r.toml", "model.name", {{"model.name=mine", "x=1"}, {}}).value(), "mine");
    EXPECT_EQ(peek_recipe_text(text, "r.toml", "model.name", {{}, {"MILLRACE_MODEL__NAME=env", "MILLRACE_A__B=1"}}).value(),
              "env");
    EXPECT_EQ(peek_recipe_text("", "r.toml", "model.name").value(), std::nullopt);
    EXPECT_FALSE(peek_recipe_text("[model]\nname = 3\n", "r.toml", "model.name").ok());
}

TEST(Recipe, HelpTableListsKeyTypeDefaultRangeAndMeaning) {
    const std::string help = example_schema().help_text();
    EXPECT_NE(help.find("train.epochs"), std::string::npos);
    EXPECT_NE(help.find("passes over the training data (from 1 to 100000)"), std::string::npos);
    EXPECT_NE(help.find("number or list of numbers (one per member)"), std::string::npos);
    EXPECT_NE(help.find("one of adam, adamw, sgd"), std::string::npos);
    EXPECT_NE(help.find("\"1GiB\""), std::string::npos);
}

TEST(RecipeDeathTest, MisuseBySourceCodeAborts) {
    GTEST_FLAG_SET(death_test_style, "fast");
    const auto recipe = parse("");
    EXPECT_DEATH((void)recipe->integer("train.nothing"), "no key train.nothing");
    EXPECT_DEATH((void)recipe->integer("optim.momentum"), "is a number");
    EXPECT_DEATH((void)recipe->integer("log.interval"), "is a duration");
    EXPECT_DEATH(
        {
            Schema twice;
            twice.boolean("a", true, "");
            twice.boolean("a", true, "");
        },
        "added twice");
    EXPECT_DEATH(
        {
            Schema both;
            both.boolean("a", true, "");
            both.boolean("a.b", true, "");
        },
        "cannot also be a table");
    EXPECT_DEATH(
        {
            Schema wrong;
            wrong.integer("a", 0, "").between(1, 2);
            (void)Recipe::parse("", "r", wrong);
        },
        "default of a");
}

}  // namespace
}  // namespace millrace::base
