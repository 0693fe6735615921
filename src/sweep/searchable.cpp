#include "sweep/searchable.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/recipe_value.h"
#include "train/recipe_keys.h"

namespace millrace::sweep {
namespace {

using base::KeyKind;
using search::Parameter;
using search::ParameterKind;

/// Why a key is not a trial's to choose; empty: it is.
std::string reason_against(const base::RecipeKey& key) {
    static constexpr std::array<std::string_view, 3> kModel{"model.name", "model.preset", "data.split_seed"};
    const std::string_view name = key.name;
    if (name == "seed") return "the driver gives each trial its seed; replicates = N trains finalists with N seeds";
    if (name == "members") return "a trial is one member; --lanes says how many run side by side";
    if (name == "train.epochs") return "rungs = { last = N } says how long a trial is";
    if (std::ranges::find(kModel, name) != kModel.end()) return "all trials must be of one model and be scored on the same data";
    if (key.form == base::KeyForm::list) return "it is a list";
    const bool is_data_text = name.starts_with("data.") && key.kind == KeyKind::text;
    const bool is_about_the_run = train::may_change_on_resume(name) || name.starts_with("checkpoint.") ||
                                  name.starts_with("telemetry.") || name.starts_with("structure.");
    if (is_data_text || is_about_the_run) return "it says where or how a run goes, not what is learned";
    return {};
}

/// The values that stand for all of a parameter's: the ends of a range, every choice.
std::vector<double> tried_values(const Parameter& parameter) {
    std::vector<double> out;
    if (parameter.kind == ParameterKind::choice)
        for (std::size_t i = 0; i < parameter.choices.size(); ++i) out.push_back(static_cast<double>(i));
    else
        out = {parameter.low, parameter.high};
    if (parameter.alternative) out.push_back(*parameter.alternative);
    return out;
}

}  // namespace

Status check_searchable(const Parameter& parameter, const base::Schema& schema) {
    const base::RecipeKey* key = schema.find(parameter.name);
    if (key == nullptr) return base::unknown_key(parameter.name, parameter.place, schema);
    if (const std::string reason = reason_against(*key); !reason.empty())
        return Error{fmt::format("{} cannot be searched: {}", parameter.name, reason), parameter.place};
    const bool is_continuous = parameter.kind == ParameterKind::uniform || parameter.kind == ParameterKind::log;
    if (is_continuous && key->kind == KeyKind::integer)
        return Error{fmt::format("{} is a whole number; write {{ int = [{}, {}] }} or a choice", parameter.name, parameter.low,
                                 parameter.high),
                     parameter.place};
    const bool is_number = key->kind == KeyKind::integer || key->kind == KeyKind::real;
    if (parameter.kind != ParameterKind::choice && !is_number)
        return Error{fmt::format("{} is no number ({}); write {{ choice = [...] }}", parameter.name, key->type_text()),
                     parameter.place};
    for (const double value : tried_values(parameter)) {
        base::RawValue raw;
        if (parameter.kind == ParameterKind::choice)
            raw.items = {parameter.choices[static_cast<std::size_t>(value)]};
        else if (parameter.kind == ParameterKind::integer)
            raw.items = {static_cast<std::int64_t>(value)};
        else
            raw.items = {value};
        if (const auto checked = base::checked_value(*key, raw); !checked.ok())
            return Error{checked.error().message, parameter.place};
    }
    return base::ok();
}

Status fit_to_trials(StudyFile& study) {
    base::Recipe& recipe = study.recipe;
    if (recipe.integer("train.steps") != 0)
        return recipe.bad("train.steps", "a search runs whole epochs; leave train.steps out and give rungs = { last = N }");
    MILLRACE_LET(schema, train::schema_for(recipe.text("model.name"), recipe.text("model.preset")));
    const auto part_of_schema = [&](const std::vector<std::string>& names) {
        base::Schema part;
        for (const std::string& name : names) part.text(name, "", "") = *schema.find(name);
        return part;
    };
    std::vector<std::string> names = {"seed"};
    for (const Parameter& parameter : study.space.parameters) names.push_back(parameter.name);
    study.searched = part_of_schema(names);

    const std::vector<std::string> common = {"members", "train.epochs", "train.patience"};
    MILLRACE_LET(
        fitted,
        base::Recipe::parse("", study.path, part_of_schema(common),
                            {{"members=1", fmt::format("train.epochs={}", study.scheduler.rungs.last), "train.patience=0"}, {}}));
    for (const std::string& name : common) recipe.take(fitted, name);
    return recipe.check_members(1);
}

}  // namespace millrace::sweep
