#pragma once
// The policies of choose_nodes, for host and device.

#include <cmath>

#include "base/philox.h"
#include "models/k1/ops/nodes.h"

namespace millrace::ops {

/// A policy with its settings. The tables lie in host memory on the host and in device memory on a GPU.
struct ChooseRule {
    ChoosePolicy policy = ChoosePolicy::topk;
    int nodes = 0, count = 0;
    bool zero_grad = false;
    std::uint32_t op_number = 0, cooldown = 0, cooling = 1;
    float explore = 0;
    StepLabels labels;
    const std::int32_t *group = nullptr, *parent = nullptr;

    MILLRACE_HD std::uint32_t bits(const MemberState& s, int node) const {
        return base::random_bits(s.seed, s.step, s.micro, op_number, static_cast<std::uint64_t>(node));
    }
    MILLRACE_HD bool takes_path() const {
        return policy != ChoosePolicy::topk && policy != ChoosePolicy::random_k && policy != ChoosePolicy::dense;
    }

    /// The gain of a node where each is judged by itself: whether fewer than `count` are better.
    MILLRACE_HD float gain_of(int node, const MemberState& s, const float* norms) const {
        if (policy == ChoosePolicy::dense) return 1;
        int better = 0;
        for (int other = 0; other < nodes; ++other) {
            const bool first = other < node;
            if (policy == ChoosePolicy::topk)
                better += norms[other] > norms[node] || (norms[other] == norms[node] && first) ? 1 : 0;
            else
                better += bits(s, other) > bits(s, node) || (bits(s, other) == bits(s, node) && first) ? 1 : 0;
        }
        return better < count ? 1.0f : 0.0f;
    }

    MILLRACE_HD bool barred(const MemberState& s, const GroupState& g) const {
        return g.last_applied > 0 && s.step - g.last_applied < cooldown;
    }
    MILLRACE_HD float score(const MemberState& s, const GroupState& g, float norm, float largest) const {
        const auto updates = static_cast<float>(g.applied) + 1;
        return (largest > 0 ? norm / largest : 0) / updates + 0.5f * sqrtf(logf(static_cast<float>(s.step) + 2) / updates);
    }

    /// The child to go on with; -1: a leaf.
    MILLRACE_HD int next(int node, const MemberState& s, const GroupState* groups, const float* norms) const {
        const bool bars = policy == ChoosePolicy::path_cooldown || policy == ChoosePolicy::path_balance;
        int children = 0, free = 0;
        for (int n = node + 1; n < nodes; ++n)
            if (parent[n] == node) {
                ++children;
                free += bars && barred(s, groups[group[n]]) ? 0 : 1;
            }
        if (children == 0) return -1;
        const bool obey = bars && free > 0;
        const int eligible = obey ? free : children;
        const float uniform = base::uniform01(bits(s, nodes + node));
        if (policy == ChoosePolicy::path_balance) return drawn(node, s, groups, norms, obey, uniform);
        // Exploring: the same number chooses which, spread over the unit interval again.
        int random = policy == ChoosePolicy::path_cooldown && uniform < explore
                         ? static_cast<int>(uniform / explore * static_cast<float>(eligible))
                         : -1;
        if (random >= eligible) random = eligible - 1;
        int best = -1, seen = 0;
        for (int n = node + 1; n < nodes; ++n) {
            if (parent[n] != node || (obey && barred(s, groups[group[n]]))) continue;
            if (random >= 0 ? seen == random : best < 0 || norms[n] > norms[best]) best = n;
            ++seen;
        }
        return best;
    }

    /// Gains of the nodes on the path; `gains` begin at 0.
    MILLRACE_HD void walk(const MemberState& s, const GroupState* groups, const float* norms, float* gains) const {
        int leaf = 0;
        float sum = norms[0];
        for (int child = next(0, s, groups, norms); child >= 0; child = next(child, s, groups, norms)) {
            leaf = child;
            sum += norms[child];
        }
        int height = 0;
        for (int n = leaf; n >= 0; n = parent[n], ++height) {
            const float share = sum > 0 ? norms[n] / sum : 0;
            if (policy == ChoosePolicy::path_dynamic)
                gains[n] = height == 0 ? fminf(1, 0.5f + share) : fminf(0.3f, share);
            else
                gains[n] = height == 0 ? 1 : height == 1 ? 0.15f : 0.05f;
        }
    }

    MILLRACE_HD void write(GroupState& g, float gain, float norm) const {
        g.gain = zero_grad ? 1 : gain;
        g.gradient_gain = zero_grad ? gain : 1;
        g.norm = norm;
    }

