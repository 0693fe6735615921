#include "train/resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/log.h"
#include "io/checksum.h"
#include "models/registry.h"
#include "models/weights.h"
#include "optim/update.h"
#include "train/recipe_keys.h"
#include "train/structure.h"

namespace millrace::train {
namespace {

namespace fs = std::filesystem;
using io::Path;

base::Result<Standing> read_standing(const Path& folder) {
    MILLRACE_LET(checkpoint, io::load_checkpoint(folder));
    MILLRACE_LET(state, decode_state(checkpoint.state, (checkpoint.folder / "state.json").string()));
    return Standing{std::move(checkpoint), std::move(state)};
}

base::Result<Standing> newest_whole(const Path& checkpoints) {
    MILLRACE_LET(folders, io::checkpoint_folders(checkpoints));
    std::vector<base::Error> damages;
    for (const Path& folder : folders) {
        auto found = read_standing(folder);
        if (!found.ok()) {
            // What cannot be read now (permissions, a disk that fails, a newer format) may be healthy: going back would lose
            // steps.
            if (found.error().exit_status != base::Error().exit_status)
                return base::Error{
                    "cannot be read; resume again when that is repaired, or move it away to go on from the one before",
                    folder.string(), found.error().exit_status}
                    .because(found.error());
            damages.push_back(found.error());
            continue;
        }
        std::error_code ignored;
        for (const base::Error& damage : damages)
            MILLRACE_LOG(warn, "{}\nthis checkpoint is damaged; going on from step {} in {}", damage.text(), found->state.step,
                         folder.string());
        if (damages.empty() && !fs::exists(checkpoints / "last", ignored))
            MILLRACE_LOG(warn, "{} leads nowhere; going on from step {} in {}", (checkpoints / "last").string(),
                         found->state.step, folder.string());
        return found;
    }
    if (damages.empty()) return Standing{};
    return base::Error{"no checkpoint is whole; train anew with another --out", checkpoints.string()}.because(damages.front());
}

/// Whether the run has saved a checkpoint at any time, by its manifest or its events.
bool has_saved(const Path& run, const record::Manifest& manifest) {
    return manifest.status == record::RunStatus::kFinished || manifest.status == record::RunStatus::kInterrupted ||
           record::has_event(run, "checkpoint");
}

/// The recipe with the structure of the checkpoint.
base::Result<base::Recipe> check_same_run(const Standing& standing, const base::Recipe& recipe) {
    const RunState& state = standing.state;
    const std::string place = (standing.checkpoint->folder / "state.json").string();
    if (state.figures.model != recipe.text("model.name") || state.figures.preset != recipe.text("model.preset"))
        return base::Error{
            fmt::format("is a checkpoint of {} {}; the recipe's model.name and model.preset are {} {}", state.figures.model,
                        state.figures.preset, recipe.text("model.name"), recipe.text("model.preset")),
            place};
    MILLRACE_LET(before, parse_recipe(state.recipe, place, {}));
    base::Recipe now = recipe;
    MILLRACE_TRY(take_structure(now, before));
    MILLRACE_TRY(check_resumable(before, now));
    MILLRACE_LET(family, models::find_family(recipe.text("model.name")));
    if (family->data == data::DataKind::text && !recipe.text("data.domains").empty() &&
        before.integer("train.epochs") != recipe.integer("train.epochs"))
        return recipe.bad("train.epochs",
                          fmt::format("the run was started for {} epochs, which its domains share; resume with the same",
                                      before.integer("train.epochs")));
    if (before.integer("train.epochs") != recipe.integer("train.epochs") && recipe.text("optim.schedule") == "cosine")
        MILLRACE_LOG(warn, "train.epochs grew from {} to {}: the cosine schedule now ends later, so the learning rate jumps",
                     before.integer("train.epochs"), recipe.integer("train.epochs"));
    return now;
}

bool is_whole(const Path& best, const Path& loaded) {
    std::error_code failed;
    return fs::canonical(best, failed) == loaded || io::load_checkpoint(best, io::LoadParts::kModelOnly).ok();
}

base::Result<io::LoadedCheckpoint> load_file(const Path& file) {
    MILLRACE_LET(opened, io::open_regular(file));
    MILLRACE_LET(tensors, io::SafetensorsFile::open_in_place(std::move(opened), file));
    io::LoadedCheckpoint loaded;
    loaded.members.push_back({std::move(tensors), std::nullopt});
    loaded.folder = fs::absolute(file);
    return loaded;
}

base::Result<io::LoadedCheckpoint> load_run(const Path& run) {
    const Path checkpoints = run / "checkpoints";
    std::error_code ignored;
    if (fs::exists(checkpoints / "best", ignored)) return io::load_checkpoint(checkpoints / "best", io::LoadParts::kModelOnly);
    MILLRACE_LET(folders, io::checkpoint_folders(checkpoints));
    std::optional<base::Error> damage;
    for (const Path& folder : folders) {
        auto loaded = io::load_checkpoint(folder, io::LoadParts::kModelOnly);
        if (loaded.ok()) return loaded;
        if (!damage) damage = loaded.error();
    }
    if (damage) return *damage;
    return base::Error{"the run has saved no checkpoint to start from", run.string()};
}

base::Result<io::LoadedCheckpoint> load(const Path& from) {
    std::error_code ignored;
    if (!fs::exists(from, ignored)) return base::Error{"no such run or file to start from", from.string()};
    if (!fs::is_directory(from, ignored)) return load_file(from);
    if (fs::exists(from / "manifest.json", ignored)) return load_run(from);
    if (fs::exists(from / "state.json", ignored)) return io::load_checkpoint(from, io::LoadParts::kModelOnly);
    return base::Error{"holds no run and no checkpoint; --init takes a run, a checkpoint or a safetensors file", from.string()};
}

}  // namespace

base::Result<Standing> stand_of(const Path& run, const base::Recipe& recipe) {
    MILLRACE_LET(manifest, record::read_manifest(run));
    const Path checkpoints = run / "checkpoints";
    MILLRACE_LET(standing, newest_whole(checkpoints));
    if (!standing.checkpoint) {
        if (has_saved(run, manifest))
            return base::Error{
                "holds no checkpoint any more, though the run saved some; put the folder back, or train anew with "
                "another --out",
                checkpoints.string()};
        MILLRACE_LOG(info, "{} ended before its first checkpoint: training begins anew", run.string());
        return standing;
    }
    MILLRACE_SET(standing.recipe, check_same_run(standing, recipe));
    if (standing.state.best.any && !is_whole(checkpoints / "best", standing.checkpoint->folder)) {
        MILLRACE_LOG(warn, "{} is missing or damaged: the best weights are chosen anew", (checkpoints / "best").string());
        standing.state.best = {};
    }
    return standing;
}

base::Status restore(Engine& engine, const RunSettings& settings, const RunState& state, const io::LoadedCheckpoint& checkpoint) {
    const EpochSteps& epoch = engine.epoch();
    const auto steps = static_cast<std::uint64_t>(epoch.count());
    const auto refuse = [&](const char* what) {
        return base::Error{fmt::format("{} does not fit this recipe and data set; the checkpoint is of another run", what),
                           checkpoint.folder / "state.json"};
    };
    if (state.steps_per_epoch != steps) return refuse("steps_per_epoch");
    if (static_cast<int>(state.members.size()) != engine.members()) return refuse("the number of members");
    if (!state.domains.empty() && state.domains.front().losses.front().size() != settings.domains.size())
        return refuse("the number of domains");
    for (const ops::MemberState& member : state.members)
        if (member.step != state.step || member.epoch != state.step / steps ||
            member.position != state.step % steps * static_cast<std::uint64_t>(epoch.step.total()))
            return refuse("the position of a member");
    MILLRACE_TRY(models::load_weights(engine.store(), checkpoint, true, engine.attachments()));
    std::vector<ops::MemberState> members = state.members;
    apply_settings(settings, members);
    optim::set_loss_scale(engine.store().options().precision, members,
                          state.figures.precision == tape::name_of(tape::Precision::f16));
    engine.store().write_states(members);
    return write_groups(engine.store(), state);
}

base::Status cut_metrics(record::MetricsWriter& metrics, std::uint64_t offset) {
    base::Status cut = metrics.truncate_to(offset);
    if (cut.ok() || cut.error().exit_status != base::Error().exit_status) return cut;
    MILLRACE_LOG(warn, "{}\nrows were lost; training goes on without them", cut.error().text());
    return base::ok();
}

base::Result<InitialWeights> load_initial_weights(const Path& from) {
    auto loaded = load(from);
    if (!loaded.ok())
        return base::Error{"cannot start from these weights", from.string(), loaded.error().exit_status}.because(loaded.error());
    io::Checksum64 sum;
    for (const io::LoadedMember& member : loaded->members) MILLRACE_TRY(member.model.add_to(sum));
    const record::WeightsOrigin origin{fs::absolute(loaded->folder).string(), fmt::format("{:016x}", sum.value())};
    return InitialWeights{std::move(loaded).value(), origin};
}

base::Result<InitialWeights> reload_initial_weights(const record::WeightsOrigin& origin) {
    MILLRACE_LET(found, load_initial_weights(origin.path));
    if (found.origin.checksum != origin.checksum)
        return base::Error{
            "holds other weights than those that the run started from; put them back or train anew with another --out",
            origin.path};
    return found;
}

}  // namespace millrace::train
