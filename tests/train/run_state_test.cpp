#include "train/run_state.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace millrace::train {
namespace {

RunState some_state() {
    RunState state;
    state.step = 1234567;
    state.steps_per_epoch = 1688;
    state.micro_batch = 16;
    state.forms = {"dense_forward layers.*.linear1 1 x 1 bf16 64x128 256x128=tiles"};
    state.members.resize(2);
    state.members[1].seed = 0xfedcba9876543210u;
    state.members[1].base_lr = std::nextafterf(1e-3f, 1.0f);
    state.members[1].position = 31;
    state.members[1].dropout_scale = 0.25f;
    state.members[1].loss_scale = 32768;
    state.members[1].good_steps = 1999;
    state.group_names = {"weights"};
    state.groups = {{}, {.lr_factor = std::nextafterf(0.1f, 1.0f), .trainable = 0, .applied = 9, .last_applied = 12}};
    state.epoch_sums = StepSums(2);
    state.epoch_sums.members[1].loss = 0.1 + 0.2;
    state.epoch_sums.members[1].rows = 7;
    state.recipe = "seed = 1\n";
    state.recipe_json = R"({"seed": 1})";
    state.best = {true, 0.875, 1, 3, 99, {{NAN, 2, 66, 0.5, 0.875}, {0.875, 3, 99, NAN, 0.1}}};
    state.staleness = {{0.1 + 0.2, NAN}, 4};
    state.domains = {{1, {{0.1 + 0.2, 3}, {NAN, 4}}}, {2, {{1, 2}, {3, 4}}}};
    state.data = {"garments", 9, 1, 5, 0xffffffffffffffffu};
    state.metrics_offset = 1ull << 40;
    state.figures.precision = "f16";
    return state;
}

TEST(RunState, SurvivesToTheBit) {
    const RunState before = some_state();
    const auto after = decode_state(encode_state(before), "state.json");
    ASSERT_TRUE(after.ok()) << after.error().text();
    EXPECT_EQ(after->step, before.step);
    EXPECT_EQ(after->members[1].seed, before.members[1].seed);
    EXPECT_EQ(after->members[1].base_lr, before.members[1].base_lr);
    EXPECT_EQ(after->members[1].position, 31u);
    EXPECT_EQ(after->members[1].dropout_scale, 0.25f);
    EXPECT_EQ(after->members[0].dropout_scale, 1);
    EXPECT_EQ(after->members[1].loss_scale, 32768);
    EXPECT_EQ(after->members[1].good_steps, 1999u);
    EXPECT_EQ(after->members[0].loss_scale, 1);
    ASSERT_EQ(after->groups.size(), 2u);
    EXPECT_EQ(after->groups[0].trainable, 1u);
    EXPECT_EQ(after->group_names, std::vector<std::string>{"weights"});
    EXPECT_EQ(after->groups[1].lr_factor, before.groups[1].lr_factor);
    EXPECT_EQ(after->groups[1].trainable, 0u);
    EXPECT_EQ(after->groups[1].applied, 9u);
    EXPECT_EQ(after->groups[1].last_applied, 12u);
    EXPECT_EQ(after->epoch_sums.members[1].loss, before.epoch_sums.members[1].loss);
    EXPECT_EQ(after->epoch_sums.members[0].loss_min, INFINITY);
    EXPECT_EQ(after->epoch_sums.members[0].loss_max, -INFINITY);
    ASSERT_EQ(after->best.members.size(), 2u);
    EXPECT_TRUE(std::isnan(after->best.members[0].value));
    EXPECT_EQ(after->best.members[0].epoch, 2u);
    EXPECT_EQ(after->best.members[0].step, 66u);
    EXPECT_EQ(after->best.members[1].value, 0.875);
    EXPECT_EQ(after->best.members[1].accuracy, 0.1);
    EXPECT_TRUE(std::isnan(after->best.members[1].loss));
    EXPECT_EQ(after->staleness.evaluations, 4u);
    EXPECT_EQ(after->staleness.best.at(0), 0.1 + 0.2);
    EXPECT_TRUE(std::isnan(after->staleness.best.at(1)));
    ASSERT_EQ(after->domains.size(), 2u);
    EXPECT_EQ(after->domains[1].epoch, 2u);
    EXPECT_EQ(after->domains[0].losses[0], (std::vector<double>{0.1 + 0.2, 3}));
    EXPECT_TRUE(std::isnan(after->domains[0].losses[1][0]));
    EXPECT_EQ(after->domains[1].losses, before.domains[1].losses);
    EXPECT_EQ(after->data, before.data);
    EXPECT_EQ(after->metrics_offset, before.metrics_offset);
    EXPECT_EQ(after->recipe, before.recipe);
    EXPECT_EQ(after->micro_batch, 16);
    EXPECT_EQ(after->forms, before.forms);
    EXPECT_EQ(after->figures.precision, "f16");
}

TEST(RunState, MayHoldNoGroups) {
    auto written = base::json_or_throw(encode_state(some_state()));
    for (auto& member : written["members"]) member.erase("groups");
    const auto state = decode_state(base::json_text(written), "x");
    ASSERT_TRUE(state.ok()) << state.error().text();
    EXPECT_TRUE(state->groups.empty());
}

TEST(RunState, StalenessIsOfAllMembersOrMissing) {
    auto written = base::json_or_throw(encode_state(some_state()));
    written["staleness"]["best"].erase(1);
    EXPECT_FALSE(decode_state(base::json_text(written), "x").ok());
    written["staleness"] = 3;
    EXPECT_FALSE(decode_state(base::json_text(written), "x").ok());
    written.erase("staleness");
    const auto state = decode_state(base::json_text(written), "x");
    ASSERT_TRUE(state.ok()) << state.error().text();
    EXPECT_EQ(state->staleness.evaluations, 0u);
}

TEST(RunState, HostileTextIsAnErrorWithItsPlace) {
    for (const char* text : {"", "{", "[]", "3", "{}", R"({"format": 2})", R"({"format": "1"})"}) {
        const auto refused = decode_state(text, "here/state.json");
        ASSERT_FALSE(refused.ok()) << text;
        EXPECT_EQ(refused.error().place, "here/state.json");
        EXPECT_EQ(refused.error().exit_status, 2);
    }
}

TEST(RunState, NumbersOutOfRangeAreRefusedInOurWords) {
    const auto whole = base::json_or_throw(encode_state(some_state()));
    const auto refused = [](const nlohmann::json& document) {
        const auto state = decode_state(base::json_text(document), "x");
        EXPECT_FALSE(state.ok()) << base::json_text(document);
        EXPECT_EQ(state.error().text().find("json.exception"), std::string::npos) << state.error().text();
    };
    for (const char* key : {"step", "steps_per_epoch"})
        for (const nlohmann::json& bad :
             {nlohmann::json(-1), nlohmann::json(1.5), nlohmann::json("1"), nlohmann::json(nullptr)}) {
            auto part = whole;
            part[key] = bad;
            refused(part);
        }
    auto part = whole;
    part["members"][0]["position"] = -1;
    refused(part);
    for (const double scale : {0.0, 0.5, -4.0, 1e60}) {
        part = whole;
        part["members"][1]["loss_scale"] = scale;
        refused(part);
    }
    part = whole;
    part["members"][0]["groups"]["weights"]["applied"] = -1;
    refused(part);
    part = whole;
    part["members"][1].erase("groups");
    refused(part);
    part = whole;
    part["streams"]["metrics.jsonl"] = -1;
    refused(part);
    part = whole;
    part["best"]["epoch"] = 1ull << 40;
    refused(part);
    part = whole;
    part["best"]["losses"].erase(1);
    refused(part);
    for (const char* key : {"values", "epochs", "steps"}) {
        part = whole;
        part["best"][key].erase(1);
        refused(part);
        part["best"][key] = {"one", "two"};
        refused(part);
    }
    for (const char* losses : {"[[1, 2]]", "[[1, 2], [3]]", "[[], []]", "[1, 2]", "[[1, 2], [3, \"4\"]]", "3"}) {
        part = whole;
        part["domains"][1]["losses"] = base::json_or_throw(losses);
        refused(part);
    }
    EXPECT_EQ(decode_state("{", "x").error().text().find("json.exception"), std::string::npos);
}

TEST(RunState, ABestEpochOfAllMembersIsThatOfEach) {
    auto old = base::json_or_throw(encode_state(some_state()));
    for (const char* key : {"values", "epochs", "steps"}) old["best"].erase(key);
    const auto state = decode_state(base::json_text(old), "x");
    ASSERT_TRUE(state.ok()) << state.error().text();
    for (const MemberBest& member : state->best.members) {
        EXPECT_EQ(member.epoch, 3u);
        EXPECT_EQ(member.step, 99u);
    }
    EXPECT_EQ(state->best.members[1].value, 0.875);
    EXPECT_TRUE(std::isnan(state->best.members[0].value)) << "which it chose by is not known of the others";
}

TEST(RunState, EveryMissingKeyIsRefused) {
    const auto whole = base::json_or_throw(encode_state(some_state()));
    for (const char* key :
         {"step", "steps_per_epoch", "complete", "members", "epoch_sums", "best", "data", "streams", "recipe_toml", "model"}) {
        auto part = whole;
        part.erase(key);
        EXPECT_FALSE(decode_state(base::json_text(part), "x").ok()) << key;
        part[key] = "wrong";
        if (std::string(key) != "recipe_toml" && std::string(key) != "model") {
            EXPECT_FALSE(decode_state(base::json_text(part), "x").ok()) << key;
        }
    }
    auto empty = whole;
    empty["members"] = nlohmann::json::array();
    empty["epoch_sums"] = nlohmann::json::array();
    EXPECT_FALSE(decode_state(base::json_text(empty), "x").ok());
    auto fewer = whole;
    fewer["epoch_sums"].erase(1);
    EXPECT_FALSE(decode_state(base::json_text(fewer), "x").ok());
}

}  // namespace
}  // namespace millrace::train
