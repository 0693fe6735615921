#pragma once
// The report on the nodes of a run: nodes.json, and a picture of each member's tree, nodes.svg (of the second member
// nodes-001.svg). docs/trees.md says what the keys mean.

#include "models/capabilities.h"
#include "models/k1/node_statistics.h"

namespace millrace::models {

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
