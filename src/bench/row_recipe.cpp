#include "bench/row_recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>

#include "base/split.h"
#include "base/units.h"
#include "models/registry.h"
#include "train/recipe_keys.h"

namespace millrace::bench {
namespace {

/// Keys beside those of the model and of the optimizer that change what a step does or how it runs.
constexpr std::array<std::string_view, 15> kStepKeys{
    "data.colour",   "data.length", "data.size",    "data.vocabulary",   "deterministic",
    "members",       "precision",   "seed",         "train.accumulate",  "train.batch",
    "train.capture", "train.f32",   "train.memory", "train.micro_batch", "train.dropout_scale"};

std::string key_of(std::string_view setting) { return std::string(base::trimmed(setting.substr(0, setting.find('=')))); }

std::vector<std::string> own_settings(const Workload& workload, const Options& options) {
    std::vector<std::string> settings{"model.name=" + workload.model, "model.preset=" + workload.preset,
                                      fmt::format("members={}", workload.members),
                                      "precision=" + (workload.f32 ? "f32" : options.precision)};
    if (workload.batch > 0) settings.push_back(fmt::format("train.batch={}", workload.batch));
    settings.insert(settings.end(), workload.settings.begin(), workload.settings.end());
    return settings;
}

/// Why no benchmark follows a key; empty when they do.
std::string refusal_of(std::string_view key, const models::Family& family) {
    if (key == "model.name" || key == "model.preset") return "a workload has its model; name another of millrace bench --list";
    if (key == "device" || key == "threads") return fmt::format("--{} chooses it", key);
    if (!family.token_keys.empty() && key.starts_with(family.token_keys + "."))
        return "a benchmark's random data has no sentences";
    if (key.starts_with("model.") || key.starts_with("optim.")) return {};
    if (std::find(kStepKeys.begin(), kStepKeys.end(), key) != kStepKeys.end()) return {};
    if (key.starts_with("data.")) {
        const std::string shaped = family.data == data::DataKind::text      ? ", which data.length and data.vocabulary shape"
                                   : family.data == data::DataKind::samples ? ", which data.size and data.colour shape"
                                                                            : "";
        return "a benchmark makes random data of its own" + shaped;
    }
    return "a benchmark repeats one training step, which this key does not change";
}

}  // namespace

base::Result<base::Recipe> row_recipe(const Workload& workload, const Options& options) {
    std::vector<std::string> settings = own_settings(workload, options);
    std::erase_if(settings, [&](const std::string& setting) {
        return std::any_of(options.settings.begin(), options.settings.end(),
                           [&](const std::string& given) { return key_of(given) == key_of(setting); });
    });
    settings.insert(settings.end(), options.settings.begin(), options.settings.end());
    MILLRACE_LET(recipe, train::parse_recipe("", "bench", {settings, {}}));
    MILLRACE_LET(family, models::find_family(workload.model));
    const bool said = !workload.f32 && options.precision != "auto";
    for (const std::string& setting : options.settings) {
        if (said && key_of(setting) == "precision")
            return recipe.bad("precision", fmt::format("--precision {} is given, too; give one of the two", options.precision));
        if (const std::string key = key_of(setting), why = refusal_of(key, *family); !why.empty())
            return recipe.bad(key, fmt::format("{} cannot follow {}: {}", workload.name, key, why));
    }
    return recipe;
}

base::Result<std::vector<std::string>> changed_keys(const Workload& workload, const Options& options) {
    Options without = options;
    without.settings.clear();
    MILLRACE_LET(own, row_recipe(workload, without));
    MILLRACE_LET(given, row_recipe(workload, options));
    std::vector<std::string> names;
    for (base::RecipeDifference& difference : own.differences(given)) names.push_back(std::move(difference.name));
    return names;
}

base::Result<std::vector<Point>> read_points(std::string_view text, const std::string& place, const std::vector<Workload>& all) {
    std::vector<Point> points;
    std::size_t number = 0;
    for (const std::string& line : base::split(text, '\n')) {
        ++number;
        std::istringstream words(line);
        std::string name;
        if (!(words >> name) || name.front() == '#') continue;
        auto chosen = select_workloads(all, {name});
        if (!chosen.ok()) return base::Error{chosen.error().message, fmt::format("{}:{}", place, number)};
        Point& point = points.emplace_back(Point{std::move(chosen->front()), {}});
        for (std::string setting; words >> setting;) point.settings.push_back(setting);
    }
    if (points.empty()) return base::Error{"it names no row; write a line such as: transformer-base model.width=256", place};
    return points;
}

}  // namespace millrace::bench
