#pragma once
// A tree of nodes, parents before children.

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

}  // namespace millrace::models
