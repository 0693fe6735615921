#pragma once
// One function per operator; the contracts are those of ops/op.h with real = stat = f64. None of them allocates.

#include "ops/op.h"

namespace millrace::ops::ref {

using Run = void (*)(const Bound& bound);

void run_step_begin(const Bound& bound);
void run_micro_end(const Bound& bound);
void run_metrics_push(const Bound& bound);
void run_fill(const Bound& bound);
void run_copy(const Bound& bound);
void run_gather_images(const Bound& bound);
void run_gather_rows(const Bound& bound);
void run_dense_forward(const Bound& bound);
void run_dense_backward(const Bound& bound);
void run_linear_dgrad(const Bound& bound);
void run_linear_wgrad(const Bound& bound);
void run_add(const Bound& bound);
void run_pointwise_forward(const Bound& bound);
void run_pointwise_backward(const Bound& bound);
void run_layernorm_forward(const Bound& bound);
void run_layernorm_backward(const Bound& bound);
void run_embedding_forward(const Bound& bound);
void run_embedding_backward(const Bound& bound);
void run_cross_entropy(const Bound& bound);
void run_mse(const Bound& bound);
void run_cosine_diversity(const Bound& bound);
void run_grad_norm(const Bound& bound);
void run_optimizer(const Bound& bound);
void run_column_sum(const Bound& bound);
void run_gru_forward(const Bound& bound);
void run_gru_backward(const Bound& bound);
void run_flow_begin(const Bound& bound);
void run_flow_begin_backward(const Bound& bound);
void run_flow_neuron_forward(const Bound& bound);
void run_flow_neuron_backward(const Bound& bound);
void run_flow_move(const Bound& bound);
void run_flow_move_backward(const Bound& bound);
void run_flow_spawn(const Bound& bound);
void run_flow_spawn_state(const Bound& bound);
void run_flow_spawn_backward(const Bound& bound);
void run_flow_spawn_state_backward(const Bound& bound);
void run_flow_count(const Bound& bound);
void run_flow_rest(const Bound& bound);
void run_flow_rest_backward(const Bound& bound);
void run_flow_clear(const Bound& bound);
void run_flow_lay(const Bound& bound);
void run_flow_lay_backward(const Bound& bound);
void run_token_embed(const Bound& bound);
void run_token_embed_backward(const Bound& bound);
void run_attention_forward(const Bound& bound);
void run_attention_backward(const Bound& bound);
void run_masked_mean(const Bound& bound);
void run_masked_mean_backward(const Bound& bound);
void run_token_cross_entropy(const Bound& bound);
void run_token_choose(const Bound& bound);

/// Calls body(member, group) for every matrix of an operand.
template <class Body>
void for_each_matrix(const tensor::Operand& shape, Body&& body) {
    for (int member = 0; member < shape.k; ++member)
        for (int group = 0; group < shape.g; ++group) body(member, group);
}

/// target (+) = value.
inline void store(double& target, double value, bool accumulate) { target = accumulate ? target + value : value; }

}  // namespace millrace::ops::ref
