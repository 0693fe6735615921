#include "sweep/study_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/recipe_toml.h"
#include "base/recipe_value.h"
#include "base/units.h"
#include "io/recipe_file.h"
#include "train/recipe_keys.h"

namespace millrace::sweep {
namespace {

using base::KeyKind;
using base::RawEntry;
using search::Parameter;
using search::ParameterKind;
using Entries = std::vector<RawEntry>;

/// The keys of the file outside of [set] and [space].
base::Schema file_schema() {
    base::Schema schema;
    schema.text("recipe", "", "the recipe that all trials share, relative to this file");
    schema.text("study.name", "", "name of the study in its database");
    schema.choice("study.sampler", "tpe", {"random", "sobol", "grid", "tpe", "cmaes"}, "chooses configurations");
    schema.choice("study.scheduler", "none", {"none", "asha", "hyperband", "median", "pbt"}, "decides how long trials run");
    schema.integer("study.trials", 100, "configurations to try").between(1, 1000000);
    schema.integer("study.replicates", 3, "seeds that a finalist is trained with").between(0, 1000);
    schema.integer("study.finalists", 5, "configurations that are trained again").between(0, 1000);
    schema.integer("study.seed", 0, "of the search; that of the trials is the recipe's").at_least(0);
    schema.text("study.prune_by", "", "the objective by which the scheduler compares; empty: all of them");
    schema.integer("study.interval", 1, "median, pbt: epochs between decisions").between(1, 1000000);
    schema.integer("study.warmup", 1, "median: epochs before the first decision").between(0, 1000000);
    schema.integer("study.population", 16, "pbt: trials side by side").between(4, 1024);
    schema.integer("study.grid_points", 5, "grid: points of each continuous range").between(2, 1000000);
    schema.integer("study.startup", 10, "tpe: trials drawn at random first").between(1, 1000000);
    schema.integer("study.rungs.first", 1, "epochs before trials are first compared").between(1, 1000000);
    schema.integer("study.rungs.factor", 3, "of a rung to the next").between(2, 1000000);
    schema.integer("study.rungs.last", 1, "epochs of a full trial; train.epochs of the recipe unless given").between(1, 1000000);
    schema.choice("study.rungs.unit", "epochs", {"epochs"}, "of the rungs");
    return schema;
}

/// One table of a list: [study] objectives or constraints.
struct Table {
    std::string place;
    base::Recipe values;
};

/// The tables of `list`, each with its `metric`. Other forms than a list of tables are refused; no entry at all gives none.
Result<std::vector<Table>> tables_of(const Entries& entries, const std::string& list, const base::Schema& schema,
                                     const std::string& example) {
    std::vector<Entries> keys;
    for (const RawEntry& entry : entries) {
        if (entry.name != list && !entry.name.starts_with(list + "[")) continue;
        const std::size_t end = entry.name.find("].");
        if (end == std::string::npos)
            return Error{fmt::format("{} must be a list of tables such as [{}]", list, example), entry.place};
        const auto index = static_cast<std::size_t>(std::stoul(entry.name.substr(list.size() + 1)));
        if (keys.size() <= index) keys.resize(index + 1);
        keys[index].push_back({entry.name.substr(end + 2), entry.value, entry.place, entry.line});
    }
    std::vector<Table> out;
    for (const Entries& table : keys) {
        MILLRACE_LET(values, base::Recipe::of(table, schema));
        const std::string place = table.empty() ? "" : table.front().place;
        if (!values.is_set("metric")) return Error{fmt::format("lacks \"metric\"; write for example {}", example), place};
        out.push_back({place, std::move(values)});
    }
    return out;
}

Status check_metric(const std::string& metric, const std::string& place) {
    if (!metric.empty() && !metric.starts_with("test_")) return base::ok();
    return Error{
        fmt::format("metric = \"{}\": trials are chosen by what validation says; the test part is looked at once, for the "
                    "finalists. Metrics are for example validation_accuracy, validation_loss, parameters, step_ms",
                    metric),
        place};
}

Result<std::vector<storage::Objective>> read_objectives(const Entries& entries, const std::string& path) {
    const std::string example = R"({ metric = "validation_accuracy", direction = "maximize" })";
    base::Schema schema;
    schema.text("metric", "", "what is measured");
    schema.choice("direction", "minimize", {"minimize", "maximize"}, "which values are better");
    MILLRACE_LET(tables, tables_of(entries, "study.objectives", schema, example));
    std::vector<storage::Objective> out;
    for (const auto& [place, values] : tables) {
        if (!values.is_set("direction")) return Error{"lacks \"direction\"; write minimize or maximize", place};
        const std::string& metric = values.text("metric");
        MILLRACE_TRY(check_metric(metric, place));
        for (const storage::Objective& other : out)
            if (other.metric == metric) return Error{fmt::format("objective {} is given twice", metric), place};
        out.push_back({metric, values.text("direction") == "maximize"});
    }
    if (out.empty()) return Error{fmt::format("[study] has no objectives; write for example objectives = [{}]", example), path};
    return out;
}

Result<std::vector<Constraint>> read_constraints(const Entries& entries) {
    const std::string example = R"({ metric = "parameters", at_most = 600000 })";
    base::Schema schema;
    schema.text("metric", "", "what is measured");
    schema.real("at_most", 0, "upper bound");
    schema.real("at_least", 0, "lower bound");
    MILLRACE_LET(tables, tables_of(entries, "study.constraints", schema, example));
    std::vector<Constraint> out;
    for (const auto& [place, values] : tables) {
        const bool is_upper = values.is_set("at_most");
        if (is_upper == values.is_set("at_least"))
            return Error{fmt::format("needs either at_most or at_least, as in {}", example), place};
        MILLRACE_TRY(check_metric(values.text("metric"), place));
        out.push_back({values.text("metric"), is_upper, values.real(is_upper ? "at_most" : "at_least")});
    }
    return out;
}

/// The keys of file_schema().
Result<base::Recipe> read_values(Entries entries) {
    std::erase_if(entries, [](const RawEntry& entry) {
        return entry.name.starts_with("set.") || entry.name.starts_with("space.") || entry.name == "set" ||
               entry.name == "space" || entry.name.starts_with("study.objectives") || entry.name.starts_with("study.constraints");
    });
    return base::Recipe::of(entries, file_schema());
}

/// [set] as arguments of --set, each checked at its own line.
Result<std::vector<std::string>> read_fixed(const Entries& entries, const base::Schema& schema) {
    std::vector<std::string> out;
    for (const RawEntry& entry : entries) {
        if (!entry.name.starts_with("set.")) continue;
        std::string name = entry.name.substr(4);
        std::erase(name, '"');
        const base::RecipeKey* key = schema.find(name);
        if (key == nullptr) return base::unknown_key(name, entry.place, schema);
        const auto value = base::checked_value(*key, entry.value);
        if (!value.ok()) return Error{value.error().message, entry.place};
        out.push_back(fmt::format("{}={}", name, base::value_literal(*key, *value)));
    }
    return out;
}

/// Texts of [set] that the schema depends on: the model and its preset.
std::vector<std::string> model_flags(const Entries& entries) {
    std::vector<std::string> out;
    for (const RawEntry& entry : entries) {
        std::string name = entry.name;
        std::erase(name, '"');
        if (name != "set.model.name" && name != "set.model.preset") continue;
        if (const auto* text = std::get_if<std::string>(&entry.value.items.front())) out.push_back(name.substr(4) + "=" + *text);
    }
    return out;
}

std::string key_of(const std::string& flag) { return std::string(base::trimmed(flag.substr(0, flag.find('=')))); }

/// `flags` beat `fixed`.
std::vector<std::string> layered(std::vector<std::string> fixed, const std::vector<std::string>& flags) {
    std::erase_if(fixed, [&](const std::string& weak) {
        return std::ranges::any_of(flags, [&](const std::string& strong) { return key_of(weak) == key_of(strong); });
    });
    fixed.insert(fixed.end(), flags.begin(), flags.end());
    return fixed;
}

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

/// Refuses, at the parameter's line: keys that the recipe does not know, keys that are not a trial's to choose (files, devices,
/// how long and where it runs), lists, and ranges or choices with a value that the key does not allow.
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

/// Fills `searched` and makes the recipe that of one trial: one member, train.epochs the last rung, whole epochs.
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

Status read_search(const base::Recipe& values, StudyFile& out) {
    out.name = values.text("study.name").empty() ? std::filesystem::path(out.path).stem().string() : values.text("study.name");
    out.trials = values.integer("study.trials");
    out.replicates = values.integer("study.replicates");
    out.finalists = values.integer("study.finalists");
    const auto seed = static_cast<std::uint64_t>(values.integer("study.seed"));
    out.sampler.name = values.text("study.sampler");
    out.sampler.seed = seed;
    out.sampler.grid_points = values.integer("study.grid_points");
    out.sampler.startup = values.integer("study.startup");
    out.scheduler.name = values.text("study.scheduler");
    out.scheduler.seed = seed;
    out.scheduler.interval = values.integer("study.interval");
    out.scheduler.warmup = values.integer("study.warmup");
    out.scheduler.population = values.integer("study.population");
    out.scheduler.rungs = {values.integer("study.rungs.first"), values.integer("study.rungs.factor"),
                           values.integer("study.rungs.last")};
    if (!values.is_set("study.rungs.last")) out.scheduler.rungs.last = out.recipe.integer("train.epochs");
    if (const std::string& metric = values.text("study.prune_by"); !metric.empty()) {
        const auto found = std::ranges::find(out.objectives, metric, &storage::Objective::metric);
        if (found == out.objectives.end())
            return Error{fmt::format("prune_by = \"{}\" is no metric of [study] objectives", metric),
                         values.place("study.prune_by")};
        out.scheduler.objective = static_cast<std::size_t>(found - out.objectives.begin());
    }
    const auto place_of = [&](const char* key) { return values.is_set(key) ? values.place(key) : out.path; };
    if (const auto made = search::make_scheduler(out.space, out.scheduler); !made.ok())
        return Error{made.error().message, place_of("study.rungs.last")};
    if (const auto made = search::make_sampler(out.space, out.sampler); !made.ok())
        return Error{made.error().message, made.error().place.empty() ? place_of("study.sampler") : made.error().place};
    return base::ok();
}

}  // namespace

std::string Constraint::text() const { return fmt::format("{} {} {}", metric, is_upper ? "at most" : "at least", bound); }

Result<StudyFile> load_study(const std::string& path, const std::vector<std::string>& flags) {
    MILLRACE_LET(text, io::read_recipe_file(path));
    MILLRACE_LET(entries, base::read_toml(text, path, base::ListsOfTables::opened));
    MILLRACE_LET(values, read_values(entries));
    StudyFile out;
    out.path = path;
    if (values.text("recipe").empty())
        return Error{"names no recipe; the first line may be recipe = \"recipes/NAME.toml\"", path};
    const std::string recipe_path = (std::filesystem::path(path).parent_path() / values.text("recipe")).string();
    base::RecipeOverrides overrides{layered(model_flags(entries), flags), base::recipe_environment()};
    auto schema = train::schema_of_recipe(recipe_path, {layered(model_flags(entries), {}), overrides.environment});
    if (!schema.ok())
        return Error{fmt::format("cannot read the recipe {}", recipe_path), values.place("recipe")}.because(schema.error());
    MILLRACE_LET(fixed, read_fixed(entries, *schema));
    MILLRACE_SET(out.space, search::parse_space(entries));
    for (const Parameter& parameter : out.space.parameters) MILLRACE_TRY(check_searchable(parameter, *schema));
    for (const std::vector<std::string>* layer : std::initializer_list<const std::vector<std::string>*>{&fixed, &flags})
        for (const std::string& flag : *layer)
            for (const Parameter& parameter : out.space.parameters)
                if (parameter.name == key_of(flag))
                    return Error{fmt::format("{} is searched and cannot be fixed by {} as well", parameter.name,
                                             layer == &fixed ? "[set]" : "--set"),
                                 parameter.place};
    overrides.flags = layered(fixed, flags);
    MILLRACE_SET(out.recipe, train::load_recipe(recipe_path, overrides));
    MILLRACE_SET(out.objectives, read_objectives(entries, path));
    MILLRACE_SET(out.constraints, read_constraints(entries));
    MILLRACE_TRY(read_search(values, out));
    MILLRACE_TRY(fit_to_trials(out));
    return out;
}

base::Recipe recipe_of(const StudyFile& study, const search::Configuration& configuration, std::uint64_t seed) {
    std::vector<std::string> settings = study.space.settings(configuration);
    settings.push_back(fmt::format("seed={}", seed));
    const auto chosen = base::Recipe::parse("", study.path, study.searched, {settings, {}});
    MILLRACE_ASSERT(chosen.ok(), chosen.ok() ? "" : chosen.error().text());
    base::Recipe recipe = study.recipe;
    for (const Parameter& parameter : study.space.parameters) recipe.take(*chosen, parameter.name);
    recipe.take(*chosen, "seed");
    return recipe;
}

std::vector<std::size_t> structural_parameters(const search::Space& space, const std::vector<std::string>& fusible) {
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < space.size(); ++i)
        if (std::ranges::find(fusible, space.parameters[i].name) == fusible.end()) out.push_back(i);
    return out;
}

}  // namespace millrace::sweep
