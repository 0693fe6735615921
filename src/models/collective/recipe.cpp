#include "models/families.h"

#include <fmt/format.h>

#include "models/collective/collective.h"

namespace millrace::models {
namespace {

constexpr double kWidest = 1 << 20;

base::Schema collective_schema(const std::string& preset) {
    const bool debug = preset.starts_with("debug");
    using Widths = std::vector<std::int64_t>;
    base::Schema keys;
    keys.choice("revision", preset.ends_with("-r2") ? "r2" : "r1", {"r1", "r2"},
                "r2 encodes the analysts' votes before the head");
    keys.integer("n_total", 8, "experts and analysts together").between(2, 4096);
    keys.real("expert_ratio", 0.2, "share of experts and analysts that are experts").above(0).below(1);
    keys.integer("n_experts", 0, "number of experts; 0: by expert_ratio").between(0, 4095);
    keys.integers("expert_hidden", debug ? Widths{128, 64} : Widths{512, 256}, "widths of an expert's hidden layers")
        .between(1, kWidest)
        .length(2, 64);
    keys.integer("expert_output", debug ? 32 : 128, "width of an expert's opinion").between(1, kWidest);
    keys.integers("analyst_hidden", debug ? Widths{64, 32} : Widths{256, 128}, "widths of an analyst's hidden layers")
        .between(1, kWidest)
        .length(2, 64);
    keys.integer("analyst_output", debug ? 16 : 64, "width of an analyst's vote").between(1, kWidest);
    keys.boolean("vary_experts", false, "experts differ in shape, by number mod 4");
    keys.boolean("vary_analysts", false, "analysts differ in shape, by number mod 4");
    keys.real("expert_compression", 0.25, "width of the experts' summary over that of their opinions").above(0).between(0, 16);
    keys.real("collective_compression", 1, "r2: factor on the width of the encoded votes").above(0).between(0, 16);
    keys.integer("code", 0, "r2: width of the encoded votes; 0: by rule").between(0, kWidest);
    keys.real("hidden_scale", 1, "head: hidden width over input width").above(0).between(0, 64);
    keys.real("member_dropout", 0.2, "after every hidden layer of an expert or analyst but the last").at_least(0).below(1);
    keys.real("encoder_dropout", 0.1, "inside the encoders").at_least(0).below(1);
    keys.real("head_dropout", 0.2, "inside the head").at_least(0).below(1);
    keys.boolean("diversity_experts", false, "add the diversity term of the experts' opinions to the loss");
    keys.boolean("diversity_analysts", false, "add the diversity term of the analysts' votes to the loss");
    keys.real("diversity_weight", 0.01, "weight of each diversity term").at_least(0);
    keys.real("diversity_temperature", 1, "divides the cosines of the diversity terms").above(0);
    return keys;
}

UnitShape shape_of(const base::Recipe& recipe, const std::string& role) {
    UnitShape shape;
    for (std::int64_t width : recipe.integers(fmt::format("model.{}_hidden", role)))
        shape.hidden.push_back(static_cast<std::int32_t>(width));
    shape.output = static_cast<std::int32_t>(recipe.integer(fmt::format("model.{}_output", role)));
    return shape;
}

base::Result<std::unique_ptr<Model>> make_collective(const base::Recipe& recipe, const data::Fields& fields) {
    CollectiveConfig config;
    config.revision = recipe.text("model.revision") == "r2" ? Revision::r2 : Revision::r1;
    MILLRACE_SET(config.task, task_of(recipe, fields));
    const auto total = static_cast<std::int32_t>(recipe.integer("model.n_total"));
    config.experts = static_cast<std::int32_t>(recipe.integer("model.n_experts"));
    if (config.experts == 0) config.experts = expert_count(total, recipe.real("model.expert_ratio"), config.revision);
    if (config.experts >= total)
        return recipe.bad("model.n_experts",
                          fmt::format("{} experts leave no analyst among model.n_total = {}", config.experts, total));
    config.analysts = total - config.experts;
    config.expert = shape_of(recipe, "expert");
    config.analyst = shape_of(recipe, "analyst");
    config.vary_experts = recipe.boolean("model.vary_experts");
    config.vary_analysts = recipe.boolean("model.vary_analysts");
    config.expert_compression = recipe.real("model.expert_compression");
    config.collective_compression = recipe.real("model.collective_compression");
    config.code = static_cast<std::int32_t>(recipe.integer("model.code"));
    config.hidden_scale = recipe.real("model.hidden_scale");
    config.unit_dropout = static_cast<float>(recipe.real("model.member_dropout"));
    config.encoder_dropout = static_cast<float>(recipe.real("model.encoder_dropout"));
    config.head_dropout = static_cast<float>(recipe.real("model.head_dropout"));
    config.diversity_experts = recipe.boolean("model.diversity_experts");
    config.diversity_analysts = recipe.boolean("model.diversity_analysts");
    config.diversity_weight = recipe.real("model.diversity_weight");
    config.diversity_temperature = recipe.real("model.diversity_temperature");
    MILLRACE_TRY(validate(config));
    return std::unique_ptr<Model>(std::make_unique<Collective>(config));
}

}  // namespace

Family collective_family() {
    Family family{"collective", {"debug", "phase1", "debug-r2", "phase1-r2"}, collective_schema, make_collective};
    family.metrics = regression_metrics();
    family.weighs_classes = true;
    return family;
}

}  // namespace millrace::models
