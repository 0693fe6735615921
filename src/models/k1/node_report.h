#pragma once
// What the steps of a run counted of its nodes (k1/ops/nodes.h), read from a store: how unevenly they were chosen, and how much a
// choice says about a label, beside the same with shuffled labels. The report on them: nodes.json, and a picture of each member's
// tree, nodes.svg (of the second member nodes-001.svg). docs/trees.md says what the keys mean.

#include <cstdint>
#include <numeric>
#include <vector>

#include "models/capabilities.h"
#include "models/k1/k1.h"

namespace millrace::models {

struct NodeStatistics {
    std::uint32_t updates = 0;         ///< steps applied: the count of Adam's bias correction, which a merged node inherits
    double recent = 0;                 ///< moving average of the gradient's norm; 0: no step was counted
    double worst = 0;                  ///< steps whose path of largest norms ended here
    std::vector<double> chosen, seen;  ///< by label: steps that chose the node, and all since the node was made

    [[nodiscard]] double chosen_steps() const { return std::accumulate(chosen.begin(), chosen.end(), 0.0); }
    [[nodiscard]] double steps() const { return std::accumulate(seen.begin(), seen.end(), 0.0); }
    [[nodiscard]] double rate() const { return steps() > 0 ? chosen_steps() / steps() : 0; }  ///< share of steps that chose it
};

/// Of every node of one member. Waits for the device.
std::vector<NodeStatistics> read_statistics(const K1& model, tape::Store& store, int member);

/// Gini's coefficient: 0 when all are alike, (n - 1) / n when one has all; 0 when there is nothing to spread.
double gini(std::vector<double> values);

/// Mutual information in bits of a step's label and of whether the step was chosen. By label: steps that were chosen, and all.
double information(const std::vector<double>& chosen, const std::vector<double>& seen);

struct Shuffled {
    double mean = 0, high = 0;  ///< bits; `high`: 95 of 100 are at most that
    double p = 1;               ///< share of shuffles with at least the information that was measured, the measured one counted
};
/// The same when the labels are dealt to the steps anew: `draws` times, whole counts. Chosen steps of a label then follow the
/// hypergeometric distribution, so the steps themselves need not be kept.
Shuffled shuffled_information(const std::vector<double>& chosen, const std::vector<double>& seen, std::uint64_t seed, int draws);

/// What is said about one node. Information is in bits per step.
struct NodeFigures {
    std::int32_t node = 0, parent = -1, level = 0;
    double weight = 1;
    std::int64_t parameters = 0;
    NodeStatistics counted;
    double information = 0, shuffled = 0, shuffled_high = 0, p = 1;
};
struct LevelFigures {
    std::int32_t level = 0, nodes = 0;
    double gini = 0;  ///< of the shares of steps that chose its nodes
};
struct PathFigures {
    std::vector<std::int32_t> nodes;  ///< from the root to the leaf
    double steps = 0, share = 0;      ///< the share is of the steps since its leaf was made
};
/// Of one member.
struct NodeReport {
    std::string labels;  ///< what they are: "8 parts of an epoch"
    double steps = 0;
    double updated_share = 0;  ///< of the trained parameters, in the mean over steps
    std::vector<NodeFigures> nodes;
    std::vector<LevelFigures> levels;  ///< the root's left out: every path holds it
    std::vector<PathFigures> paths;    ///< that the largest norms took, the most frequent first
    double information = 0, shuffled = 0;
};

/// Waits for the device.
NodeReport node_report(const K1& model, tape::Store& store, int member);
std::string nodes_svg(const NodeReport& report, const std::string& title);

RunReport report_nodes(const Model& model, tape::Store& store);

}  // namespace millrace::models
