#include "models/k1/reshape.h"

#include "base/result.h"

namespace millrace::models {
namespace {

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