    /// Counters were moved on by the step's last rows: the end of an epoch is the beginning of the next.
    MILLRACE_HD int label_of(const MemberState& s) const {
        const bool wrapped = s.position == 0;
        if (labels.epochs > 0) {
            const std::uint32_t epoch = wrapped && s.epoch > 0 ? s.epoch - 1 : s.epoch;
            const auto last = static_cast<std::uint32_t>(labels.count - 1);
            return static_cast<int>(epoch / labels.epochs < last ? epoch / labels.epochs : last);
        }
        const std::uint64_t last = (wrapped || s.position > labels.samples ? labels.samples : s.position) - 1;
        return static_cast<int>(last * static_cast<std::uint64_t>(labels.count) / labels.samples);
    }
    /// Whether the path of the largest norms leads from the root to this leaf.
    MILLRACE_HD bool is_worst(int leaf, const float* norms) const {
        for (int n = leaf + 1; n < nodes; ++n)
            if (parent[n] == leaf) return false;
        for (int n = leaf; n > 0; n = parent[n])
            for (int other = parent[n] + 1; other < nodes; ++other)
                if (parent[other] == parent[n] && (norms[other] > norms[n] || (norms[other] == norms[n] && other < n)))
                    return false;
        return true;
    }
    MILLRACE_HD bool counts(const MemberState& s, const float* norms) const {
        bool finite = s.nonfinite == 0;
        for (int n = 0; n < nodes; ++n) finite = finite && norms[n] - norms[n] == 0;
        return finite;
    }
    /// Of a step that counts. The rows are the node's; T is float or double.
    template <class T>
    MILLRACE_HD void note(T* row, T* carries, int node, int label, const GroupState& g, float gain, const float* norms) const {
        const T norm = static_cast<T>(norms[node]);
        row[kRecent] = row[kRecent] == 0 ? norm : row[kRecent] + (norm - row[kRecent]) * static_cast<T>(0.01);
        if (is_worst(node, norms)) count_one(row, carries, kWorst);
        if (gain != 0 && g.trainable != 0) count_one(row, carries, kLabelColumn + label);
        count_one(row, carries, kLabelColumn + labels.count + label);
    }

private:
    template <class T>
    MILLRACE_HD static void count_one(T* row, T* carries, int column) {
        if (row[column] >= kCarry) {  // before it grows: checkpoints without carries have counts up to 2^24
            row[column] -= kCarry;
            carries[column - kWorst] += 1;
        }
        row[column] += 1;
    }
    MILLRACE_HD int drawn(int node, const MemberState& s, const GroupState* groups, const float* norms, bool obey,
                          float uniform) const {
        float largest = 0, top = -1e30f, sum = 0;
        const float cooled = cooling > 0 ? fminf(1, static_cast<float>(s.step) / static_cast<float>(cooling)) : 1;
        const float tau = 3 - 2.5f * cooled;
        const auto eligible = [&](int n) { return parent[n] == node && !(obey && barred(s, groups[group[n]])); };
        for (int n = 0; n < nodes; ++n) largest = fmaxf(largest, norms[n]);
        for (int n = node + 1; n < nodes; ++n)
            if (eligible(n)) top = fmaxf(top, score(s, groups[group[n]], norms[n], largest));
        for (int n = node + 1; n < nodes; ++n)
            if (eligible(n)) sum += expf((score(s, groups[group[n]], norms[n], largest) - top) / tau);
        float left = uniform * sum;
        int chosen = -1;
        for (int n = node + 1; n < nodes && left >= 0; ++n)
            if (eligible(n)) {
                chosen = n;
                left -= expf((score(s, groups[group[n]], norms[n], largest) - top) / tau);
            }
        return chosen;
    }
};

/// The rule without its tables.
inline ChooseRule rule_of(const ChooseParams& p, ChoosePolicy policy) {
    return {policy,  static_cast<int>(p.group.size()), p.count, p.zero_grad, p.op_number, p.cooldown, p.cooling, p.explore,
            p.labels};
}

/// Rows of the nodes of one member, `stride` elements from node to node.
template <class T>
struct NodeRows {
    T* first;
    std::int64_t stride;
    [[nodiscard]] T* row(int node) const { return first + node * stride; }
};

/// Nodes in turn, by one thread.
template <class T>
void choose_on_host(const ChooseParams& params, int member, const MemberState& state, GroupState* groups, const float* norms,
                    float* gains, const NodeRows<T>& statistics, const NodeRows<T>& carries) {
    ChooseRule rule = rule_of(params, params.policy[params.policy.size() == 1 ? 0 : static_cast<std::size_t>(member)]);
    rule.group = params.group.data();
    rule.parent = params.parent.data();
    for (int n = 0; n < rule.nodes; ++n) gains[n] = rule.takes_path() ? 0 : rule.gain_of(n, state, norms);
    if (rule.takes_path()) rule.walk(state, groups, norms, gains);
    const bool counts = rule.counts(state, norms);
    const int label = rule.label_of(state);
    for (int n = 0; n < rule.nodes; ++n) {
        GroupState& group = groups[params.group[static_cast<std::size_t>(n)]];
        rule.write(group, gains[n], norms[n]);
        if (counts) rule.note(statistics.row(n), carries.row(n), n, label, group, gains[n], norms);
    }
}

}  // namespace millrace::ops
