#include "models/k1/node_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "models/k1/information.h"

namespace millrace::models {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDraws = 200;

/// Parameters that are trained: of every node, and in the last entry of none.
std::vector<std::int64_t> parameter_counts(const K1& model, const tape::Store& store) {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(model.config().tree.nodes()) + 1);
    for (const tape::Parameter& p : store.parameters())
        for (std::size_t i = 0; i < p.group_ids.size() && !p.fixed; ++i) {
            const std::string& group = store.groups()[static_cast<std::size_t>(p.group_ids[i])].name;
            std::size_t node = 0;
            while (node + 1 < counts.size() && K1::group_of(static_cast<std::int32_t>(node)) != group) ++node;
            counts[node] += std::int64_t{p.rows} * p.cols;
        }
    return counts;
}

std::vector<std::int32_t> path_to(std::int32_t node, const Tree& tree) {
    std::vector<std::int32_t> path;
    for (std::int32_t n = node; n >= 0; n = tree.parent[static_cast<std::size_t>(n)]) path.push_back(n);
    std::ranges::reverse(path);
    return path;
}

Json json_of(const NodeFigures& node) {
    return {{"node", node.node},
            {"parent", node.parent},
            {"level", node.level},
            {"weight", node.weight},
            {"parameters", node.parameters},
            {"updates", node.counted.updates},
            {"chosen", node.counted.chosen_steps()},
            {"steps", node.counted.steps()},
            {"share", node.counted.rate()},
            {"recent_norm", node.counted.recent},
            {"worst", node.counted.worst},
            {"chosen_by_label", node.counted.chosen},
            {"steps_by_label", node.counted.seen},
            {"information_bits", node.information},
            {"shuffled_bits", node.shuffled},
            {"shuffled_bits_95", node.shuffled_high},
            {"p", node.p}};
}

Json json_of(const NodeReport& report) {
    Json json{{"steps", report.steps},
              {"updated_share", report.updated_share},
              {"information_bits", report.information},
              {"shuffled_bits", report.shuffled}};
    json["levels"] = json["paths"] = json["nodes"] = Json::array();
    for (const LevelFigures& level : report.levels)
        json["levels"].push_back({{"level", level.level}, {"nodes", level.nodes}, {"gini", level.gini}});
    for (const PathFigures& path : report.paths)
        json["paths"].push_back({{"path", path.nodes}, {"steps", path.steps}, {"share", path.share}});
    for (const NodeFigures& node : report.nodes) json["nodes"].push_back(json_of(node));
    return json;
}

std::string summary_of(const NodeReport& report) {
    std::string levels;
    for (const LevelFigures& level : report.levels)
        levels += fmt::format("{}{:.2f} on level {}", levels.empty() ? "" : ", ", level.gini, level.level);
    return fmt::format(
        "{} nodes: {:.1f}% of the parameters updated per step; Gini {}; error path {} in {:.1f}% of the steps; "
        "choice and label share {:.4f} bits, {:.4f} when shuffled",
        report.nodes.size(), 100 * report.updated_share, levels, fmt::join(report.paths.front().nodes, "-"),
        100 * report.paths.front().share, report.information, report.shuffled);
}

}  // namespace

NodeReport node_report(const K1& model, tape::Store& store, int member) {
    const Tree& tree = model.config().tree;
    const std::vector<NodeStatistics> counted = read_statistics(model, store, member);
    const std::vector<std::int64_t> parameters = parameter_counts(model, store);
    NodeReport report;
    const K1Config& config = model.config();
    report.labels = config.label_names.empty() ? fmt::format("{} parts of an epoch", config.labels.count)
                                               : fmt::format("{}", fmt::join(config.label_names, ", "));
    report.steps = counted.front().steps();
    auto updated = static_cast<double>(parameters.back()), all = updated;
    for (std::int32_t n = 0; n < tree.nodes(); ++n) {
        const auto at = static_cast<std::size_t>(n);
        NodeFigures node{n,
                         tree.parent[at],
                         static_cast<std::int32_t>(path_to(n, tree).size()) - 1,
                         tree.weight_of(n),
                         parameters[at],
                         counted[at]};
        node.information = information(node.counted.chosen, node.counted.seen);
        const Shuffled shuffled =
            shuffled_information(node.counted.chosen, node.counted.seen, static_cast<std::uint64_t>(n) + 1, kDraws);
        node.shuffled = shuffled.mean;
        node.shuffled_high = shuffled.high;
        node.p = shuffled.p;
        report.information += node.information;
        report.shuffled += node.shuffled;
        updated += static_cast<double>(node.parameters) * node.counted.rate();
        all += static_cast<double>(node.parameters);
        if (tree.is_leaf(n))
            report.paths.push_back(
                {path_to(n, tree), node.counted.worst, node.counted.steps() > 0 ? node.counted.worst / node.counted.steps() : 0});
        report.nodes.push_back(std::move(node));
    }
    report.updated_share = updated / all;
    std::ranges::stable_sort(report.paths, std::greater(), &PathFigures::share);
    const std::vector<std::vector<std::int32_t>> levels = tree.levels();
    for (std::size_t l = 1; l < levels.size(); ++l) {
        std::vector<double> shares;
        for (const std::int32_t n : levels[l]) shares.push_back(counted[static_cast<std::size_t>(n)].rate());
        report.levels.push_back(
            {static_cast<std::int32_t>(l), static_cast<std::int32_t>(levels[l].size()), gini(std::move(shares))});
    }
    return report;
}

RunReport report_nodes(const Model& model, tape::Store& store) {
    const auto& k1 = static_cast<const K1&>(model);
    RunReport made;
    Json json{{"labels", k1.config().labels.count}, {"label_names", k1.config().label_names}, {"members", Json::array()}};
    for (int member = 0; member < store.members(); ++member) {
        const NodeReport report = node_report(k1, store, member);
        json["members"].push_back(json_of(report));
        made.files.push_back(
            {member == 0 ? "nodes.svg" : fmt::format("nodes-{:03}.svg", member),
             nodes_svg(report, member == 0 && store.members() == 1 ? "Nodes" : fmt::format("Nodes of member {}", member))});
        if (member == 0) made.summary = summary_of(report);
    }
    made.files.push_back({"nodes.json", base::json_text(json, 1)});
    return made;
}

}  // namespace millrace::models
