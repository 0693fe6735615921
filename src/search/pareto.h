#pragma once
// Order among points with several objectives. Smaller is better in each; all points have the same number of objectives, and no
// value is NaN.

#include <cstddef>
#include <span>
#include <vector>

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

}  // namespace millrace::search
