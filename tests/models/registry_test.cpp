#include "models/registry.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "models/baselines/baseline.h"
#include "models/collective/collective.h"

namespace millrace::models {
namespace {

TEST(Registry, ListGivesTheKnownParameterCounts) {
    auto listed = list();
    ASSERT_TRUE(listed.ok()) << listed.error().text();
    std::map<std::pair<std::string, std::string>, std::int64_t> counts;
    for (const Listing& row : *listed) counts[{row.model, row.preset}] = row.parameters;
    EXPECT_EQ((counts[{"collective", "debug"}]), 559738);
    EXPECT_EQ((counts[{"collective", "phase1"}]), 2884042);
    EXPECT_EQ((counts[{"collective", "debug-r2"}]), 567044);
    EXPECT_EQ((counts[{"collective", "phase1-r2"}]), 2969887);
    EXPECT_EQ((counts[{"leak_cnn", "base"}]), 617987);
    EXPECT_EQ((counts[{"transformer", "base"}]), 3108368);
    EXPECT_EQ((counts[{"k1", "base"}]), 4300688);
    EXPECT_EQ((counts[{"k1", "continual"}]), 4300688);
    EXPECT_EQ((counts[{"k1", "deep"}]), 8010128);
    ASSERT_EQ(counts.size(), 4 + 6 * 2 + 5 + 2 + 2 + 2 + 4u);
    const std::set<std::string> others{"collective", "energy_flow", "cnn", "leak_cnn", "transformer", "k1"};
    for (const auto& [key, count] : counts) {
        if (others.contains(key.first)) continue;
        const double target = key.second == "debug" ? 559738 : 2884042;
        EXPECT_NEAR(static_cast<double>(count), target, 0.05 * target) << key.first << " " << key.second;
    }
}

TEST(Registry, UnknownNamesAreRefusedWithTheNearest) {
    auto model = schema("colective", "debug");
    ASSERT_FALSE(model.ok());
    EXPECT_NE(model.error().message.find("did you mean \"collective\""), std::string::npos) << model.error().message;
    EXPECT_EQ(model.error().exit_status, 2);
    auto preset = schema("deep", "phase2");
    ASSERT_FALSE(preset.ok());
    EXPECT_NE(preset.error().message.find("phase1"), std::string::npos);
}

data::Fields images(std::int32_t pixels, std::int32_t classes) {
    return {{"image", data::Field::Kind::real, pixels}, {"label", data::Field::Kind::integer, 1, classes}};
}

base::Result<std::unique_ptr<Model>> made(const std::string& name, const std::string& preset, const std::string& text,
                                          const data::Fields& fields = images(784, 10)) {
    MILLRACE_LET(keys, schema(name, preset));
    base::Schema below;
    below.add("model", keys);
    MILLRACE_LET(recipe, base::Recipe::parse(text, "test.toml", below));
    return make(recipe, fields);
}

TEST(Registry, FiveClassesGiveTheDetectorTheKnownParameterCount) {
    auto label = data::Field{"label", data::Field::Kind::integer, 1, 5};
    label.classes = std::make_shared<const data::Classes>(
        data::Classes{{"BACKGROUND", "CRACK", "LEAK", "NORMAL", "UNCLASSIFIED"}, {}, 2, {40, 2}});
    auto model = made("leak_cnn", "base", "", {{"features", data::Field::Kind::real, 64}, label});
    ASSERT_TRUE(model.ok()) << model.error().text();
    EXPECT_EQ(*count_parameters(std::move(model).value()), 618758);
}

TEST(Registry, RecipeKeysReachTheCollective) {
    auto model = made("collective", "debug",
                      "[model]\nrevision = \"r2\"\nn_total = 10\nexpert_ratio = 0.45\nexpert_hidden = [20, 15, 10]\nhead_dropout "
                      "= 0.5\nvary_analysts = true\n",
                      images(23, 7));
    ASSERT_TRUE(model.ok()) << model.error().text();
    const CollectiveConfig& config = dynamic_cast<Collective&>(**model).config();
    EXPECT_EQ(config.revision, Revision::r2);
    EXPECT_EQ(config.experts, 4) << "4.5 rounds half to even";
    EXPECT_EQ(config.analysts, 6);
    EXPECT_EQ(config.expert.hidden, (std::vector<std::int32_t>{20, 15, 10}));
    EXPECT_FLOAT_EQ(config.head_dropout, 0.5f);
    EXPECT_TRUE(config.vary_analysts);
    EXPECT_EQ(config.features(), 23);
    EXPECT_EQ(config.task.outputs, 7);
}

TEST(Registry, ImpossibleCollectivesAreRefused) {
    for (const char* text :
         {"[model]\nn_experts = 8\n", "[model]\nexpert_hidden = [64]\n", "[model]\nexpert_compression = 0.001\n",
          "[model]\nmember_dropout = 1.0\n", "[model]\ndiversity_temperature = 0.0\n", "[model]\nexpert_compression = nan\n"}) {
        auto model = made("collective", "debug", text);
        ASSERT_FALSE(model.ok()) << text;
        EXPECT_EQ(model.error().exit_status, 2);
    }
}

TEST(Baselines, TargetsOutOfReachAreRefusedAndWidthsBeatThem) {
    auto tiny = made("very_deep", "debug", "[model]\ntarget_parameters = 100\n");
    ASSERT_FALSE(tiny.ok());
    EXPECT_NE(tiny.error().text().find("target_parameters"), std::string::npos) << tiny.error().text();
    auto given = made("shallow", "debug", "[model]\ntarget_parameters = 100\nwidths = [11, 9]\n", images(20, 10));
    ASSERT_TRUE(given.ok()) << given.error().text();
    EXPECT_EQ(count_parameters(std::move(given).value()).value(), baseline_parameters({11, 9}, false, 20, 10));
}

TEST(Baselines, WidthsSolveTheQuadraticForManyTargets) {
    for (BaselineKind kind : kBaselines)
        for (std::int64_t target : {100'000, 559'738, 1'800'000, 2'884'042, 7'150'000})
            for (std::int32_t features : {784, 3072}) {
                auto widths = solve_widths(kind, target, features, 10);
                if (!widths.ok()) {
                    // A narrow chain on a wide input moves by more than 10 % from one width to the next.
                    EXPECT_LT(static_cast<double>(target) / features, 60) << name_of(kind) << " " << target << " " << features;
                    continue;
                }
                const auto found = static_cast<double>(baseline_parameters(*widths, is_residual(kind), features, 10));
                EXPECT_NEAR(found, static_cast<double>(target), 0.05 * static_cast<double>(target))
                    << name_of(kind) << " " << target;
                if (kind == BaselineKind::balanced) {
                    EXPECT_GE(widths->back(), 20);
                }
                if (kind == BaselineKind::shallow) {
                    EXPECT_GE((*widths)[1] * 3, (*widths)[0]);
                    EXPECT_LE((*widths)[1], 0.95 * (*widths)[0]);
                }
            }
}

TEST(CollectiveShapes, VariationFollowsTheIndex) {
    const UnitShape base{{64, 33}, 16};
    EXPECT_EQ(varied(base, 4), base);
    EXPECT_EQ(varied(base, 1).hidden, (std::vector<std::int32_t>{80, 41}));
    EXPECT_EQ(varied(base, 6).hidden, (std::vector<std::int32_t>{64, 48, 33}));
    EXPECT_EQ(varied(base, 3).hidden, (std::vector<std::int32_t>{51, 26}));
    EXPECT_EQ(varied(base, 3).output, 16);
}

TEST(CollectiveShapes, ExpertCountStaysBetweenItsBounds) {
    EXPECT_EQ(expert_count(8, 0.2, Revision::r1), 2);
    EXPECT_EQ(expert_count(8, 0.01, Revision::r1), 1);
    EXPECT_EQ(expert_count(8, 0.01, Revision::r2), 2);
    EXPECT_EQ(expert_count(8, 0.99, Revision::r1), 7);
    EXPECT_EQ(expert_count(2, 0.5, Revision::r2), 1);
}

}  // namespace
}  // namespace millrace::models
