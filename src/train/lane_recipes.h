#pragma once
// Which recipes may share a program: those that differ in nothing but device data of a member.

#include <string>
#include <vector>

#include "base/recipe.h"

namespace millrace::train {

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

}  // namespace millrace::train
