#include <fmt/format.h>

#include "models/k1/ops/nodes.h"
#include "op_case.h"

namespace millrace::ops::cases {
namespace {

struct Chooser {
    const char* name;
    ChoosePolicy policy;
    int count = 3;
    bool zero_grad = false, mixed = false;
};

/// A tree of nodes whose pieces of unequal lengths lie one after the other. Gradients are small whole numbers, so that sums of
/// their squares are exact and the table can be compared to the bit.
OpCase choose(const Chooser& chooser, int k, const std::vector<std::int32_t>& parent, int piece, Values grads) {
    OpCase c;
    c.name =
        fmt::format("choose_nodes/{}{}/K{}_N{}_P{}", chooser.name, chooser.zero_grad ? "_zero" : "", k, parent.size(), piece);
    c.op = &choose_nodes::kDef;
    ChooseParams params;
    params.policy = {chooser.policy};
    if (chooser.mixed) params.policy = {ChoosePolicy::path, ChoosePolicy::dense};
    params.count = chooser.count;
    params.zero_grad = chooser.zero_grad;
    params.op_number = 5;
    params.cooldown = 3;
    params.explore = 0.5f;
    params.cooling = 10;
    params.parent = parent;
    std::int32_t begin = 0;
    for (std::size_t n = 0; n < parent.size(); ++n) {
        params.group.push_back(static_cast<std::int32_t>(parent.size() - n));  // group 0 is no node, and the order is another one
        for (int i = 0; i < 2; ++i) {
            const auto end = begin + static_cast<std::int32_t>(piece + static_cast<int>(n * 7 % 5) * i);
            params.pieces.push_back({begin, end, static_cast<std::int32_t>(n)});
            begin = end + (i == 0 ? 0 : 3);
        }
    }
    const bool by_epoch = chooser.zero_grad;
    params.labels = {3, 20, by_epoch ? 2u : 0u};
    c.params = params;
    c.members = k;
    c.slot(choose_nodes::grads, Element::stat, k, 1, 1, begin, std::move(grads));
    c.states = sample_states(k);
    c.state(choose_nodes::state);
    std::vector<GroupState> groups = sample_groups(k, static_cast<int>(parent.size()) + 1);
    for (std::size_t i = 0; i < groups.size(); ++i) groups[i].last_applied = static_cast<std::uint32_t>(i % 4);
    if (chooser.mixed) groups[1].trainable = 0;
    c.groups(choose_nodes::groups, groups);
    const auto nodes = static_cast<int>(parent.size());
    c.slot(choose_nodes::statistics, Element::stat, k, nodes, 1, kLabelColumn + 2 * 3,
           given({3, kCarry, 0, kCarry, 2, kCarry - 1, kCarry + 1, kCarry}));
    return c.slot(choose_nodes::carries, Element::stat, k, nodes, 1, 1 + 2 * 3, integers(0, 4));
}

}  // namespace

void add_choose_cases(std::vector<OpCase>& cases) {
    const std::vector<std::int32_t> small{-1, 0, 1, 1, 0, 4, 4}, lone{-1}, uneven{-1, 0, 0, 1, 1, 3, 3, 3};
    std::vector<std::int32_t> wide{-1};
    for (int i = 0; i < 40; ++i) wide.push_back(i / 4);
    for (const Chooser& chooser :
         {Chooser{"topk", ChoosePolicy::topk}, Chooser{"topk", ChoosePolicy::topk, 3, true},
          Chooser{"all", ChoosePolicy::topk, 99}, Chooser{"random_k", ChoosePolicy::random_k},
          Chooser{"dense", ChoosePolicy::dense}, Chooser{"path", ChoosePolicy::path},
          Chooser{"path_cooldown", ChoosePolicy::path_cooldown}, Chooser{"path_balance", ChoosePolicy::path_balance},
          Chooser{"path_dynamic", ChoosePolicy::path_dynamic}, Chooser{"path_dynamic", ChoosePolicy::path_dynamic, 3, true}}) {
        cases.push_back(choose(chooser, 2, small, 11, integers(-3, 3)));
        cases.push_back(choose(chooser, 1, lone, 5, integers(-3, 3)));
        cases.push_back(choose(chooser, 2, uneven, 300, integers(-2, 2)));
        cases.push_back(choose(chooser, 1, wide, 64, integers(-3, 3)));
    }
    Chooser mixed{"mixed", ChoosePolicy::topk};
    mixed.mixed = true;
    cases.push_back(choose(mixed, 2, small, 11, integers(-3, 3)));
    cases.back().splits = false;
    // All norms alike: the nodes that come first. And all zero.
    cases.push_back(choose({"ties", ChoosePolicy::topk}, 1, {-1, 0, 0, 0, 0}, 10, constant(1)));
    cases.push_back(choose({"zeros", ChoosePolicy::topk}, 1, small, 10, constant(0)));
    cases.push_back(choose({"zero_path", ChoosePolicy::path_dynamic}, 1, small, 10, constant(0)));
}

}  // namespace millrace::ops::cases
