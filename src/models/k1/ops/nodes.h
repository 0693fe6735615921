#pragma once
// Which nodes of a tree a step updates, by the gradients of their own parameters, and weighted sums of groups of columns.
// Conventions: ops/op.h.

#include <vector>

#include "ops/op.h"

namespace millrace::ops {

/// topk: the `count` nodes with the largest norms. random_k: as many at random. dense: all of them.
/// The others take one path from the root to a leaf and update the nodes on it, the leaf in full and those above it less:
/// path: always to the child with the largest norm. path_cooldown: children that were updated within the last `cooldown` steps
/// are barred unless all are, and with probability `explore` the child is a random one of those left. path_balance: the child is
/// drawn from softmax(score / tau), score = norm / largest norm / (u + 1) + 0.5 sqrt(ln(step + 2) / (u + 1)), u = its updates so
/// far, tau falls from 3 to 0.5 within `cooling` steps, bars as before. path_dynamic: as path, with gains by the norms on the
/// path.
enum class ChoosePolicy : std::uint8_t { topk, random_k, dense, path, path_cooldown, path_balance, path_dynamic };

/// A run of a node's parameters in the arena of a member.
struct NodePiece {
    std::int32_t begin = 0, end = 0, node = 0;
};

/// The label of a step, from 0: with `epochs` its part of the training, as many epochs each, and the last for all that follow;
/// else its part of the epoch, by the samples of the epoch that were used up to its end.
struct StepLabels {
    std::int32_t count = 1;
    std::uint32_t samples = 1;  ///< of an epoch
    std::uint32_t epochs = 0;   ///< of a label; 0: labels are parts of every epoch
};
constexpr std::int32_t kRecent = 0, kWorst = 1, kLabelColumn = 2;  ///< columns of the statistics
/// f32 counts by ones up to 2^24 only: before it grows, a count of kCarry or more gives kCarry to its carry, which counts those.
constexpr std::int32_t kCarry = 1 << 23;

// Parameters and slots of an operator stay on one line each, below its contract.
// clang-format off

/// choose_nodes. grads stat [K,1,1,P]. Of each node n, by the pieces of its parameters: group[n].norm = L2 norm / state.loss_scale. Then the policy gives every node a gain: 0 when
/// not chosen, 1 when chosen; on a path leaf 1, its parent 0.15, further up 0.05, with path_dynamic min(1, 0.5 + p) and min(0.3, p), p = norm / sum of the norms on
/// the path. Freezing: gain = that, gradient_gain = 1; else (`zero_grad`) gain = 1, gradient_gain = that. Ties go to the node that comes first. Random numbers:
/// element = node. `policy` has one entry for all members, or one of each. Nodes come parents first; node 0 is the root, parent[0] = -1. Pieces are in ascending order of `node` and at most kMostPiece long.
/// statistics stat [K,N,1,kLabelColumn + 2 L] of N nodes and L labels: a step whose norms are finite and that was not dropped before adds to the row of each node: kRecent moves to the norm by a
/// hundredth of the way (from 0: all of it); kWorst counts leaves to which the path of the largest norms leads; of the step's label l, column kLabelColumn + l counts when the node is chosen
/// (and trainable), kLabelColumn + L + l counts the step. carries stat [K,N,1,1 + 2 L], of the columns from kWorst on: the count of column c is statistics[c] + kCarry * carries[c - kWorst].
struct ChooseParams { std::vector<ChoosePolicy> policy{ChoosePolicy::topk}; std::int32_t count = 5; bool zero_grad = false; std::uint32_t op_number = 0, cooldown = 50, cooling = 50000; float explore = 0.15f; std::vector<std::int32_t> group, parent; std::vector<NodePiece> pieces; StepLabels labels = {}; };
constexpr std::int32_t kMostPiece = 8192, kMostNodes = 1024;
namespace choose_nodes { enum Slot { grads, state, groups, statistics, carries, slots }; extern const OpDef kDef; }

// clang-format on

// Parameters and slots of an operator stay on one line each, below its contract.
// clang-format off

/// mix_groups. in real [K,1,B,N*C], out (+) real [K,1,B,M*C]: out_m = sum of weight * in_n over the terms {m, n, weight}, in their order; a group without terms
/// gets zeros. Terms are in ascending order of `out`, at most kMostTerms of them. C divides both widths.
struct MixTerm { std::int32_t out = 0, in = 0; float weight = 1; };
struct MixParams { std::int32_t cols = 1; std::vector<MixTerm> terms; };
constexpr std::size_t kMostTerms = 4096;
namespace mix_groups { enum Slot { in, out, slots }; extern const OpDef kDef; }

// clang-format on

}  // namespace millrace::ops
