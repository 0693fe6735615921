#include "models/k1/node_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/json.h"
#include "base/philox.h"

namespace millrace::models {
namespace {

double sum_of(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

double log_binomial(double n, double k) { return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1); }

/// How many of `taken` things drawn from `all` are among the `marked`. Sums probabilities outwards from the likeliest number.
double hypergeometric(double all, double marked, double taken, double uniform) {
    const double low = std::max(0.0, taken + marked - all), high = std::min(taken, marked);
    const double mode = std::clamp(std::floor((taken + 1) * (marked + 1) / (all + 2)), low, high);
    const double top = std::exp(log_binomial(marked, mode) + log_binomial(all - marked, taken - mode) - log_binomial(all, taken));
    double below = mode, above = mode, below_p = top, above_p = top, left = uniform - top;
    while (left > 0 && (below > low || above < high)) {
        if (above < high) {
            above_p *= (marked - above) * (taken - above) / ((above + 1) * (all - marked - taken + above + 1));
            above += 1;
            left -= above_p;
            if (left <= 0) return above;
        }
        if (below > low) {
            below_p *= below * (all - marked - taken + below) / ((marked - below + 1) * (taken - below + 1));
            below -= 1;
            left -= below_p;
            if (left <= 0) return below;
        }
        if (above_p + below_p < 1e-18) break;  // what is left of `uniform` is rounding
    }
    return mode;
}

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

std::vector<NodeStatistics> read_statistics(const K1& model, tape::Store& store, int member) {
    const std::vector<ops::GroupState> table = store.read_groups();
    const std::size_t first = static_cast<std::size_t>(member) * store.groups().size();
    std::vector<NodeStatistics> all;
    for (std::int32_t node = 0; node < model.config().tree.nodes(); ++node) {
        const std::vector<float> low = store.read_parameter(model.statistics(), node, member),
                                 carries = store.read_parameter(model.carries(), node, member);
        std::vector<double> row(low.begin(), low.end());
        for (std::size_t i = 0; i < carries.size(); ++i) row[i + ops::kWorst] += double{ops::kCarry} * double{carries[i]};
        const auto labels = row.begin() + ops::kLabelColumn, seen = labels + model.config().labels.count;
        NodeStatistics one;
        const auto group = std::ranges::find(store.groups(), K1::group_of(node), &tape::ParameterGroup::name);
        one.updates = table[first + static_cast<std::size_t>(group - store.groups().begin())].applied;
        one.recent = row[ops::kRecent];
        one.worst = row[ops::kWorst];
        one.chosen.assign(labels, seen);
        one.seen.assign(seen, row.end());
        all.push_back(std::move(one));
    }
    return all;
}

double gini(std::vector<double> values) {
    const double sum = sum_of(values), n = static_cast<double>(values.size());
    if (sum <= 0) return 0;
    std::ranges::sort(values);
    double weighted = 0;
    for (std::size_t i = 0; i < values.size(); ++i) weighted += static_cast<double>(i + 1) * values[i];
    return 2 * weighted / (n * sum) - (n + 1) / n;
}

double information(const std::vector<double>& chosen, const std::vector<double>& seen) {
    const double steps = sum_of(seen), taken = sum_of(chosen);
    double bits = 0;
    const auto add = [&](double both, double row, double column) {
        if (both > 0) bits += both / steps * std::log2(both * steps / (row * column));
    };
    for (std::size_t i = 0; i < seen.size(); ++i) {
        add(chosen[i], taken, seen[i]);
        add(seen[i] - chosen[i], steps - taken, seen[i]);
    }
    return std::max(0.0, bits);
}

Shuffled shuffled_information(const std::vector<double>& chosen, const std::vector<double>& seen, std::uint64_t seed, int draws) {
    const double measured = information(chosen, seen);
    std::vector<double> all;
    for (int draw = 0; draw < draws; ++draw) {
        std::vector<double> dealt;
        double steps = sum_of(seen), taken = sum_of(chosen);
        for (std::size_t i = 0; i < seen.size(); ++i) {
            const double uniform = base::uniform01(base::random_bits(seed, static_cast<std::uint32_t>(draw), 0, 0, i));
            dealt.push_back(hypergeometric(steps, seen[i], taken, uniform));
            steps -= seen[i];
            taken -= dealt.back();
        }
        all.push_back(information(dealt, seen));
    }
    std::ranges::sort(all);
    // Sums of the same terms in another order may differ in the last bits.
    const auto as_large = std::ranges::count_if(all, [&](double bits) { return bits >= measured - 1e-12; });
    return {sum_of(all) / static_cast<double>(draws), all[static_cast<std::size_t>((draws - 1) * 95 / 100)],
            static_cast<double>(as_large + 1) / static_cast<double>(draws + 1)};
}

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
