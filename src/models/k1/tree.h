#pragma once
// A tree of nodes, parents before children, and its changes, one leaf or pair of leaves at a time. After a change nodes are
// numbered anew without holes, in their order before; a node that is new or has another parent comes last.

#include <cstdint>
#include <vector>

namespace millrace::models {

struct Tree {
    std::vector<std::int32_t> parent;  ///< by node; node 0 is the root, its parent -1. A node comes behind its parent
    std::vector<double> weight = {};   ///< by node, in the mean over its siblings and itself; empty: all alike

    /// Every node of level i has branching[i] children. Depth first: a node, then its first child's subtree.
    static Tree regular(const std::vector<std::int64_t>& branching);

    [[nodiscard]] std::int32_t nodes() const { return static_cast<std::int32_t>(parent.size()); }
    [[nodiscard]] std::vector<std::int32_t> children(std::int32_t node) const;
    [[nodiscard]] bool is_leaf(std::int32_t node) const { return children(node).empty(); }
    [[nodiscard]] double weight_of(std::int32_t node) const {
        return weight.empty() ? 1 : weight[static_cast<std::size_t>(node)];
    }
    /// Nodes by level, in each level those with the same parent side by side.
    [[nodiscard]] std::vector<std::vector<std::int32_t>> levels() const;
    /// The share of every node in the weighted mean over children, taken from the leaves up to the root; 0 for nodes that have
    /// some.
    [[nodiscard]] std::vector<double> shares() const;
};

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
