#include "models/k1/node_statistics.h"

#include <algorithm>
#include <numeric>

namespace millrace::models {

double NodeStatistics::chosen_steps() const { return std::accumulate(chosen.begin(), chosen.end(), 0.0); }
double NodeStatistics::steps() const { return std::accumulate(seen.begin(), seen.end(), 0.0); }

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

}  // namespace millrace::models
