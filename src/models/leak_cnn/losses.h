#pragma once
// Losses with weights of the member: for windows of sound most classes are rare.

#include <string>
#include <vector>

#include "tape/builder.h"

namespace millrace::models {

/// Values of the member that weigh a classification: fixed parameters, so that every member has its own and checkpoints keep
/// them.
struct ClassWeights {
    tape::ParameterId weights = tape::kNoParameter, gamma = tape::kNoParameter;
    bool by_rows = false;  ///< divides by the rows, as focal losses do, instead of the sum of their weights
};
/// Declares `<name>.weights` [C] and `<name>.gamma` for members that begin with `weights` and `gammas`; the last of them is that
/// of all members that follow.
ClassWeights declare_class_weights(tape::Store& store, const std::string& name, std::vector<std::vector<double>> weights,
                                   const std::vector<double>& gammas, bool by_rows);
/// Declares one fixed number of each member.
tape::ParameterId declare_member_value(tape::Store& store, const std::string& name, const std::vector<double>& values);
/// Cross-entropy with a weight per class, damped by (1 - p)^gamma. Training alone: evaluation takes nn::cross_entropy.
void weighted_cross_entropy(tape::Builder& builder, const tape::Value& logits, const tensor::View& labels,
                            const ClassWeights& weights);
/// Appends what weighted_cross_entropy divides by in a step that runs in parts, from the labels of all its rows.
void total_class_weights(tape::Builder& builder, const tensor::View& labels, const ClassWeights& weights);
/// Cross-entropy of one logit [K,1,B,1] against "label == positive", times `weight` (a fixed parameter), as a term beside the
/// loss.
void binary_cross_entropy(tape::Builder& builder, const tape::Value& logit, const tensor::View& labels, std::int32_t positive,
                          tape::ParameterId weight);

}  // namespace millrace::models
