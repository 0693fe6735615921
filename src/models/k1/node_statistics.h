#pragma once
// What the steps of a run counted of its nodes (ops/choose.h), read from a store.

#include <cstdint>
#include <vector>

#include "models/k1/k1.h"

namespace millrace::models {

struct NodeStatistics {
    std::uint32_t updates = 0;         ///< steps applied: the count of Adam's bias correction, which a merged node inherits
    double recent = 0;                 ///< moving average of the gradient's norm; 0: no step was counted
    double worst = 0;                  ///< steps whose path of largest norms ended here
    std::vector<double> chosen, seen;  ///< by label: steps that chose the node, and all since the node was made

    [[nodiscard]] double chosen_steps() const;
    [[nodiscard]] double steps() const;
    [[nodiscard]] double rate() const { return steps() > 0 ? chosen_steps() / steps() : 0; }  ///< share of steps that chose it
};

/// Of every node of one member. Waits for the device.
std::vector<NodeStatistics> read_statistics(const K1& model, tape::Store& store, int member);

}  // namespace millrace::models
