#include "train/lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "base/processors.h"
#include "models/registry.h"
#include "optim/update.h"
#include "tape/initial.h"
#include "tape/slices.h"
#include "train/metrics_reader.h"
#include "train/recipe_keys.h"

namespace millrace::train {
namespace {

constexpr int kMostLanes = 1024;

/// In front of a slice: this, the recipe's text, then the member's bytes.
struct SliceHeader {
    char magic[8] = {'M', 'R', 'L', 'A', 'N', 'E', '0', '1'};
    std::uint64_t precision = 0, recipe_bytes = 0, member_bytes = 0;
};

/// Of one engine.
class EngineLanes final : public Lanes {
public:
    EngineLanes(Setup setup, base::Recipe structure)
        : setup_(std::move(setup)),
          structure_(std::move(structure)),
          slices_(store()),
          reader_(store().ring_rows(), store().options().ring_capacity, store().members()),
          table_(static_cast<std::size_t>(store().members())) {
        for (int lane = 0; lane < lanes(); ++lane) set_trainable(lane, false);
    }

    base::Status fill(int lane, const base::Recipe& recipe) override;
    base::Result<LaneSlice> save(int lane) override;
    base::Status restore(int lane, const LaneSlice& slice) override;
    base::Status copy(int from, int to) override;
    base::Status set(int lane, const base::Recipe& recipe) override;
    void clear(int lane) override {
        MILLRACE_ASSERT(check_lane(lane, false).ok(), "no such lane");
        forget(lane);
        set_trainable(lane, false);
        at(lane) = {};
    }
    base::Result<Scores> run_epoch(const std::atomic<int>* stop) override;
    base::Result<std::vector<std::string>> metrics() override;
    base::Result<Scores> test() override;
    [[nodiscard]] int lanes() const override { return static_cast<int>(table_.size()); }
    [[nodiscard]] double step_ms() const override { return step_ms_; }
    [[nodiscard]] std::int64_t memory_used() const override { return engine().memory_used(); }

private:
    /// Values that a recipe sets in a parameter of the group kSettings.
    struct Setting {
        tape::ParameterId id = tape::kNoParameter;
        std::vector<std::vector<float>> matrices;
        friend bool operator==(const Setting&, const Setting&) = default;
    };
    struct Lane {
        std::optional<base::Recipe> recipe;  ///< absent: empty
        std::vector<Setting> settings;
        bool partial = false;  ///< an epoch was stopped
    };
    /// A recipe that was checked against the program, and what follows from it.
    struct Trial {
        RunSettings settings;
        std::unique_ptr<tape::Store> declared;  ///< one member, never allocated
    };

    /// A fresh trial that is not on the device yet.
    struct Fresh {
        int lane = 0;
        std::unique_ptr<tape::Store> declared;
        ops::MemberState state;
    };

    [[nodiscard]] Engine& engine() const { return *setup_.engine; }
    [[nodiscard]] tape::Store& store() const { return engine().store(); }
    Lane& at(int lane) { return table_.at(static_cast<std::size_t>(lane)); }
    base::Status check_lane(int lane, bool filled) const;
    /// Puts all trials on the device.
    base::Status settle();
    /// The same; refuses an empty lane, and one that holds part of an epoch.
    base::Status settle(int lane);
    base::Status settle_filled() {
        for (int lane = 0; lane < lanes(); ++lane)
            if (at(lane).recipe) MILLRACE_TRY(settle(lane));
        return base::ok();
    }
    void forget(int lane) {
        std::erase_if(fresh_, [lane](const Fresh& trial) { return trial.lane == lane; });
    }
    base::Result<Trial> trial_of(const base::Recipe& recipe) const;
    static std::vector<Setting> settings_of(const tape::Store& declared);
    void write_settings(int lane, const std::vector<Setting>& now, const std::vector<Setting>& before) const;
    void set_trainable(int lane, bool trainable) const;
    [[nodiscard]] bool any_filled() const {
        return std::ranges::any_of(table_, [](const Lane& lane) { return lane.recipe.has_value(); });
    }
    base::Result<StepSums> train(const std::atomic<int>* stop, bool& stopped);
    base::Result<Scores> score(data::Part part, const std::atomic<int>* stop);
    [[nodiscard]] std::map<std::string, double> training_metrics(const MemberSums& sums) const;

