// Profiles and recipe keys of the energy flow model.

#include "models/registry.h"

#include <gtest/gtest.h>

#include <map>

#include "models/energy_flow/energy_flow.h"

namespace millrace::models {
namespace {

base::Result<std::unique_ptr<Model>> made(const std::string& preset, const std::string& text = "") {
    MILLRACE_LET(keys, schema("energy_flow", preset));
    base::Schema below;
    below.add("model", keys);
    MILLRACE_LET(recipe, base::Recipe::parse(text, "test.toml", below));
    return make(recipe, energy_flow_family().usual);
}

/// Parameters whose names begin with each prefix.
std::map<std::string, std::int64_t> counts(Model& model, const std::vector<std::string>& prefixes) {
    auto backend = ops::make_backend(ops::DeviceKind::ref, {});
    EXPECT_TRUE(backend.ok());
    tape::StoreOptions options;
    options.precision = tape::Precision::f64;
    tape::Store store(**backend, options);
    const auto declared = model.declare(store);
    EXPECT_TRUE(declared.ok()) << declared.error().text();
    std::map<std::string, std::int64_t> sums;
    for (const tape::Parameter& p : store.parameters())
        for (const std::string& prefix : prefixes)
            if (p.names[0].starts_with(prefix)) sums[prefix] += p.count();
    return sums;
}

TEST(EnergyFlowRecipe, ProfilesHaveTheKnownSizes) {
    const std::map<std::string, std::int64_t> carriers{
        {"debug", 642816}, {"experiment", 2465280}, {"experiment_v2", 4041216}, {"large", 15946752}, {"wide", 15946752}};
    const std::map<std::string, std::array<std::int32_t, 4>> cubes{{"debug", {20, 20, 10, 5}},
                                                                   {"experiment", {50, 50, 20, 10}},
                                                                   {"experiment_v2", {28, 28, 40, 20}},
                                                                   {"large", {80, 80, 60, 30}},
                                                                   {"wide", {100, 100, 50, 25}}};
    const Family family = energy_flow_family();
    ASSERT_EQ(family.presets.size(), carriers.size());
    for (const std::string& preset : family.presets) {
        auto model = made(preset);
        ASSERT_TRUE(model.ok()) << model.error().text();
        const EnergyFlowConfig config = dynamic_cast<EnergyFlow&>(**model).config();
        const auto& cube = cubes.at(preset);
        EXPECT_EQ((std::array{config.width, config.height, config.depth, config.step_count()}), cube) << preset;
        const auto sums = counts(**model, {"carrier.cells", "mapper", "target_map"});
        EXPECT_EQ(sums.at("carrier.cells"), carriers.at(preset)) << preset;
        EXPECT_EQ(sums.at("mapper"), 769 * std::int64_t{config.cells()}) << preset;
        EXPECT_EQ(sums.at("target_map"), 768 * std::int64_t{config.cells()}) << preset;
    }
}

TEST(EnergyFlowRecipe, BatchOfAProfileIsTheDefaultOutsideTheModel) {
    base::Schema keys;
    for (const char* key : {"train.batch", "eval.batch"}) keys.integer(key, 1, "");
    const auto value = [&](const char* key) { return std::get<std::int64_t>(keys.at(key).initial); };
    const Family family = energy_flow_family();
    const std::map<std::string, std::int64_t> steps{
        {"debug", 8}, {"experiment", 16}, {"experiment_v2", 16}, {"large", 64}, {"wide", 32}};
    for (const std::string& preset : family.presets) {
        family.set_general_defaults(preset, keys);
        EXPECT_EQ(value("train.batch"), steps.at(preset)) << preset;
    }
}

TEST(EnergyFlowRecipe, DeepMapperHasTheSizeOfThreeLayers) {
    auto model = made("debug", "[model]\nmapper = \"deep\"\n");
    ASSERT_TRUE(model.ok()) << model.error().text();
    EXPECT_EQ(counts(**model, {"mapper"}).at("mapper"), 6 * 400 * 400 + 1549 * 400);
    EXPECT_NE((*model)->description().find("deep mapper of 1579600"), std::string::npos) << (*model)->description();
}

TEST(EnergyFlowRecipe, KeysReachTheModel) {
    auto model =
        made("debug",
             "[model]\nwidth = 7\nheight = 5\ndepth = 6\nhidden = 10\nlayers = 3\nsteps = 9\nheadroom = 0.5\nspawn_length "
             "= 0.25\nmax_spawn = 2\narrive = 0.5\nnoise = 0\nsurface_scale = 0.4\nearly_stop = true\nmin_steps = "
             "4\nstop_at = 0.9\npatience = 2\n");
    ASSERT_TRUE(model.ok()) << model.error().text();
    const EnergyFlowConfig& c = dynamic_cast<EnergyFlow&>(**model).config();
    EXPECT_EQ(c.cells(), 35);
    EXPECT_EQ(c.depth, 6);
    EXPECT_EQ(c.hidden, 10);
    EXPECT_EQ(c.layers, 3);
    EXPECT_EQ(c.step_count(), 9);
    EXPECT_EQ(c.headroom, 0.5);
    EXPECT_EQ(c.spawn_length, 0.25);
    EXPECT_EQ(c.max_spawn, 2);
    EXPECT_EQ(c.arrive, 0.5);
    EXPECT_EQ(c.noise, 0);
    EXPECT_EQ(c.surface_scale, 0.4);
    EXPECT_TRUE(c.early_stop);
    EXPECT_EQ(c.least_steps(), 4);
    EXPECT_EQ(c.stop_at, 0.9);
    EXPECT_EQ(c.patience, 2);
    EXPECT_EQ(c.embedding, 768);
}

TEST(EnergyFlowRecipe, CapacityBelowTheFlowsIsRefused) {
    EnergyFlowConfig config;
    EXPECT_TRUE(check_capacity(config, 8).ok());
    config.headroom = -0.25;
    const auto refused = check_capacity(config, 8);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().exit_status, 2);
    EXPECT_NE(refused.error().message.find("2400 rows to the 3200 flows"), std::string::npos) << refused.error().message;
    config.headroom = 0;
    EXPECT_FALSE(check_capacity(config, 1 << 20).ok());
}

}  // namespace
}  // namespace millrace::models
