#include "train/structure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/log.h"
#include "base/split.h"
#include "tape/slices.h"
#include "train/metrics_reader.h"
#include "train/recipe_keys.h"
#include "train/selection.h"

namespace millrace::train {
namespace {

/// Parameters, moments, statistics, groups and counters, into an engine of the same recipe.
void copy_member(Engine& from, Engine& to) {
    const tape::MemberSlices before(from.store()), after(to.store());
    std::vector<std::byte> slice(before.bytes());
    before.read(0, slice.data());
    after.write(0, slice.data());
}

/// The run's counters and random numbers go on where they are.
void copy_counters(Engine& from, Engine& to) { to.store().write_states(from.store().read_states()); }

}  // namespace

base::Result<StructureSettings> read_structure(const base::Recipe& recipe, const models::Family& family) {
    StructureSettings settings;
    const std::vector<std::string>& known = family.structure.operations;
    if (known.empty() || recipe.text("structure.operations").empty()) return settings;
    settings.operations = base::split(recipe.text("structure.operations"), ',');
    for (const std::string& name : settings.operations)
        if (std::ranges::find(known, name) == known.end())
            return recipe.bad("structure.operations", fmt::format("structure.operations has '{}'; one of {} would be right", name,
                                                                  fmt::join(known, ", ")));
    if (recipe.integer("members") != 1)
        return recipe.bad("structure.operations",
                          fmt::format("structure.operations needs members = 1, not {}: each member would become another model",
                                      recipe.integer("members")));
    settings.interval = static_cast<std::uint64_t>(recipe.integer("structure.interval"));
    settings.tries = static_cast<std::uint64_t>(recipe.integer("structure.tries"));
    settings.trial_steps = static_cast<std::uint64_t>(recipe.integer("structure.trial_steps"));
    settings.tolerance = recipe.real("structure.tolerance");
    return settings;
}

base::Status take_structure(base::Recipe& recipe, const base::Recipe& before) {
    MILLRACE_LET(family, models::find_family(before.text("model.name")));
    MILLRACE_LET(settings, read_structure(before, *family));
    if (settings.operations.empty()) return base::ok();
    for (const std::string& key : family->structure.keys) recipe.take(before, key);
    return base::ok();
}

base::Status StructureChanges::on_step_begin(std::uint64_t done) {
    const StructureSettings& settings = parts_.settings;
    if (settings.operations.empty() || done == 0 || done % settings.interval != 0) return base::ok();
    const std::uint64_t number = done / settings.interval;
    if (number > settings.tries) return base::ok();
    MILLRACE_TRY(parts_.loop.pause());
    const std::string& operation = settings.operations[(number - 1) % settings.operations.size()];
    Engine& engine = parts_.loop.engine();
    const models::StructureChange change =
        parts_.family.structure.propose(operation, engine.model(), engine.store(), parts_.recipe);
    const auto report = [&](std::string_view outcome, const std::string& text, double before, double after) {
        MILLRACE_LOG(info, "step {}: {} {}: {}", done, operation, outcome, text);
        if (parts_.events == nullptr) return;
        (void)parts_.events->append("structure", text,
                                    {{"step", static_cast<std::int64_t>(done)},
                                     {"operation", operation},
                                     {"outcome", std::string(outcome)},
                                     {"loss_before", before},
                                     {"loss_after", after}});
    };
    const double nothing = std::numeric_limits<double>::quiet_NaN();
    if (change.settings.empty()) {
        report("not possible", change.text, nothing, nothing);
    } else if (const auto outcome = attempt(change, done); !outcome.ok()) {
        report("failed", fmt::format("{}; {}", change.text, outcome.error().text()), nothing, nothing);
    } else {
        report(outcome->kept ? "kept" : "turned down",
               fmt::format("{}; validation loss {:.4f} before, {:.4f} after", change.text, outcome->before, outcome->after),
               outcome->before, outcome->after);
    }
    MILLRACE_TRY(parts_.loop.engine().backend().check());
    parts_.loop.resume();
    return base::ok();
}

base::Result<StructureChanges::Outcome> StructureChanges::attempt(const models::StructureChange& change, std::uint64_t done) {
    Engine& engine = parts_.loop.engine();
    MILLRACE_LET(recipe, parse_recipe(parts_.recipe.to_toml(), "the recipe of the run", {change.settings, {}}));
    Outcome outcome;
    if (parts_.settings.trial_steps == 0) {
        MILLRACE_SET(outcome.before, trial_loss(engine, done));
    } else {  // a copy: what trains is not touched
        MILLRACE_LET(copy, build(parts_.recipe, true));
        copy_member(engine, *copy);
        MILLRACE_SET(outcome.before, trial_loss(*copy, done));
    }
    MILLRACE_LET(made, build(recipe, true));
    const auto take_over = [&] {
        change.transfer(engine.store(), made->store());
        copy_counters(engine, *made);
    };
    take_over();
    MILLRACE_SET(outcome.after, trial_loss(*made, done));
    outcome.kept = std::isfinite(outcome.after) && outcome.after <= outcome.before + parts_.settings.tolerance;
    if (!outcome.kept) return outcome;
    if (parts_.settings.trial_steps > 0) take_over();
    parts_.recipe = std::move(recipe);
    (void)parts_.loop.replace_engine(std::move(made));
    return outcome;
}

base::Result<std::unique_ptr<Engine>> StructureChanges::build(const base::Recipe& recipe, bool training) {
    const Setup& now = parts_.loop.setup();
    Ranks& ranks = parts_.loop.ranks();
    // The same batches and forms: others round differently, and two engines leave less memory to choose by.
    const std::string evaluation = fmt::format("eval.batch={}", now.engine->eval_batch());
    MILLRACE_LET(alike, parse_recipe(recipe.to_toml(), "the recipe of the run", {{evaluation}, {}}));
    MILLRACE_LET(setup,
                 set_up(alike, training,
                        {parts_.adapt, now.engine->micro_batch(), parts_.stored, false, now.engine->backend().forms(), &ranks}));
    if (!(setup.data == now.data)) return base::Error{"the data changed since the run was started"};
    if (ranks.shares_rows()) MILLRACE_TRY(setup.engine->warm_up(setup.settings));
    return std::move(setup.engine);
}

base::Result<double> StructureChanges::trial_loss(Engine& engine, std::uint64_t done) {
    const auto steps_per_epoch = static_cast<std::uint64_t>(engine.epoch().count());
    for (std::uint64_t step = done; step < done + parts_.settings.trial_steps; ++step) {
        MILLRACE_TRY(engine.await_rows(step, [&]() -> base::Result<std::uint64_t> {
            engine.backend().synchronize();
            return step;
        }));
        engine.launch_step(step % steps_per_epoch);
        if (step % kStepsInFlight == 0) engine.backend().synchronize();
    }
    MILLRACE_LET(scores, engine.evaluate(data::Part::validation));
    if (scores.empty()) return base::Error{"nothing was set aside to compare structures by"};
    return token_loss(scores.front());
}

base::Result<Engine*> StructureChanges::engine_of(const io::LoadedCheckpoint& checkpoint) {
    const std::string place = (checkpoint.folder / "state.json").string();
    MILLRACE_LET(state, decode_state(checkpoint.state, place));
    MILLRACE_LET(before, parse_recipe(state.recipe, place, {}));
    base::Recipe recipe = parts_.recipe;
    MILLRACE_TRY(take_structure(recipe, before));
    if (recipe == parts_.recipe) return &parts_.loop.engine();
    MILLRACE_SET(other_, build(recipe, false));
    return other_.get();
}

}  // namespace millrace::train
