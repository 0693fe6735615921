#include "search/trial.h"

#include <algorithm>
#include <numeric>

#include "search/stream.h"

namespace millrace::search {
namespace {

constexpr int64_t kTrees = 64;
constexpr double kExplained = 0.1;  // of the variance; noise explains less
constexpr size_t kFewest = 8;       // trials
constexpr size_t kSmallestLeaf = 2;
constexpr size_t kMostRows = 2000;  // newest trials that are looked at: sorting makes a tree n log^2 n

struct Table {
    std::vector<std::vector<double>> rows;  // [trial][parameter] in the unit cube
    std::vector<double> targets;            // ranks in [0, 1]
};

/// Predictions of each row by the trees that have not seen it.
struct UnseenPredictions {
    std::vector<double> sums;
    std::vector<double> counts;

    /// Whether their means explain enough of the targets' variance.
    [[nodiscard]] bool are_telling(const std::vector<double>& targets) const {
        const double mean = std::accumulate(targets.begin(), targets.end(), 0.0) / static_cast<double>(targets.size());
        double error = 0, variance = 0;
        for (size_t i = 0; i < targets.size(); ++i) {
            if (counts[i] == 0) continue;
            const double off = sums[i] / counts[i] - targets[i], spread = targets[i] - mean;
            error += off * off;
            variance += spread * spread;
        }
        return error < (1 - kExplained) * variance;
    }
};

/// A regression tree grown on a bootstrap sample.
class Tree {
public:
    Tree(const Table& table, std::vector<size_t> sample, Stream& stream) : table_(table) { grow(std::move(sample), stream); }

    [[nodiscard]] double predict(const std::vector<double>& row) const {
        size_t at = 0;
        while (nodes_[at].left != 0) at = row[nodes_[at].parameter] <= nodes_[at].threshold ? nodes_[at].left : nodes_[at].right;
        return nodes_[at].mean;
    }

private:
    struct Node {
        double mean = 0;
        double threshold = 0;
        size_t parameter = 0;
        size_t left = 0;  ///< 0: a leaf
        size_t right = 0;
    };
    struct Split {
        double gain = 1e-12;
        double threshold = 0;
        size_t parameter = 0;
        bool is_found = false;
    };

    size_t grow(std::vector<size_t> sample, Stream& stream) {
        const size_t self = nodes_.size();
        nodes_.emplace_back();
        double sum = 0;
        for (const size_t i : sample) sum += table_.targets[i];
        nodes_[self].mean = sum / static_cast<double>(sample.size());
        Split best;
        const size_t parameters = table_.rows.front().size();
        for (size_t p = 0; p < parameters; ++p) {
            // Trees that all begin with the strongest parameter would never look at the others.
            if (parameters > 1 && stream.uniform() > 2.0 / 3) continue;
            std::sort(sample.begin(), sample.end(), [&](size_t a, size_t b) { return table_.rows[a][p] < table_.rows[b][p]; });
            consider(sample, p, sum, best);
        }
        if (!best.is_found) return self;
        std::vector<size_t> left, right;
        for (const size_t i : sample) (table_.rows[i][best.parameter] <= best.threshold ? left : right).push_back(i);
        nodes_[self].parameter = best.parameter;
        nodes_[self].threshold = best.threshold;
        const size_t left_node = grow(std::move(left), stream);
        const size_t right_node = grow(std::move(right), stream);
        nodes_[self].left = left_node;
        nodes_[self].right = right_node;
        return self;
    }

    /// The split of a sample, sorted by parameter `p`, that takes most of the squared error away.
    void consider(const std::vector<size_t>& sorted, size_t p, double sum, Split& best) const {
        const auto n = static_cast<double>(sorted.size());
        double left = 0;
        for (size_t i = 0; i + 1 < sorted.size(); ++i) {
            left += table_.targets[sorted[i]];
            const double here = table_.rows[sorted[i]][p], next = table_.rows[sorted[i + 1]][p];
            if (here == next || i + 1 < kSmallestLeaf || sorted.size() - i - 1 < kSmallestLeaf) continue;
            const auto count = static_cast<double>(i + 1);
            const double right = sum - left;
            const double gain = left * left / count + right * right / (n - count) - sum * sum / n;
            if (gain > best.gain) best = {gain, here, p, true};
        }
    }

    const Table& table_;
    std::vector<Node> nodes_;
};

Table table_of(const Space& space, std::span<const Trial> trials, size_t objective) {
    std::vector<const Trial*> known;
    for (const Trial& trial : trials)
        if (trial.state == TrialState::complete && all_finite(trial.values) && objective < trial.values.size())
            known.push_back(&trial);
    if (known.size() > kMostRows) known.erase(known.begin(), known.end() - static_cast<std::ptrdiff_t>(kMostRows));
    Table table;
    for (const Trial* trial : known) {
        table.rows.push_back(space.to_unit(trial->configuration));
        const auto below = std::count_if(known.begin(), known.end(),
                                         [&](const Trial* other) { return other->values[objective] < trial->values[objective]; });
        table.targets.push_back(static_cast<double>(below) / static_cast<double>(known.size()));
    }
    return table;
}

}  // namespace

std::vector<double> parameter_importance(const Space& space, std::span<const Trial> trials, size_t objective, uint64_t seed) {
    const Table table = table_of(space, trials, objective);
    const size_t count = table.rows.size();
    if (count < kFewest) return {};
    std::vector<double> growth(space.size(), 0);
    UnseenPredictions predictions{std::vector<double>(count, 0), std::vector<double>(count, 0)};
    for (int64_t number = 0; number < kTrees; ++number) {
        Stream stream(seed, number, Purpose::forest);
        std::vector<size_t> sample;
        std::vector<bool> is_seen(count, false);
        for (size_t i = 0; i < count; ++i) {
            sample.push_back(stream.below(count));
            is_seen[sample.back()] = true;
        }
        const Tree tree(table, sample, stream);
        std::vector<size_t> unseen;
        for (size_t i = 0; i < count; ++i) {
            if (is_seen[i]) continue;
            unseen.push_back(i);
            predictions.sums[i] += tree.predict(table.rows[i]);
            predictions.counts[i] += 1;
        }
        for (size_t p = 0; p < space.size(); ++p) {
            std::vector<size_t> shuffled = unseen;
            for (size_t i = shuffled.size(); i > 1; --i) std::swap(shuffled[i - 1], shuffled[stream.below(i)]);
            for (size_t i = 0; i < unseen.size(); ++i) {
                std::vector<double> row = table.rows[unseen[i]];
                const double target = table.targets[unseen[i]], before = tree.predict(row) - target;
                row[p] = table.rows[shuffled[i]][p];
                const double after = tree.predict(row) - target;
                growth[p] += after * after - before * before;
            }
        }
    }
    if (!predictions.are_telling(table.targets)) return std::vector<double>(space.size(), 0);
    for (double& share : growth) share = std::max(share, 0.0);
    const double sum = std::accumulate(growth.begin(), growth.end(), 0.0);
    for (double& share : growth) share = sum > 0 ? share / sum : 0;
    return growth;
}

}  // namespace millrace::search