    Setup setup_;
    const base::Recipe structure_;
    tape::MemberSlices slices_;
    std::vector<Fresh> fresh_;
    std::vector<std::unique_ptr<ops::Memory>> drawn_;  ///< slices whose moments are zero; one stays
    MetricsReader reader_;
    std::vector<Lane> table_;
    std::uint64_t launched_ = 0;  ///< steps, equal to pushes into the ring
    double step_ms_ = 0;
};

base::Status EngineLanes::check_lane(int lane, bool filled) const {
    if (lane < 0 || lane >= static_cast<int>(table_.size()))
        return base::Error{fmt::format("there is no lane {} among {}", lane, table_.size())};
    const Lane& of = table_[static_cast<std::size_t>(lane)];
    if (filled && !of.recipe) return base::Error{fmt::format("lane {} carries no trial", lane)};
    if (filled && of.partial)
        return base::Error{fmt::format("lane {} stopped within an epoch; fill or restore it to go on", lane)};
    return base::ok();
}

/// Trials are drawn side by side: numbers take a core some ten milliseconds for each, and a search begins with hundreds.
base::Status EngineLanes::settle() {
    const auto cores = static_cast<std::size_t>(base::usable_processors());
    while (!fresh_.empty()) {
        const std::size_t count = std::min(fresh_.size(), cores);
        while (drawn_.size() < count) MILLRACE_SET(drawn_.emplace_back(), engine().backend().allocate_shared(slices_.bytes()));
        const auto draw = [&](std::size_t i) {
            slices_.draw(*fresh_[i].declared, fresh_[i].state, drawn_[i]->data(), static_cast<unsigned>(cores / count));
        };
        {
            std::vector<std::jthread> helpers;
            for (std::size_t i = 1; i < count; ++i) helpers.emplace_back(draw, i);
            draw(0);
        }
        for (std::size_t i = 0; i < count; ++i) slices_.write(fresh_[i].lane, drawn_[i]->data());
        fresh_.erase(fresh_.begin(), fresh_.begin() + static_cast<std::ptrdiff_t>(count));
    }
    // Later trials come one by one, and on a GPU this is pinned memory.
    if (drawn_.size() > 1) drawn_.resize(1);
    return engine().backend().check();
}

base::Status EngineLanes::settle(int lane) {
    MILLRACE_TRY(check_lane(lane, true));
    return settle();
}

base::Result<EngineLanes::Trial> EngineLanes::trial_of(const base::Recipe& recipe) const {
    if (const auto differences = structure_.differences(structural_part(recipe)); !differences.empty()) {
        const base::RecipeDifference& first = differences.front();
        const std::string what = fmt::format(
            "the lanes were built for {} = {}, not {}; a recipe of that structure, or lanes of its own, would be right",
            first.name, first.left, first.right);
        return recipe.has(first.name) ? recipe.bad(first.name, what) : base::Error{what};
    }
    MILLRACE_TRY(check_trial(recipe));
    Trial trial;
    MILLRACE_SET(trial.settings, read_settings(recipe, static_cast<std::int32_t>(setup_.data.train)));
    MILLRACE_LET(model, models::make(recipe, engine().source().fields()));
    tape::StoreOptions options = store().options();
    options.members = 1;
    trial.declared = std::make_unique<tape::Store>(engine().backend(), options);
    MILLRACE_TRY(model->declare(*trial.declared));
    MILLRACE_ASSERT(trial.declared->parameters().size() == store().parameters().size(), "equal structures declare alike");
    return trial;
}

std::vector<EngineLanes::Setting> EngineLanes::settings_of(const tape::Store& declared) {
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

void EngineLanes::write_settings(int lane, const std::vector<Setting>& now, const std::vector<Setting>& before) const {
    for (std::size_t i = 0; i < now.size(); ++i) {
        if (now[i] == before[i]) continue;  // what training put there stays
        for (std::size_t matrix = 0; matrix < now[i].matrices.size(); ++matrix)
            store().write_parameter(now[i].id, static_cast<int>(matrix), lane, now[i].matrices[matrix]);
    }
}

void EngineLanes::set_trainable(int lane, bool trainable) const {
    std::vector<ops::GroupState> groups = slices_.read_groups(lane);
    for (std::size_t i = 0; i < groups.size(); ++i) groups[i].trainable = trainable && !store().groups()[i].fixed ? 1 : 0;
    slices_.write_groups(lane, groups);
}

base::Status EngineLanes::fill(int lane, const base::Recipe& recipe) {
    MILLRACE_TRY(check_lane(lane, false));
    MILLRACE_LET(trial, trial_of(recipe));
    std::vector<ops::MemberState> state(1);
    state.front().seed = trial.settings.seeds.front();
    apply_settings(trial.settings, state);
    optim::set_loss_scale(store().options().precision, state);
    at(lane) = {recipe, settings_of(*trial.declared), false};
    forget(lane);
    fresh_.push_back({lane, std::move(trial.declared), state.front()});
    return base::ok();
}

base::Result<LaneSlice> EngineLanes::save(int lane) {
    MILLRACE_TRY(settle(lane));
    const std::string recipe = at(lane).recipe->to_toml();
    SliceHeader header;
    header.precision = static_cast<std::uint64_t>(store().options().precision);
    header.recipe_bytes = recipe.size();
    header.member_bytes = slices_.bytes();
    LaneSlice slice;
    slice.bytes.resize(sizeof header + recipe.size() + slices_.bytes());
    std::memcpy(slice.bytes.data(), &header, sizeof header);
    std::memcpy(slice.bytes.data() + sizeof header, recipe.data(), recipe.size());
    slices_.read(lane, slice.bytes.data() + sizeof header + recipe.size());
    MILLRACE_TRY(engine().backend().check());
    return slice;
}

base::Status EngineLanes::restore(int lane, const LaneSlice& slice) {
    MILLRACE_TRY(check_lane(lane, false));
    SliceHeader header;
    if (slice.bytes.size() >= sizeof header) std::memcpy(&header, slice.bytes.data(), sizeof header);
    const std::size_t left = slice.bytes.size() - std::min(slice.bytes.size(), sizeof header);
    if (left == 0 || std::memcmp(header.magic, SliceHeader{}.magic, sizeof header.magic) != 0 || header.recipe_bytes > left ||
        header.member_bytes != left - header.recipe_bytes)
        return base::Error{fmt::format("{} bytes are no slice of a lane, or not all of one", slice.bytes.size())};
    const auto* text = reinterpret_cast<const char*>(slice.bytes.data() + sizeof header);
    MILLRACE_LET(recipe, parse_recipe({text, header.recipe_bytes}, "the recipe of the slice", {}));
    MILLRACE_LET(trial, trial_of(recipe));
    const tape::Precision precision = store().options().precision;
    if (header.precision != static_cast<std::uint64_t>(precision) || header.member_bytes != slices_.bytes())
        return base::Error{fmt::format("the slice is of another precision or another model; the lanes have {} bytes in {}",
                                       slices_.bytes(), tape::name_of(precision))};
    forget(lane);
    slices_.write(lane, slice.bytes.data() + sizeof header + header.recipe_bytes);
    at(lane) = {std::move(recipe), settings_of(*trial.declared), false};
    return engine().backend().check();
}

base::Status EngineLanes::copy(int from, int to) {
    for (const int lane : {from, to}) MILLRACE_TRY(settle(lane));
    const ops::MemberState source = slices_.read_state(from);
    ops::MemberState state = slices_.read_state(to);
    slices_.copy(from, to);
    write_settings(to, at(to).settings, at(from).settings);
    state.loss_scale = source.loss_scale;
    state.good_steps = source.good_steps;
    slices_.write_state(to, state);
    return engine().backend().check();
}

base::Status EngineLanes::set(int lane, const base::Recipe& recipe) {
    MILLRACE_TRY(settle(lane));
    MILLRACE_LET(trial, trial_of(recipe));
    std::vector<ops::MemberState> state{slices_.read_state(lane)};
    state.front().seed = trial.settings.seeds.front();
    apply_settings(trial.settings, state);
    slices_.write_state(lane, state.front());
    std::vector<Setting> settings = settings_of(*trial.declared);
    write_settings(lane, settings, at(lane).settings);
    at(lane) = {recipe, std::move(settings), false};
    return engine().backend().check();
}

/// Launches the steps of an epoch and sums what they leave in the ring, which is host memory.
base::Result<StepSums> EngineLanes::train(const std::atomic<int>* stop, bool& stopped) {
    Engine& engine = *setup_.engine;
    StepSums sums(engine.members());
    std::uint64_t first_clock = 0, last_clock = 0;
    const auto drain = [&] {
        reader_.drain([&](RingRows rows) {
            sums.add(rows);
            last_clock = rows.front().clock;
            if (sums.steps() == 1) first_clock = last_clock;
        });
    };
    const auto steps = static_cast<std::uint64_t>(engine.epoch().count());
    for (std::uint64_t index = 0; index < steps && !stopped; ++index) {
        MILLRACE_TRY(engine.await_rows(launched_, [this] { return base::Result<std::uint64_t>(reader_.consumed()); }));
        engine.launch_step(index);
        launched_ += 1;
        MILLRACE_TRY(wait_while(engine.backend(), [&] { return is_far_ahead(reader_, launched_); }));
        drain();
        stopped = stop != nullptr && stop->load(std::memory_order_relaxed) != 0;
    }
    engine.backend().synchronize();
    MILLRACE_TRY(engine.backend().check());
    while (reader_.consumed() < launched_) drain();
    if (steps > 1 && last_clock >= first_clock && !stopped)
        step_ms_ = 1e-6 * static_cast<double>(last_clock - first_clock) / static_cast<double>(steps - 1);
    return sums;
}

base::Result<EngineLanes::Scores> EngineLanes::score(data::Part part, const std::atomic<int>* stop) {
    Engine& engine = *setup_.engine;
    std::vector<bool> filled;
    for (const Lane& lane : table_) filled.push_back(lane.recipe.has_value());
    MILLRACE_LET(scores, engine.evaluate(part, stop, filled));
    const std::vector<ops::MemberState> states = store().read_states();
    Scores results(table_.size());
    for (std::size_t k = 0; k < table_.size(); ++k) {
        if (!filled[k]) continue;
        LaneScore& result = results[k].emplace();
        result.epoch = states[k].epoch;
        if (k >= scores.size()) continue;
        const Score& score = scores[k];
        const std::string prefix = fmt::format("{}_", data::name_of(part));
        result.metrics[prefix + "loss"] = score.loss;
        if (engine.model().classifies()) result.metrics[prefix + "accuracy"] = score.accuracy;
        for (const models::Figure& figure : score.more.figures)
            result.metrics[part == data::Part::test ? prefix + figure.name : figure.name] = figure.value;
        result.diverged = !std::isfinite(score.loss);
    }
    return results;
}

/// What run_epoch() adds to a score: of the training alone.
std::map<std::string, double> EngineLanes::training_metrics(const MemberSums& sums) const {
    std::map<std::string, double> metrics{{"train_loss", sums.mean_loss()},
                                          {"parameters", static_cast<double>(store().trainable_count())},
                                          {"step_ms", step_ms_ / static_cast<double>(table_.size())}};
    if (engine().model().classifies()) metrics["train_accuracy"] = sums.accuracy();
    return metrics;
}

base::Result<std::vector<std::string>> EngineLanes::metrics() {
    MILLRACE_TRY(settle_filled());
    std::vector<std::string> names;
    if (!any_filled()) return names;
    MILLRACE_LET(scores, score(data::Part::validation, nullptr));
    const auto first = std::ranges::find_if(scores, [](const auto& score) { return score.has_value(); });
    (*first)->metrics.merge(training_metrics({}));
    for (const auto& [name, value] : (*first)->metrics) names.push_back(name);
    return names;
}

base::Result<EngineLanes::Scores> EngineLanes::run_epoch(const std::atomic<int>* stop) {
    MILLRACE_TRY(settle_filled());
    if (!any_filled()) return Scores(table_.size());
    bool stopped = stop != nullptr && stop->load(std::memory_order_relaxed) != 0;
    if (stopped) return Scores{};
    // Until all is scored: an error leaves part of an epoch behind, too.
    for (Lane& lane : table_) lane.partial = lane.recipe.has_value();
    MILLRACE_LET(sums, train(stop, stopped));
    if (stopped) return Scores{};
    MILLRACE_LET(scores, score(data::Part::validation, stop));
    if (stop != nullptr && stop->load(std::memory_order_relaxed) != 0) return Scores{};
    for (std::size_t k = 0; k < scores.size(); ++k) {
        table_[k].partial = false;
        if (!scores[k]) continue;
        const MemberSums& member = sums.members[k];
        scores[k]->metrics.merge(training_metrics(member));
        scores[k]->diverged = scores[k]->diverged || member.steps == 0 || !std::isfinite(member.mean_loss());
    }
    return scores;
}

base::Result<EngineLanes::Scores> EngineLanes::test() {
    if (engine().source().samples(data::Part::test) == 0) return Scores(table_.size());
    MILLRACE_TRY(settle_filled());
    return score(data::Part::test, nullptr);
}

}  // namespace

base::Result<std::unique_ptr<Lanes>> Lanes::create(const base::Recipe& recipe, int lanes, const SourceAdapter& adapt) {
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
    return std::unique_ptr<Lanes>(std::make_unique<EngineLanes>(std::move(setup), structural_part(recipe)));
}

}  // namespace millrace::train
