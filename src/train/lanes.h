#pragma once
// The member table of a search: K members of one engine, each carrying a trial or none. All lanes step in lockstep; trials come,
// go and change between epochs, and nothing is planned or captured again for it. A trial equals a run of its recipe alone: to the
// bit on the CPU, and on a GPU with `deterministic = true`.

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
#include "tape/program.h"
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

/// An interface, so that tests drive a search with functions whose minimum is known.
class Lanes {
public:
    using Scores = std::vector<std::optional<LaneScore>>;  ///< by lane
    virtual ~Lanes() = default;

    /// Builds one program of `lanes` members for recipes of the structure of `recipe`: plans and captures once. All lanes are
    /// empty. `adapt` wraps the source of the data, for tests.
    static base::Result<std::unique_ptr<Lanes>> create(const base::Recipe& recipe, int lanes, const SourceAdapter& adapt = {});
    /// The keys of `recipe` that a lane takes without a new program ("optim.lr", ...).
    static std::vector<std::string> fusible_keys(const base::Recipe& recipe) { return train::fusible_keys(recipe); }
    /// Equal for recipes that share a program.
    static std::string structure(const base::Recipe& recipe) { return structural_part(recipe).to_toml(); }

    /// A fresh trial: parameters drawn from the recipe's seed, moments and state reset, hyper-parameters of the recipe. Refuses
    /// another structure and names the key. Many are drawn side by side when the next epoch begins.
    virtual base::Status fill(int lane, const base::Recipe& recipe) = 0;
    /// Of a filled lane.
    virtual base::Result<LaneSlice> save(int lane) = 0;
    /// To any lane of a program of the same structure. The trial goes on to the bit.
    virtual base::Status restore(int lane, const LaneSlice& slice) = 0;
    /// Weights, moments and statistics of `from` to `to` on the device; hyper-parameters, seed and progress of `to` stay (PBT).
    virtual base::Status copy(int from, int to) = 0;
    /// New hyper-parameters for the trial in the lane; weights and progress stay (PBT).
    virtual base::Status set(int lane, const base::Recipe& recipe) = 0;
    /// The lane is empty: it does not update and is not scored.
    virtual void clear(int lane) = 0;

    /// One epoch of all lanes, then validation of the filled ones; empty lanes have no score. No elements when `stop` was set
    /// before the end: the filled lanes then hold part of an epoch and refuse everything but fill(), restore() and clear().
    virtual base::Result<Scores> run_epoch(const std::atomic<int>* stop = nullptr) = 0;
    /// The names of what run_epoch() measures, by validation of the filled lanes as they are: none where all are empty.
    virtual base::Result<std::vector<std::string>> metrics() = 0;
    /// test_loss, test_accuracy, what the family measures there: of the filled lanes as they are, for finalists.
    virtual base::Result<Scores> test() = 0;

    [[nodiscard]] virtual int lanes() const = 0;
    [[nodiscard]] std::uint64_t captures() const { return tape::captures_so_far(); }  ///< of this process; refilling adds none
    [[nodiscard]] virtual double step_ms() const = 0;                                 ///< of the program, in the newest epoch
    [[nodiscard]] virtual std::int64_t memory_used() const = 0;                       ///< bytes that setting up took
};

}  // namespace millrace::train
