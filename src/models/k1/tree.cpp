#include "models/k1/tree.h"

namespace millrace::models {
namespace {

void grow(Tree& tree, std::int32_t above, const std::vector<std::int64_t>& branching, std::size_t level) {
    const std::int32_t node = tree.nodes();
    tree.parent.push_back(above);
    if (level == branching.size()) return;
    for (std::int64_t i = 0; i < branching[level]; ++i) grow(tree, node, branching, level + 1);
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

}  // namespace millrace::models
