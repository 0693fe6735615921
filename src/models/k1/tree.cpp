#include "models/k1/tree.h"

#include "base/result.h"

namespace millrace::models {
namespace {

void grow(Tree& tree, std::int32_t above, const std::vector<std::int64_t>& branching, std::size_t level) {
    const std::int32_t node = tree.nodes();
    tree.parent.push_back(above);
    if (level == branching.size()) return;
    for (std::int64_t i = 0; i < branching[level]; ++i) grow(tree, node, branching, level + 1);
}

/// The tree as it is, with weights, every node its own origin.
Reshaped unchanged(const Tree& tree) {
    Reshaped same{tree, {}, -1};
    same.tree.weight.clear();
    for (std::int32_t n = 0; n < tree.nodes(); ++n) {
        same.tree.weight.push_back(tree.weight_of(n));
        same.origins.push_back({{n, 1}});
    }
    return same;
}

void remove_leaf(Reshaped& from, std::int32_t leaf) {
    MILLRACE_ASSERT(leaf > 0 && from.tree.is_leaf(leaf), "only a leaf that is not the root can go");
    from.tree.parent.erase(from.tree.parent.begin() + leaf);
    from.tree.weight.erase(from.tree.weight.begin() + leaf);
    from.origins.erase(from.origins.begin() + leaf);
    for (std::int32_t& parent : from.tree.parent)
        if (parent > leaf) --parent;
}

void add_leaf(Reshaped& to, std::int32_t parent, double weight, std::int32_t origin) {
    to.tree.parent.push_back(parent);
    to.tree.weight.push_back(weight);
    to.origins.push_back({{origin, 1}});
}

}  // namespace

Tree Tree::regular(const std::vector<std::int64_t>& branching) {
    Tree tree;
    grow(tree, -1, branching, 0);
    return tree;
}

std::vector<std::int32_t> Tree::children(std::int32_t node) const {
    std::vector<std::int32_t> found;
    for (std::int32_t n = 0; n < nodes(); ++n)
        if (parent[static_cast<std::size_t>(n)] == node) found.push_back(n);
    return found;
}

std::vector<std::vector<std::int32_t>> Tree::levels() const {
    std::vector<std::vector<std::int32_t>> all{{0}};
    while (true) {
        std::vector<std::int32_t> next;
        for (const std::int32_t node : all.back())
            for (const std::int32_t child : children(node)) next.push_back(child);
        if (next.empty()) return all;
        all.push_back(std::move(next));
    }
}

std::vector<double> Tree::shares() const {
    std::vector<double> share(parent.size(), 1);
    for (std::int32_t n = 0; n < nodes(); ++n) {
        const std::vector<std::int32_t> below = children(n);
        double sum = 0;
        for (const std::int32_t child : below) sum += weight_of(child);
        for (const std::int32_t child : below)
            share[static_cast<std::size_t>(child)] = share[static_cast<std::size_t>(n)] * weight_of(child) / sum;
        if (!below.empty()) share[static_cast<std::size_t>(n)] = 0;
    }
    return share;
}

Reshaped split_leaf(const Tree& tree, std::int32_t leaf) {
    MILLRACE_ASSERT(leaf > 0 && tree.is_leaf(leaf), "only a leaf with a parent is split");
    Reshaped made = unchanged(tree);
    const auto at = static_cast<std::size_t>(leaf);
    made.tree.weight[at] /= 2;
    add_leaf(made, tree.parent[at], made.tree.weight[at], leaf);
    made.grown = tree.nodes();
    return made;
}

Reshaped prune_leaf(const Tree& tree, std::int32_t leaf) {
    Reshaped made = unchanged(tree);
    remove_leaf(made, leaf);
    return made;
}

Reshaped merge_leaves(const Tree& tree, std::int32_t first, std::int32_t second) {
    const auto a = static_cast<std::size_t>(first), b = static_cast<std::size_t>(second);
    MILLRACE_ASSERT(first < second && tree.is_leaf(first) && tree.parent[a] == tree.parent[b], "only sibling leaves are merged");
    Reshaped made = unchanged(tree);
    const double sum = made.tree.weight[a] + made.tree.weight[b];
    made.origins[a] = {{first, made.tree.weight[a] / sum}, {second, made.tree.weight[b] / sum}};
    made.tree.weight[a] = sum;
    remove_leaf(made, second);
    return made;
}

Reshaped move_leaf(const Tree& tree, std::int32_t leaf, std::int32_t parent) {
    MILLRACE_ASSERT(parent >= 0 && parent < tree.nodes() && parent != leaf, "no such parent");
    Reshaped made = unchanged(tree);
    remove_leaf(made, leaf);
    add_leaf(made, parent > leaf ? parent - 1 : parent, tree.weight_of(leaf), leaf);
    return made;
}

}  // namespace millrace::models
