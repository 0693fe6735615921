#include "train/lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/processors.h"
#include "models/registry.h"
#include "optim/update.h"
#include "tape/captures.h"
#include "tape/initial.h"
#include "train/lanes_impl.h"
#include "train/recipe_keys.h"

namespace millrace::train {
namespace {

constexpr int kMostLanes = 1024;

/// In front of a slice: this, the recipe's text, then the member's bytes.
struct SliceHeader {
    char magic[8] = {'M', 'R', 'L', 'A', 'N', 'E', '0', '1'};
    std::uint64_t precision = 0, recipe_bytes = 0, member_bytes = 0;
};

}  // namespace

Lanes::Lanes() = default;
Lanes::Lanes(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Lanes::~Lanes() = default;

std::vector<std::string> Lanes::fusible_keys(const base::Recipe& recipe) { return train::fusible_keys(recipe); }
std::string Lanes::structure(const base::Recipe& recipe) { return structural_part(recipe).to_toml(); }

base::Result<std::unique_ptr<Lanes>> Lanes::create(const base::Recipe& recipe, int lanes, const Adapter& adapt) {
    if (lanes < 1 || lanes > kMostLanes)
        return base::Error{fmt::format("{} lanes; from 1 to {} would be right", lanes, kMostLanes)};
    MILLRACE_TRY(check_trial(recipe));
    MILLRACE_LET(several, with_members(recipe, lanes));
    // As one batch: a trial alone is not split either where it fits, and other micro-batches round differently.
    MILLRACE_LET(
        setup, set_up(several, true, {.adapt = adapt, .micro_batch = static_cast<std::int32_t>(recipe.integer("train.batch"))}));
    if (setup.engine->source().loader_counts(0))
        return base::Error{
            fmt::format("the data is {}, but lanes stand at different epochs and need all of it; fewer lanes or "
                        "smaller data would be right",
                        setup.loading)};
    auto impl = std::make_unique<Impl>(std::move(setup), structural_part(recipe));
    for (int lane = 0; lane < lanes; ++lane) impl->set_trainable(lane, false);
    return std::unique_ptr<Lanes>(new Lanes(std::move(impl)));
}

base::Status Lanes::Impl::check_lane(int lane, bool filled) const {
    if (lane < 0 || lane >= static_cast<int>(table.size()))
        return base::Error{fmt::format("there is no lane {} among {}", lane, table.size())};
    const Lane& of = table[static_cast<std::size_t>(lane)];
    if (filled && !of.recipe) return base::Error{fmt::format("lane {} carries no trial", lane)};
    if (filled && of.partial)
        return base::Error{fmt::format("lane {} stopped within an epoch; fill or restore it to go on", lane)};
    return base::ok();
}

/// Trials are drawn side by side: numbers take a core some ten milliseconds for each, and a search begins with hundreds.
base::Status Lanes::Impl::settle() {
    const auto cores = static_cast<std::size_t>(base::usable_processors());
    while (!fresh.empty()) {
        const std::size_t count = std::min(fresh.size(), cores);
        while (drawn.size() < count) MILLRACE_SET(drawn.emplace_back(), setup.engine->backend().allocate_shared(slices.bytes()));
        const auto draw = [&](std::size_t i) {
            slices.draw(*fresh[i].declared, fresh[i].state, drawn[i]->data(), static_cast<unsigned>(cores / count));
        };
        {
            std::vector<std::jthread> helpers;
            for (std::size_t i = 1; i < count; ++i) helpers.emplace_back(draw, i);
            draw(0);
        }
        for (std::size_t i = 0; i < count; ++i) slices.write(fresh[i].lane, drawn[i]->data());
        fresh.erase(fresh.begin(), fresh.begin() + static_cast<std::ptrdiff_t>(count));
    }
    // Later trials come one by one, and on a GPU this is pinned memory.
    if (drawn.size() > 1) drawn.resize(1);
    return setup.engine->backend().check();
}

base::Status Lanes::Impl::settle(int lane) {
    MILLRACE_TRY(check_lane(lane, true));
    return settle();
}

base::Result<Lanes::Impl::Trial> Lanes::Impl::trial_of(const base::Recipe& recipe) const {
    if (const auto differences = structure.differences(structural_part(recipe)); !differences.empty()) {
        const base::RecipeDifference& first = differences.front();
        const std::string what = fmt::format(
            "the lanes were built for {} = {}, not {}; a recipe of that structure, or lanes of its own, would be right",
            first.name, first.left, first.right);
        return recipe.has(first.name) ? recipe.bad(first.name, what) : base::Error{what};
    }
    MILLRACE_TRY(check_trial(recipe));
    Trial trial;
    MILLRACE_SET(trial.settings, read_settings(recipe, static_cast<std::int32_t>(setup.data.train)));
    MILLRACE_LET(model, models::make(recipe, setup.engine->source().fields()));
    tape::StoreOptions options = store().options();
    options.members = 1;
    trial.declared = std::make_unique<tape::Store>(setup.engine->backend(), options);
    MILLRACE_TRY(model->declare(*trial.declared));
    MILLRACE_ASSERT(trial.declared->parameters().size() == store().parameters().size(), "equal structures declare alike");
    return trial;
}

std::vector<Lanes::Impl::Setting> Lanes::Impl::settings_of(const tape::Store& declared) {
    std::vector<Setting> settings;
    for (std::size_t i = 0; i < declared.parameters().size(); ++i) {
        const tape::Parameter& p = declared.parameters()[i];
        if (declared.groups()[static_cast<std::size_t>(p.group_ids.front())].name != tape::kSettings) continue;
        settings.push_back({static_cast<tape::ParameterId>(i), {}});
        for (int matrix = 0; matrix < p.matrices; ++matrix)
            settings.back().matrices.push_back(tape::draw_matrix(p, matrix, 0, 0));
    }
    return settings;
}

void Lanes::Impl::write_settings(int lane, const std::vector<Setting>& now, const std::vector<Setting>& before) const {
    for (std::size_t i = 0; i < now.size(); ++i) {
        if (now[i] == before[i]) continue;  // what training put there stays
        for (std::size_t matrix = 0; matrix < now[i].matrices.size(); ++matrix)
            store().write_parameter(now[i].id, static_cast<int>(matrix), lane, now[i].matrices[matrix]);
    }
}

void Lanes::Impl::set_trainable(int lane, bool trainable) const {
    std::vector<ops::GroupState> groups = slices.read_groups(lane);
    for (std::size_t i = 0; i < groups.size(); ++i) groups[i].trainable = trainable && !store().groups()[i].fixed ? 1 : 0;
    slices.write_groups(lane, groups);
}

bool Lanes::Impl::any_filled() const {
    return std::ranges::any_of(table, [](const Lane& lane) { return lane.recipe.has_value(); });
}

base::Status Lanes::fill(int lane, const base::Recipe& recipe) {
    MILLRACE_TRY(impl_->check_lane(lane, false));
    MILLRACE_LET(trial, impl_->trial_of(recipe));
    std::vector<ops::MemberState> state(1);
    state.front().seed = trial.settings.seeds.front();
    apply_settings(trial.settings, state);
    optim::set_loss_scale(impl_->store().options().precision, state);
    impl_->at(lane) = {recipe, Impl::settings_of(*trial.declared), false};
    impl_->forget(lane);
    impl_->fresh.push_back({lane, std::move(trial.declared), state.front()});
    return base::ok();
}

base::Result<LaneSlice> Lanes::save(int lane) {
    MILLRACE_TRY(impl_->settle(lane));
    const std::string recipe = impl_->at(lane).recipe->to_toml();
    SliceHeader header;
    header.precision = static_cast<std::uint64_t>(impl_->store().options().precision);
    header.recipe_bytes = recipe.size();
    header.member_bytes = impl_->slices.bytes();
    LaneSlice slice;
    slice.bytes.resize(sizeof header + recipe.size() + impl_->slices.bytes());
    std::memcpy(slice.bytes.data(), &header, sizeof header);
    std::memcpy(slice.bytes.data() + sizeof header, recipe.data(), recipe.size());
    impl_->slices.read(lane, slice.bytes.data() + sizeof header + recipe.size());
    MILLRACE_TRY(impl_->setup.engine->backend().check());
    return slice;
}

base::Status Lanes::restore(int lane, const LaneSlice& slice) {
    MILLRACE_TRY(impl_->check_lane(lane, false));
    SliceHeader header;
    if (slice.bytes.size() >= sizeof header) std::memcpy(&header, slice.bytes.data(), sizeof header);
    const std::size_t left = slice.bytes.size() - std::min(slice.bytes.size(), sizeof header);
    if (left == 0 || std::memcmp(header.magic, SliceHeader{}.magic, sizeof header.magic) != 0 || header.recipe_bytes > left ||
        header.member_bytes != left - header.recipe_bytes)
        return base::Error{fmt::format("{} bytes are no slice of a lane, or not all of one", slice.bytes.size())};
    const auto* text = reinterpret_cast<const char*>(slice.bytes.data() + sizeof header);
    MILLRACE_LET(recipe, parse_recipe({text, header.recipe_bytes}, "the recipe of the slice", {}));
    MILLRACE_LET(trial, impl_->trial_of(recipe));
    const tape::Precision precision = impl_->store().options().precision;
    if (header.precision != static_cast<std::uint64_t>(precision) || header.member_bytes != impl_->slices.bytes())
        return base::Error{fmt::format("the slice is of another precision or another model; the lanes have {} bytes in {}",
                                       impl_->slices.bytes(), tape::name_of(precision))};
    impl_->forget(lane);
    impl_->slices.write(lane, slice.bytes.data() + sizeof header + header.recipe_bytes);
    impl_->at(lane) = {std::move(recipe), Impl::settings_of(*trial.declared), false};
    return impl_->setup.engine->backend().check();
}

base::Status Lanes::copy(int from, int to) {
    for (const int lane : {from, to}) MILLRACE_TRY(impl_->settle(lane));
    const ops::MemberState source = impl_->slices.read_state(from);
    ops::MemberState state = impl_->slices.read_state(to);
    impl_->slices.copy(from, to);
    impl_->write_settings(to, impl_->at(to).settings, impl_->at(from).settings);
    state.loss_scale = source.loss_scale;
    state.good_steps = source.good_steps;
    impl_->slices.write_state(to, state);
    return impl_->setup.engine->backend().check();
}

base::Status Lanes::set(int lane, const base::Recipe& recipe) {
    MILLRACE_TRY(impl_->settle(lane));
    MILLRACE_LET(trial, impl_->trial_of(recipe));
    std::vector<ops::MemberState> state{impl_->slices.read_state(lane)};
    state.front().seed = trial.settings.seeds.front();
    apply_settings(trial.settings, state);
    impl_->slices.write_state(lane, state.front());
    std::vector<Impl::Setting> settings = Impl::settings_of(*trial.declared);
    impl_->write_settings(lane, settings, impl_->at(lane).settings);
    impl_->at(lane) = {recipe, std::move(settings), false};
    return impl_->setup.engine->backend().check();
}

void Lanes::clear(int lane) {
    MILLRACE_ASSERT(impl_->check_lane(lane, false).ok(), "no such lane");
    impl_->forget(lane);
    impl_->set_trainable(lane, false);
    impl_->at(lane) = {};
}

int Lanes::lanes() const { return static_cast<int>(impl_->table.size()); }
std::uint64_t Lanes::captures() const { return tape::captures_so_far(); }
double Lanes::step_ms() const { return impl_->step_ms; }
std::int64_t Lanes::memory_used() const { return impl_->setup.engine->memory_used(); }

}  // namespace millrace::train
