#pragma once
// A tree of transformer layers: every node reads what its parent wrote, and the mean over the leaves, taken level by level, is
// the answer. Each step updates the nodes that its policy chooses by the gradients of their own parameters (ops/nodes.h);
// embedding, norm and vocabulary are updated always.

#include "models/k1/ops/nodes.h"
#include "models/k1/tree.h"
#include "models/language_model.h"
#include "models/registry.h"
#include "nn/transformer.h"

namespace millrace::models {

enum class Topology : std::uint8_t {
    tree,   ///< a node reads its parent
    level,  ///< all nodes of a level read the mean over the level above
};

struct K1Config {
    LanguageConfig language;
    Tree tree = Tree::regular({3, 3});
    Topology topology = Topology::tree;
    std::vector<ops::ChoosePolicy> policy{ops::ChoosePolicy::topk};  ///< of all members, or of each
    std::int32_t count = 5;                                          ///< nodes that topk and random_k take
    bool zero_grad = false;  ///< nodes not chosen get a gradient of zero, and decay and moments go on; else they keep their bits
    std::uint32_t cooldown = 50;
    float explore = 0.15f;
    ops::StepLabels labels{8};  ///< by which the statistics of nodes are counted; its samples are those of the data
    std::vector<std::string> label_names = {};  ///< empty: labels are parts of an epoch
};

class K1 final : public LanguageModel {
public:
    explicit K1(K1Config config) : LanguageModel(config.language), config_(std::move(config)) {}
    [[nodiscard]] std::string description() const override;
    Outputs build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) override;
    void append_before_update(tape::Builder& builder) override;
    [[nodiscard]] std::vector<std::int32_t> cached_widths() const override;

    static std::string group_of(std::int32_t node) { return "node." + std::to_string(node); }  ///< of parameters: "node.4"
    /// Of the names of a node's tensors: "nodes.4."
    static std::string prefix_of(std::int32_t node) { return "nodes." + std::to_string(node) + "."; }
    [[nodiscard]] const K1Config& config() const { return config_; }
    /// What the steps of a run counted of each node, the rows of choose_nodes: one vector per node. After declare().
    [[nodiscard]] tape::ParameterId statistics() const { return statistics_; }
    [[nodiscard]] tape::ParameterId carries() const { return carries_; }

private:
    base::Status declare_body(tape::Store& store) override;
    [[nodiscard]] tape::Value body(tape::Builder& builder, const tape::Value& x, const nn::Sequences& sequences) const override;

    K1Config config_;
    std::vector<std::vector<std::int32_t>> levels_;
    std::vector<nn::TransformerLayer> layers_;  ///< one per level: its nodes side by side
    tape::ParameterId statistics_ = tape::kNoParameter, carries_ = tape::kNoParameter;
    std::int32_t samples_ = 1;  ///< of an epoch of training
};

/// Changes of a run's tree: which one the statistics of its nodes speak for, and how a changed tree takes over what was learned.
///   grow        the leaf with the largest recent norm becomes two: a copy with noise (`structure.noise` times the RMS of each
///               tensor) that shares its weight. The copy's moments and counts begin at zero.
///   prune       the leaf that the smallest share of steps chose goes, unless it is an only child.
///   merge       of all sibling leaves the two with the largest cosine of their parameters become one: the mean by weight, of
///               moments, too. Its count of steps is the larger of the two.
///   reorganise  of the parents of a level, the one whose leaves were chosen least gives its least chosen leaf to the one whose
///               leaves were chosen most.
/// All other tensors, moments, counts and statistics keep their bits. Statistics of grown and merged nodes begin at zero.
Structure tree_structure();

/// What the tensors and groups of a changed tree begin with; both stores have one member. `noise` is a share of a tensor's RMS.
void transfer_nodes(const Reshaped& change, double noise, tape::Store& from, tape::Store& to);

}  // namespace millrace::models
