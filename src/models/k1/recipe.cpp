#include <fmt/format.h>

#include <algorithm>

#include "base/split.h"
#include "models/k1/k1.h"
#include "models/k1/node_report.h"
#include "models/language_model.h"
#include "models/registry.h"

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

struct K1Choice {
    K1Config config;
    std::vector<std::int64_t> branching{3, 3};
    std::vector<std::int32_t> parents = {};
    std::vector<double> weights = {};
    std::string policy = "topk";
};

void k1_keys(Keys& keys, K1Choice& choice) {
    K1Config& c = choice.config;
    language_keys(keys, c.language);
    keys.add("branching", choice.branching, "children of a node, by level").between(1, 64).length(1, 8);
    keys.add("tree", choice.parents, "parent of every node, -1 for the root, parents before children; empty: model.branching")
        .between(-1, ops::kMostNodes - 1)
        .length(0, ops::kMostNodes);
    keys.add("weights", choice.weights, "weight of every node in the mean over siblings; empty: all alike")
        .above(0)
        .length(0, ops::kMostNodes);
    keys.add_choice("topology", c.topology, {{"tree", Topology::tree}, {"level", Topology::level}},
                    "tree: a node reads its parent; level: the mean over the level above");
    keys.add("policy", choice.policy,
             "which nodes a step updates: " + policy_names() +
                 "; dense and random_k are controls. One for all members, or one of each, with commas")
        .by_member();
    keys.add("k", c.count, "nodes that topk and random_k take").between(1, ops::kMostNodes);
    keys.add_choice("update", c.zero_grad, {{"freeze", false}, {"zero_grad", true}},
                    "nodes not chosen keep their bits, or get a gradient of zero");
    keys.add("cooldown", c.cooldown, "path_cooldown, path_balance: steps before a node is updated again").at_least(0);
    keys.add("explore", c.explore, "path_cooldown: share of steps that take a random child").between(0, 1);
}

base::Schema k1_schema(const std::string& preset) {
    K1Choice choice;
    if (preset == "deep") choice.branching = {4, 3, 2};
    if (preset == "debug") {
        choice.branching = {2, 2};
        choice.config.language.width = 32;
        choice.config.language.inner = 64;
        choice.config.count = 3;
    }
    return schema_of(k1_keys, choice);
}

base::Result<Tree> tree_of(const base::Recipe& recipe, const K1Choice& choice) {
    Tree tree;
    for (const std::int32_t parent : choice.parents) {
        const std::int32_t node = tree.nodes();
        if (node == 0 ? parent != -1 : parent < 0 || parent >= node)
            return recipe.bad("model.tree", fmt::format("model.tree has {} as the parent of node {}; {} would be right", parent,
                                                        node, node == 0 ? "-1" : fmt::format("0 to {}", node - 1)));
        tree.parent.push_back(parent);
    }
    if (tree.parent.empty()) tree = Tree::regular(choice.branching);
    if (tree.nodes() > ops::kMostNodes)
        return base::Error{
            fmt::format("model.branching makes {} nodes; at most {} would be right", tree.nodes(), ops::kMostNodes)};
    tree.weight = choice.weights;
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
    K1Choice choice = read_keys(k1_keys, recipe);
    K1Config& config = choice.config;
    take_fields(config.language, fields);
    MILLRACE_TRY(check(config.language));
    MILLRACE_SET(config.tree, tree_of(recipe, choice));
    MILLRACE_SET(config.policy, policies_of(choice.policy));
    set_labels(config, recipe);
    return std::unique_ptr<Model>(std::make_unique<K1>(std::move(config)));
}

}  // namespace

Family k1_family() {
    Family family = language_family("k1");
    family.presets = {"debug", "base", "deep", "continual"};
    family.schema = k1_schema;
    family.make = make_k1;
    family.structure = tree_structure();
    family.run_report = report_nodes;
    return family;
}

}  // namespace millrace::models
