#pragma once
// What samplers and schedulers see of a study: its trials. They keep no state of their own, so every worker that reads the same
// trials comes to the same decision, and a resumed study goes on as if it had not stopped. A caller that reads trials from a
// storage sees to it that all have as many values as the study has objectives, and configurations of the study's space
// (Parameter::holds).

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "search/space.h"

namespace millrace::search {

using Objectives = std::vector<double>;

/// Nowhere worse and somewhere better.
bool dominates(const Objectives& a, const Objectives& b);

/// The front of each point: 0 for those that no other dominates, 1 for those that only points of front 0 dominate, and so on.
/// With one objective the place of its value among the distinct ones.
std::vector<size_t> front_ranks(std::span<const Objectives> points);

/// How lonely each point is among the others of its front: the sum over objectives of the distance between its neighbours,
/// relative to the front's width; infinite at the ends.
std::vector<double> crowding_distances(std::span<const Objectives> points, std::span<const size_t> ranks);

/// Positions of the points, best first: by front, then (with several objectives) the lonelier first, then by position.
std::vector<size_t> pareto_order(std::span<const Objectives> points);

// Order among points with several objectives. Smaller is better in each; all points have the same number of objectives, and no
// value is NaN.

/// `paused`: waits at a rung, may be promoted. `pruned`: ended early for good. `failed`: diverged; the worst of all.
enum class TrialState { running, paused, complete, pruned, failed };

struct Trial {
    int64_t number = 0;  ///< by which its study knows it
    Configuration configuration;
    TrialState state = TrialState::running;
    Objectives values;                      ///< once it has ended; smaller is better (the driver negates what is maximised)
    std::vector<double> violations;         ///< one for each constraint; above 0 it is violated by that much
    std::map<int64_t, Objectives> reports;  ///< values by step

    [[nodiscard]] bool is_pending() const { return state == TrialState::running; }
    /// The sum of what is violated; 0 when all constraints hold. NaN counts as infinitely violated.
    [[nodiscard]] double violation() const;
    /// The last step with a report; 0 when there is none.
    [[nodiscard]] int64_t last_step() const { return reports.empty() ? 0 : reports.rbegin()->first; }
};

/// No NaN and no infinity, and at least one value.
bool all_finite(const Objectives& values);

/// Ends a trial with its final values: complete, or failed when one of them is not finite.
void finish(Trial& trial, Objectives values);

/// Positions in `trials` of all that are not pending and tell something, best first: feasible before infeasible (these by their
/// violation); complete ones by pareto_order; pruned and paused ones by their last step, the later first, then by pareto_order of
/// its report; failed ones, and complete ones with a value that is not finite, at the end.
std::vector<size_t> best_first(std::span<const Trial> trials);

/// The values at `step` by which a scheduler compares trials: all objectives, or `objective` alone. Empty when the trial has no
/// report there or one that is not finite.
Objectives values_at(const Trial& trial, int64_t step, std::optional<size_t> objective);

/// A configuration that may win, with the trials that tried it.
struct Finalist {
    Configuration configuration;
    std::vector<int64_t> numbers;  ///< its complete trials: the first one and its replicates
    Objectives mean;               ///< over them
};

/// The best `count` configurations among complete, finite and feasible trials, best first by pareto_order of their means. A
/// configuration of which one trial violates a constraint or failed is out.
std::vector<Finalist> finalists(std::span<const Trial> trials, size_t count);

/// How many of the trials have this configuration: the replicate's number of the next one.
int64_t replicates(std::span<const Trial> trials, const Configuration& configuration);

/// How much each parameter matters for an objective: permutation importance on a random forest. One share for each parameter, at
/// least 0, together 1: by how much a tree's error on trials that it has not seen grows when that parameter's values are shuffled
/// among them. All 0 when the forest explains less than a tenth of the variance. It predicts the rank of a trial, so that a
/// diverging value counts no more than being last. Complete trials with finite values alone, the newest 2000; empty when there
/// are fewer than 8.
std::vector<double> parameter_importance(const Space& space, std::span<const Trial> trials, size_t objective, uint64_t seed);

}  // namespace millrace::search
