#pragma once
// Losses: they add to the member's state (loss, rows, correct, penalty) and, in training, start the gradient of their input,
// weighted by the micro-batch's share of the step (Builder::share()). One that divides by something in the data takes the sum
// over the whole step where it is known (Builder::loss_total()), so that its parts add up to the step's.

#include <string>
#include <vector>

#include "tape/builder.h"

namespace millrace::nn {

/// Mean cross-entropy of logits [K,1,B,C] against labels i32 [K,1,B,1]. The only consumer of the logits' gradient.
void cross_entropy(tape::Builder& builder, const tape::Value& logits, const tensor::View& labels);

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
/// Cross-entropy with a weight per class, damped by (1 - p)^gamma. Training alone: evaluation takes cross_entropy.
void weighted_cross_entropy(tape::Builder& builder, const tape::Value& logits, const tensor::View& labels,
                            const ClassWeights& weights);
/// Appends what weighted_cross_entropy divides by in a step that runs in parts, from the labels of all its rows.
void total_class_weights(tape::Builder& builder, const tensor::View& labels, const ClassWeights& weights);
/// Cross-entropy of one logit [K,1,B,1] against "label == positive", times `weight` (a fixed parameter), as a term beside the
/// loss.
void binary_cross_entropy(tape::Builder& builder, const tape::Value& logit, const tensor::View& labels, std::int32_t positive,
                          tape::ParameterId weight);

/// Mean squared error of prediction [K,1,B,C] against target real [K,1,B,C].
void mse(tape::Builder& builder, const tape::Value& prediction, const tensor::View& target);
/// The same, times `weight`, as a term beside the loss: its share of the objective joins state.penalty. No gradient reaches the
/// target.
void mse_penalty(tape::Builder& builder, const tape::Value& prediction, const tensor::View& target, double weight,
                 const std::string& name);

/// weight * mean over pairs of the `groups` groups in outputs [K,1,B,groups*C] of |batch mean of their cosine / temperature|.
/// Training only: evaluation scores the prediction alone.
void cosine_diversity(tape::Builder& builder, const tape::Value& outputs, std::int32_t groups, double weight, double temperature);

}  // namespace millrace::nn
