// Recipe keys, widths that follow from them, and what is refused.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "models/collective/collective.h"
#include "models/keys.h"

namespace millrace::models {
namespace {

std::int32_t floor_to_int(double value) { return static_cast<std::int32_t>(std::floor(value)); }

constexpr double kWidest = 1 << 20;

struct CollectiveChoice {
    CollectiveConfig config;
    std::int32_t total = 8, experts = 0;
    double ratio = 0.2;
};

void collective_keys(Keys& keys, CollectiveChoice& choice) {
    CollectiveConfig& c = choice.config;
    keys.add_choice("revision", c.revision, {{"r1", Revision::r1}, {"r2", Revision::r2}},
                    "r2 encodes the analysts' votes before the head");
    keys.add("n_total", choice.total, "experts and analysts together").between(2, 4096);
    keys.add("expert_ratio", choice.ratio, "share of experts and analysts that are experts").above(0).below(1);
    keys.add("n_experts", choice.experts, "number of experts; 0: by expert_ratio").between(0, 4095);
    keys.add("expert_hidden", c.expert.hidden, "widths of an expert's hidden layers").between(1, kWidest).length(2, 64);
    keys.add("expert_output", c.expert.output, "width of an expert's opinion").between(1, kWidest);
    keys.add("analyst_hidden", c.analyst.hidden, "widths of an analyst's hidden layers").between(1, kWidest).length(2, 64);
    keys.add("analyst_output", c.analyst.output, "width of an analyst's vote").between(1, kWidest);
    keys.add("vary_experts", c.vary_experts, "experts differ in shape, by number mod 4");
    keys.add("vary_analysts", c.vary_analysts, "analysts differ in shape, by number mod 4");
    keys.add("expert_compression", c.expert_compression, "width of the experts' summary over that of their opinions")
        .above(0)
        .between(0, 16);
    keys.add("collective_compression", c.collective_compression, "r2: factor on the width of the encoded votes")
        .above(0)
        .between(0, 16);
    keys.add("code", c.code, "r2: width of the encoded votes; 0: by rule").between(0, kWidest);
    keys.add("hidden_scale", c.hidden_scale, "head: hidden width over input width").above(0).between(0, 64);
    keys.add("member_dropout", c.unit_dropout, "after every hidden layer of an expert or analyst but the last")
        .at_least(0)
        .below(1);
    keys.add("encoder_dropout", c.encoder_dropout, "inside the encoders").at_least(0).below(1);
    keys.add("head_dropout", c.head_dropout, "inside the head").at_least(0).below(1);
    keys.add("diversity_experts", c.diversity_experts, "add the diversity term of the experts' opinions to the loss");
    keys.add("diversity_analysts", c.diversity_analysts, "add the diversity term of the analysts' votes to the loss");
    keys.add("diversity_weight", c.diversity_weight, "weight of each diversity term").at_least(0);
    keys.add("diversity_temperature", c.diversity_temperature, "divides the cosines of the diversity terms").above(0);
}

base::Schema collective_schema(const std::string& preset) {
    CollectiveChoice choice;
    if (preset.ends_with("-r2")) choice.config.revision = Revision::r2;
    if (preset.starts_with("phase1")) {
        choice.config.expert = {{512, 256}, 128};
        choice.config.analyst = {{256, 128}, 64};
    }
    return schema_of(collective_keys, choice);
}

base::Result<std::unique_ptr<Model>> make_collective(const base::Recipe& recipe, const data::Fields& fields) {
    CollectiveChoice choice = read_keys(collective_keys, recipe);
    CollectiveConfig& config = choice.config;
    MILLRACE_SET(config.task, task_of(recipe, fields));
    config.experts = choice.experts > 0 ? choice.experts : expert_count(choice.total, choice.ratio, config.revision);
    if (config.experts >= choice.total)
        return recipe.bad("model.n_experts",
                          fmt::format("{} experts leave no analyst among model.n_total = {}", config.experts, choice.total));
    config.analysts = choice.total - config.experts;
    MILLRACE_TRY(validate(config));
    return std::unique_ptr<Model>(std::make_unique<Collective>(config));
}

}  // namespace

UnitShape varied(const UnitShape& base, std::int32_t index) {
    UnitShape shape = base;
    switch (index % 4) {
        case 1:
            for (std::int32_t& width : shape.hidden) width = floor_to_int(width * 1.25);
            break;
        case 2: shape.hidden = {base.hidden.front(), (base.hidden.front() + base.hidden.back()) / 2, base.hidden.back()}; break;
        case 3:
            for (std::int32_t& width : shape.hidden) width = floor_to_int(width * 0.8);
            break;
        default: break;
    }
    return shape;
}

std::int32_t CollectiveConfig::summary_width() const { return floor_to_int(opinions_width() * expert_compression); }

std::int32_t CollectiveConfig::code_width() const {
    if (code > 0) return code;
    const std::int32_t rule = floor_to_int(analyst.output * (1 + std::log2(analysts)));
    return std::max(floor_to_int(std::clamp(rule, 64, 2048) * collective_compression), 2 * task.outputs);
}

std::int32_t CollectiveConfig::head_hidden() const {
    return std::max(floor_to_int(head_input() * hidden_scale), 2 * task.outputs);
}

std::int32_t encoder_hidden(std::int32_t in, std::int32_t out) {
    const std::int64_t product = std::int64_t{in} * out;
    auto root = static_cast<std::int64_t>(std::sqrt(static_cast<double>(product)));
    while (root * root > product) --root;
    while ((root + 1) * (root + 1) <= product) ++root;
    return static_cast<std::int32_t>(root);
}

std::int32_t expert_count(std::int32_t total, double ratio, Revision revision) {
    const auto rounded = static_cast<std::int32_t>(std::nearbyint(total * ratio));
    return std::min(std::max(rounded, revision == Revision::r2 ? 2 : 1), total - 1);
}

base::Status validate(const CollectiveConfig& config) {
    const Task& task = config.task;
    if (task.input.width < 1 || (!task.regression && task.outputs < 2))
        return base::Error{fmt::format("the data has {} features and {} classes; at least 1 and 2 would be right",
                                       task.input.width, task.outputs)};
    for (const auto& [role, shape, varies] : {std::tuple{"expert", &config.expert, config.vary_experts},
                                              std::tuple{"analyst", &config.analyst, config.vary_analysts}})
        for (const std::int32_t width : shape->hidden)
            if (varies && width < 2)  // it is cut by a fifth
                return base::Error{fmt::format("model.{}_hidden holds the width {}, which is too small", role, width)};
    if (config.summary_width() < 1)
        return base::Error{fmt::format("model.expert_compression is {}, which leaves no column of the {} the experts give",
                                       config.expert_compression, config.opinions_width())};
    return base::ok();
}

Family collective_family() {
    return task_family("collective", {"debug", "phase1", "debug-r2", "phase1-r2"}, collective_schema, make_collective);
}

}  // namespace millrace::models
