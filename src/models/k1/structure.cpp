// Which changes of a tree are proposed, and what the nodes of a changed tree take over from those before.
#include "models/k1/k1.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/philox.h"
#include "models/k1/node_report.h"

namespace millrace::models {
namespace {

using Arena = tape::Store::Arena;
using Values = std::vector<float>;

struct Tensor {
    tape::ParameterId id = tape::kNoParameter;
    int matrix = 0;
};
std::map<std::string, Tensor> tensors_of(const tape::Store& store) {
    std::map<std::string, Tensor> all;
    for (std::size_t id = 0; id < store.parameters().size(); ++id)
        for (int matrix = 0; matrix < store.parameters()[id].matrices; ++matrix)
            all[store.parameters()[id].names[static_cast<std::size_t>(matrix)]] = {static_cast<tape::ParameterId>(id), matrix};
    return all;
}

/// The node whose tensor this is; none: it belongs to no node.
std::optional<std::int32_t> node_of(const std::string& name, std::int32_t nodes) {
    for (std::int32_t node = 0; node < nodes; ++node)
        if (name.starts_with(K1::prefix_of(node))) return node;
    return std::nullopt;
}

void add_noise(Values& values, double noise, const ops::MemberState& state, std::uint32_t stream) {
    double squares = 0;
    for (const float value : values) squares += double{value} * value;
    const auto scale = static_cast<float>(noise * std::sqrt(squares / static_cast<double>(values.size())));
    for (std::size_t i = 0; i < values.size(); ++i)
        values[i] += scale * base::random_normal(state.seed, state.step, 0, stream, i);
}

/// Where a tensor of the changed tree comes from.
struct Source {
    struct Part {
        std::string name;
        double share;
    };
    std::vector<Part> parts;
    bool grown = false;
    [[nodiscard]] bool begins_anew() const { return grown || parts.size() > 1; }
};

Source source_of(const std::string& name, const Reshaped& change) {
    const std::optional<std::int32_t> node = node_of(name, change.tree.nodes());
    if (!node) return {{{name, 1}}, false};
    Source source{{}, *node == change.grown};
    for (const Origin& origin : change.origins[static_cast<std::size_t>(*node)])
        source.parts.push_back({K1::prefix_of(origin.node) + name.substr(K1::prefix_of(*node).size()), origin.share});
    return source;
}

/// The mean of the parts; of a single one its very bits.
Values mean_of(const Source& source, const std::map<std::string, Tensor>& tensors, tape::Store& store, Arena arena) {
    Values mean;
    for (const auto& [name, share] : source.parts) {
        const Tensor& tensor = tensors.at(name);
        Values values = store.read_parameter(tensor.id, tensor.matrix, 0, arena);
        if (source.parts.size() == 1) return values;
        mean.resize(values.size());
        for (std::size_t i = 0; i < values.size(); ++i) mean[i] += static_cast<float>(share * double{values[i]});
    }
    return mean;
}

void transfer_groups(const Reshaped& change, tape::Store& from, tape::Store& to) {
    const std::vector<ops::GroupState> before = from.read_groups();
    std::vector<ops::GroupState> after = to.read_groups();
    const auto state_of = [&](const std::string& name) -> const ops::GroupState& {
        const auto found = std::ranges::find(from.groups(), name, &tape::ParameterGroup::name);
        return before[static_cast<std::size_t>(found - from.groups().begin())];
    };
    for (std::size_t g = 0; g < after.size(); ++g) {
        const std::string& name = to.groups()[g].name;
        std::int32_t node = 0;
        while (node < change.tree.nodes() && K1::group_of(node) != name) ++node;
        if (node == change.tree.nodes()) {
            after[g] = state_of(name);
            continue;
        }
        const std::vector<Origin>& origins = change.origins[static_cast<std::size_t>(node)];
        after[g] = state_of(K1::group_of(origins.front().node));
        for (const Origin& origin : origins) {
            const ops::GroupState& other = state_of(K1::group_of(origin.node));
            after[g].applied = std::max(after[g].applied, other.applied);
            after[g].last_applied = std::max(after[g].last_applied, other.last_applied);
        }
        if (node == change.grown) after[g].applied = after[g].last_applied = 0;
    }
    to.write_groups(after);
}

using Statistics = std::vector<NodeStatistics>;

StructureChange nothing(std::string why) { return {std::move(why), {}, {}}; }

StructureChange changed(std::string text, Reshaped made, double noise) {
    StructureChange change;
    change.text = std::move(text);
    change.settings = {fmt::format("model.tree={}", fmt::join(made.tree.parent, ",")),
                       fmt::format("model.weights={}", fmt::join(made.tree.weight, ","))};
    change.transfer = [made = std::move(made), noise](tape::Store& from, tape::Store& to) {
        transfer_nodes(made, noise, from, to);
    };
    return change;
}

std::vector<std::int32_t> leaves_of(const Tree& tree) {
    std::vector<std::int32_t> leaves;
    for (std::int32_t n = 1; n < tree.nodes(); ++n)
        if (tree.is_leaf(n)) leaves.push_back(n);
    return leaves;
}

StructureChange grow(const Tree& tree, const Statistics& statistics, std::int64_t most, double noise) {
    if (tree.nodes() >= most) return nothing(fmt::format("the tree has {} nodes, structure.most_nodes = {}", tree.nodes(), most));
    const auto recent = [&](std::int32_t n) { return statistics[static_cast<std::size_t>(n)].recent; };
    const std::vector<std::int32_t> leaves = leaves_of(tree);
    const auto leaf = std::ranges::max_element(leaves, {}, recent);
    if (leaf == leaves.end() || recent(*leaf) == 0) return nothing("no leaf has a gradient yet");
    double sum = 0;
    for (const std::int32_t n : leaves) sum += recent(n);
    return changed(fmt::format("leaf {} becomes {} and {}: its recent norm {:.4g} is the largest, the mean over leaves is {:.4g}",
                               *leaf, *leaf, tree.nodes(), recent(*leaf), sum / static_cast<double>(leaves.size())),
                   split_leaf(tree, *leaf), noise);
}

StructureChange prune(const Tree& tree, const Statistics& statistics, std::int64_t least) {
    if (tree.nodes() <= least)
        return nothing(fmt::format("the tree has {} nodes, structure.least_nodes = {}", tree.nodes(), least));
    std::vector<std::int32_t> leaves = leaves_of(tree);
    std::erase_if(leaves, [&](std::int32_t n) {
        return tree.children(tree.parent[static_cast<std::size_t>(n)]).size() == 1 ||
               statistics[static_cast<std::size_t>(n)].steps() == 0;
    });
    if (leaves.empty()) return nothing("no leaf with siblings was counted yet");
    const std::int32_t leaf =
        *std::ranges::min_element(leaves, {}, [&](std::int32_t n) { return statistics[static_cast<std::size_t>(n)].rate(); });
    const NodeStatistics& one = statistics[static_cast<std::size_t>(leaf)];
    return changed(fmt::format("leaf {} goes: {:.0f} of {:.0f} steps chose it, the smallest share of all leaves", leaf,
                               one.chosen_steps(), one.steps()),
                   prune_leaf(tree, leaf), 0);
}

std::vector<double> parameters_of(std::int32_t node, tape::Store& store) {
    std::vector<double> all;
    for (std::size_t id = 0; id < store.parameters().size(); ++id) {
        const tape::Parameter& p = store.parameters()[id];
        for (int matrix = 0; matrix < p.matrices && !p.fixed; ++matrix) {
            if (!p.names[static_cast<std::size_t>(matrix)].starts_with(K1::prefix_of(node))) continue;
            const std::vector<float> values = store.read_parameter(static_cast<tape::ParameterId>(id), matrix, 0);
            all.insert(all.end(), values.begin(), values.end());
        }
    }
    return all;
}

double cosine(const std::vector<double>& a, const std::vector<double>& b) {
    double ab = 0, aa = 0, bb = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        ab += a[i] * b[i];
        aa += a[i] * a[i];
        bb += b[i] * b[i];
    }
    return ab / std::sqrt(aa * bb);
}

StructureChange merge(const Tree& tree, tape::Store& store, std::int64_t least) {
    if (tree.nodes() <= least)
        return nothing(fmt::format("the tree has {} nodes, structure.least_nodes = {}", tree.nodes(), least));
    double best = -2;
    std::int32_t first = 0, second = 0;
    std::vector<std::pair<std::int32_t, std::vector<double>>> leaves;
    for (const std::int32_t n : leaves_of(tree)) leaves.emplace_back(n, parameters_of(n, store));
    for (auto a = leaves.begin(); a != leaves.end(); ++a)
        for (auto b = a + 1; b != leaves.end(); ++b) {
            if (tree.parent[static_cast<std::size_t>(a->first)] != tree.parent[static_cast<std::size_t>(b->first)]) continue;
            const double similarity = cosine(a->second, b->second);
            if (!(similarity > best)) continue;
            best = similarity;
            first = a->first;
            second = b->first;
        }
    if (second == 0) return nothing("no two leaves are siblings");
    return changed(
        fmt::format("leaves {} and {} become one: the cosine {:.4f} of their parameters is the largest of all sibling leaves",
                    first, second, best),
        merge_leaves(tree, first, second), 0);
}

StructureChange reorganise(const Tree& tree, const Statistics& statistics) {
    struct Parent {
        std::int32_t node, least_leaf;
        double rate;  ///< mean over its leaves
        std::size_t children;
    };
    const auto rate = [&](std::int32_t n) { return statistics[static_cast<std::size_t>(n)].rate(); };
    double widest = 0;
    Parent from{}, to{};
    for (const std::vector<std::int32_t>& level : tree.levels()) {
        std::vector<Parent> parents;
        for (const std::int32_t node : level) {
            const std::vector<std::int32_t> children = tree.children(node);
            std::vector<std::int32_t> leaves;
            double sum = 0;
            for (const std::int32_t child : children)
                if (tree.is_leaf(child)) {
                    leaves.push_back(child);
                    sum += rate(child);
                }
            if (leaves.empty()) continue;
            parents.push_back(
                {node, *std::ranges::min_element(leaves, {}, rate), sum / static_cast<double>(leaves.size()), children.size()});
        }
        for (const Parent& giving : parents)
            for (const Parent& taking : parents)
                if (giving.children > 1 && taking.rate - giving.rate > widest) {
                    widest = taking.rate - giving.rate;
                    from = giving;
                    to = taking;
                }
    }
    if (widest == 0) return nothing("no parent's leaves are chosen more often than those of another on its level");
    return changed(fmt::format("leaf {} moves from node {}, whose leaves {:.1f}% of the steps chose, to node {} with {:.1f}%",
                               from.least_leaf, from.node, 100 * from.rate, to.node, 100 * to.rate),
                   move_leaf(tree, from.least_leaf, to.node), 0);
}

StructureChange propose(const std::string& operation, const Model& model, tape::Store& store, const base::Recipe& recipe) {
    const auto& k1 = static_cast<const K1&>(model);
    const Tree& tree = k1.config().tree;
    const Statistics statistics = read_statistics(k1, store, 0);
    const std::int64_t least = recipe.integer("structure.least_nodes"), most = recipe.integer("structure.most_nodes");
    if (operation == "grow") return grow(tree, statistics, most, recipe.real("structure.noise"));
    if (operation == "prune") return prune(tree, statistics, least);
    if (operation == "merge") return merge(tree, store, least);
    return reorganise(tree, statistics);
}

}  // namespace

