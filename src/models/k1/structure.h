#pragma once
// Changes of a run's tree: which one the statistics of its nodes speak for, and how a changed tree takes over what was learned.
//   grow        the leaf with the largest recent norm becomes two: a copy with noise (`structure.noise` times the RMS of each
//               tensor) that shares its weight. The copy's moments and counts begin at zero.
//   prune       the leaf that the smallest share of steps chose goes, unless it is an only child.
//   merge       of all sibling leaves the two with the largest cosine of their parameters become one: the mean by weight, of
//               moments, too. Its count of steps is the larger of the two.
//   reorganise  of the parents of a level, the one whose leaves were chosen least gives its least chosen leaf to the one whose
//               leaves were chosen most.
// All other tensors, moments, counts and statistics keep their bits. Statistics of grown and merged nodes begin at zero.

#include "models/capabilities.h"
#include "models/k1/k1.h"

namespace millrace::models {

Structure tree_structure();

/// What the tensors and groups of a changed tree begin with; both stores have one member. `noise` is a share of a tensor's RMS.
void transfer_nodes(const Reshaped& change, double noise, tape::Store& from, tape::Store& to);

}  // namespace millrace::models
