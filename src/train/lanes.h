#pragma once
// The member table of a search: K members of one engine, each carrying a trial or none. All lanes step in lockstep; trials come,
// go and change between epochs, and nothing is planned or captured again for it. A trial equals a run of its recipe alone: to the
// bit on the CPU, and on a GPU with `deterministic = true`.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/recipe.h"
#include "tape/captures.h"
#include "tape/slices.h"
#include "train/metrics_reader.h"
#include "train/setup.h"

namespace millrace::train {

// Which recipes may share a program: those that differ in nothing but device data of a member.
/// Keys that take one value per member, and those of the schedule that every member has of its own.
std::vector<std::string> fusible_keys(const base::Recipe& recipe);

/// The recipe with everything that a lane takes, and the number of members, at its default: what is left makes the program.
/// SGD without momentum stays apart, since it has no moments.
base::Recipe structural_part(const base::Recipe& recipe);

/// The recipe with K members of equal values.
base::Result<base::Recipe> with_members(const base::Recipe& recipe, int members);

/// Members [first, first + count) as a recipe of their own: lists of members' values are cut, and seeds listed.
base::Result<base::Recipe> member_part(const base::Recipe& recipe, int first, int count);

/// Refuses what a lane cannot carry: several members, an end by steps or by the first value that is not finite, structures that
/// change, data learned in turns.
base::Status check_trial(const base::Recipe& recipe);

/// Everything of one member: parameters, moments, running statistics, group table, state. Plain bytes of one layout.
struct LaneSlice {
    std::vector<std::byte> bytes;
};

/// What an epoch left of the trial in a lane.
struct LaneScore {
    /// train_loss, train_accuracy, validation_loss, validation_accuracy, what the family measures, parameters, step_ms (of the
    /// program, over its lanes). Accuracies of classifiers alone, validation where samples were set aside.
    std::map<std::string, double> metrics;
    std::uint32_t epoch = 0;  ///< epochs that this trial has completed
    bool diverged = false;    ///< a loss is not finite, or every step of the epoch was dropped
};

class Lanes {
public:
    using Scores = std::vector<std::optional<LaneScore>>;

    /// Builds one program of `lanes` members for recipes of the structure of `recipe`: plans and captures once. All lanes are
    /// empty. `adapt` wraps the source of the data, for tests.
    static base::Result<std::unique_ptr<Lanes>> create(const base::Recipe& recipe, int lanes, const SourceAdapter& adapt = {});
    /// The keys of `recipe` that a lane takes without a new program ("optim.lr", ...).
    static std::vector<std::string> fusible_keys(const base::Recipe& recipe) { return train::fusible_keys(recipe); }
    /// Equal for recipes that share a program.
    static std::string structure(const base::Recipe& recipe) { return structural_part(recipe).to_toml(); }

    /// A fresh trial: parameters drawn from the recipe's seed, moments and state reset, hyper-parameters of the recipe. Refuses
    /// another structure and names the key. Many are drawn side by side when the next epoch begins.
    base::Status fill(int lane, const base::Recipe& recipe);
    /// Of a filled lane.
    base::Result<LaneSlice> save(int lane);
    /// To any lane of a program of the same structure. The trial goes on to the bit.
    base::Status restore(int lane, const LaneSlice& slice);
    /// Weights, moments and statistics of `from` to `to` on the device; hyper-parameters, seed and progress of `to` stay (PBT).
    base::Status copy(int from, int to);
    /// New hyper-parameters for the trial in the lane; weights and progress stay (PBT).
    base::Status set(int lane, const base::Recipe& recipe);
    /// The lane is empty: it does not update and is not scored.
    void clear(int lane) {
        MILLRACE_ASSERT(check_lane(lane, false).ok(), "no such lane");
        forget(lane);
        set_trainable(lane, false);
        at(lane) = {};
    }

    /// One epoch of all lanes, then validation of the filled ones; empty lanes have no score. No elements when `stop` was set
    /// before the end: the filled lanes then hold part of an epoch and refuse everything but fill(), restore() and clear().
    base::Result<Scores> run_epoch(const std::atomic<int>* stop = nullptr);
    /// The names of what run_epoch() measures, by validation of the filled lanes as they are: none where all are empty.
    base::Result<std::vector<std::string>> metrics();
    /// test_loss, test_accuracy, what the family measures there: of the filled lanes as they are, for finalists.
    base::Result<Scores> test();

    [[nodiscard]] int lanes() const { return static_cast<int>(table_.size()); }
    [[nodiscard]] std::uint64_t captures() const { return tape::captures_so_far(); }   ///< of this process; refilling adds none
    [[nodiscard]] double step_ms() const { return step_ms_; }                          ///< of the program, in the newest epoch
    [[nodiscard]] std::int64_t memory_used() const { return engine().memory_used(); }  ///< bytes that setting up took

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

    Lanes(Setup setup, base::Recipe structure)
        : setup_(std::move(setup)),
          structure_(std::move(structure)),
          slices_(store()),
          reader_(store().ring_rows(), store().options().ring_capacity, store().members()),
          table_(static_cast<std::size_t>(store().members())) {}

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

}  // namespace millrace::train