void transfer_nodes(const Reshaped& change, double noise, tape::Store& from, tape::Store& to) {
    const std::map<std::string, Tensor> before = tensors_of(from);
    const ops::MemberState state = from.read_states().front();
    std::uint32_t stream = 0;
    for (const auto& [name, tensor] : tensors_of(to)) {
        const Source source = source_of(name, change);
        const bool fixed = to.parameters()[static_cast<std::size_t>(tensor.id)].fixed;
        ++stream;
        Values values = mean_of(source, before, from, Arena::value);
        if (fixed && source.begins_anew()) std::ranges::fill(values, 0.0f);
        if (!fixed && source.grown) add_noise(values, noise, state, stream);
        to.write_parameter(tensor.id, tensor.matrix, 0, values);
        for (const auto& [arena, present] : {std::pair{Arena::first_moment, to.first_moment().present()},
                                             std::pair{Arena::second_moment, to.second_moment().present()}}) {
            if (fixed || !present) continue;
            values = mean_of(source, before, from, arena);
            if (source.grown) std::ranges::fill(values, 0.0f);
            to.write_parameter(tensor.id, tensor.matrix, 0, values, arena);
        }
    }
    to.refresh_copies();
    transfer_groups(change, from, to);
}

Structure tree_structure() {
    Structure structure;
    structure.operations = {"grow", "prune", "merge", "reorganise"};
    structure.keys = {"model.tree", "model.weights"};
    structure.add_keys = [](base::Schema& keys) {
        keys.integer("structure.least_nodes", 3, "prune and merge leave at least so many").between(1, ops::kMostNodes);
        keys.integer("structure.most_nodes", 64, "grow makes at most so many").between(1, ops::kMostNodes);
        keys.real("structure.noise", 0.01, "grow: deviation of a copy from its origin, as a share of each tensor's RMS")
            .between(0, 1);
    };
    structure.propose = propose;
    return structure;
}

}  // namespace millrace::models
