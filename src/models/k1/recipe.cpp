#include <fmt/format.h>

#include <algorithm>

#include "base/split.h"
#include "models/families.h"
#include "models/go_on.h"
#include "models/k1/k1.h"
#include "models/k1/node_report.h"
#include "models/k1/structure.h"

namespace millrace::models {
namespace {

using ops::ChoosePolicy;

struct NamedPolicy {
    std::string_view name;
    ChoosePolicy policy;
};
constexpr NamedPolicy kPolicies[] = {
    {"topk", ChoosePolicy::topk},
    {"random_k", ChoosePolicy::random_k},
    {"dense", ChoosePolicy::dense},
    {"path", ChoosePolicy::path},
    {"path_cooldown", ChoosePolicy::path_cooldown},
    {"path_balance", ChoosePolicy::path_balance},
    {"path_dynamic", ChoosePolicy::path_dynamic},
};

std::string policy_names() {
    std::string names;
    for (const NamedPolicy& one : kPolicies) names += (names.empty() ? "" : ", ") + std::string(one.name);
    return names;
}

/// "topk" or "topk,dense".
base::Result<std::vector<ChoosePolicy>> policies_of(const std::string& text) {
    std::vector<ChoosePolicy> policies;
    for (const std::string& name : base::split(text, ',')) {
        const auto found = std::ranges::find(kPolicies, name, &NamedPolicy::name);
        if (found == std::end(kPolicies))
            return base::Error{fmt::format("model.policy has '{}'; one of {} would be right", name, policy_names())};
        policies.push_back(found->policy);
    }
    return policies;
}

base::Schema k1_schema(const std::string& preset) {
    using Counts = std::vector<std::int64_t>;
    base::Schema keys;
    add_language_keys(keys);
    const bool debug = preset == "debug";
    if (debug) {
        keys.at("width").initial = std::int64_t{32};
        keys.at("inner").initial = std::int64_t{64};
    }
    keys.integers("branching",
                  debug              ? Counts{2, 2}
                  : preset == "deep" ? Counts{4, 3, 2}
                                     : Counts{3, 3},
                  "children of a node, by level")
        .between(1, 64)
        .length(1, 8);
    keys.integers("tree", {}, "parent of every node, -1 for the root, parents before children; empty: model.branching")
        .between(-1, ops::kMostNodes - 1)
        .length(0, ops::kMostNodes);
    keys.reals("weights", {}, "weight of every node in the mean over siblings; empty: all alike")
        .above(0)
        .length(0, ops::kMostNodes);
    keys.choice("topology", "tree", {"tree", "level"}, "tree: a node reads its parent; level: the mean over the level above");
    keys.text("policy", "topk",
              "which nodes a step updates: " + policy_names() +
                  "; dense and random_k are controls. One for all members, or one of each, with commas")
        .by_member();
    keys.integer("k", debug ? 3 : 5, "nodes that topk and random_k take").between(1, ops::kMostNodes);
    keys.choice("update", "freeze", {"freeze", "zero_grad"}, "nodes not chosen keep their bits, or get a gradient of zero");
    keys.integer("cooldown", 50, "path_cooldown, path_balance: steps before a node is updated again").at_least(0);
    keys.real("explore", 0.15, "path_cooldown: share of steps that take a random child").between(0, 1);
    return keys;
}

base::Result<Tree> tree_of(const base::Recipe& recipe) {
    Tree tree;
    for (const std::int64_t parent : recipe.integers("model.tree")) {
        const std::int32_t node = tree.nodes();
        if (node == 0 ? parent != -1 : parent < 0 || parent >= node)
            return recipe.bad("model.tree", fmt::format("model.tree has {} as the parent of node {}; {} would be right", parent,
                                                        node, node == 0 ? "-1" : fmt::format("0 to {}", node - 1)));
        tree.parent.push_back(static_cast<std::int32_t>(parent));
    }
    if (tree.parent.empty()) tree = Tree::regular(recipe.integers("model.branching"));
    if (tree.nodes() > ops::kMostNodes)
        return base::Error{
            fmt::format("model.branching makes {} nodes; at most {} would be right", tree.nodes(), ops::kMostNodes)};
    tree.weight = recipe.reals("model.weights");
    if (!tree.weight.empty() && tree.weight.size() != tree.parent.size())
        return recipe.bad("model.weights", fmt::format("model.weights has {} entries for {} nodes; one of each would be right",
                                                       tree.weight.size(), tree.nodes()));
    return tree;
}

/// Where domains are learned one after the other, the label of a step is its domain.
void set_labels(K1Config& config, const base::Recipe& recipe) {
    const std::string domains = recipe.has("data.domains") ? recipe.text("data.domains") : "";
    if (!domains.empty()) config.label_names = base::split(domains, ',');
    if (const auto count = std::ssize(config.label_names); count > 0)
        config.labels = {static_cast<std::int32_t>(count), 1, static_cast<std::uint32_t>(recipe.integer("train.epochs") / count)};
}

base::Result<std::unique_ptr<Model>> make_k1(const base::Recipe& recipe, const data::Fields& fields) {
    K1Config config;
    config.language = language_config(recipe, fields);
    MILLRACE_TRY(check(config.language));
    MILLRACE_SET(config.tree, tree_of(recipe));
    config.topology = recipe.text("model.topology") == "level" ? Topology::level : Topology::tree;
    MILLRACE_SET(config.policy, policies_of(recipe.text("model.policy")));
    config.count = static_cast<std::int32_t>(recipe.integer("model.k"));
    config.zero_grad = recipe.text("model.update") == "zero_grad";
    config.cooldown = static_cast<std::uint32_t>(recipe.integer("model.cooldown"));
    config.explore = static_cast<float>(recipe.real("model.explore"));
    set_labels(config, recipe);
    return std::unique_ptr<Model>(std::make_unique<K1>(std::move(config)));
}

}  // namespace

Family k1_family() {
    Family family = language_family("k1");
    family.presets = {"debug", "base", "deep", "continual"};
    family.schema = k1_schema;
    family.make = make_k1;
    family.go_on = [](const PromptRequest& request) { return go_on(request, make_k1); };
    family.structure = tree_structure();
    family.run_report = report_nodes;
    return family;
}

}  // namespace millrace::models
