#pragma once
// Changes of a tree, one leaf or pair of leaves at a time. Nodes are numbered anew without holes, in their order before; a node
// that is new or has another parent comes last.

#include <vector>

#include "models/k1/tree.h"

namespace millrace::models {

/// A node of the tree before, and its share in what is made of it.
struct Origin {
    std::int32_t node = 0;
    double share = 1;
};

struct Reshaped {
    Tree tree;                                 ///< with weights
    std::vector<std::vector<Origin>> origins;  ///< of every node; two: they were merged
    std::int32_t grown = -1;                   ///< the node that is new, a copy of its origin; -1: none
};

/// A leaf with a parent gets a sibling. Both have half of its weight, so that two equal ones are the leaf before.
Reshaped split_leaf(const Tree& tree, std::int32_t leaf);
/// A leaf that has siblings goes; their weights stay.
Reshaped prune_leaf(const Tree& tree, std::int32_t leaf);
/// Two leaves of one parent become the first, with the weights of both.
Reshaped merge_leaves(const Tree& tree, std::int32_t first, std::int32_t second);
/// A leaf that has siblings gets another parent.
Reshaped move_leaf(const Tree& tree, std::int32_t leaf, std::int32_t parent);

}  // namespace millrace::models
