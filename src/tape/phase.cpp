#include "tape/phase.h"

#include <optional>

namespace millrace::tape {
namespace {

using ops::OpId;

/// No value: the operator serves in several.
std::optional<Phase> own_phase(OpId op) {
    switch (op) {
        case OpId::step_begin:
        case OpId::gather_images:
        case OpId::gather_rows: return Phase::data;
        case OpId::dense_forward:
        case OpId::pointwise_forward:
        case OpId::layernorm_forward:
        case OpId::embedding_forward:
        case OpId::gru_forward:
        case OpId::flow_begin:
        case OpId::flow_neuron_forward:
        case OpId::flow_move:
        case OpId::flow_spawn:
        case OpId::flow_spawn_state:
        case OpId::flow_count:
        case OpId::flow_rest:
        case OpId::flow_lay:
        case OpId::token_embed:
        case OpId::attention_forward:
        case OpId::masked_mean:
        case OpId::token_choose: return Phase::forward;
        case OpId::cross_entropy:
        case OpId::mse:
        case OpId::cosine_diversity:
        case OpId::token_cross_entropy: return Phase::loss;
        case OpId::dense_backward:
        case OpId::linear_dgrad:
        case OpId::linear_wgrad:
        case OpId::pointwise_backward:
        case OpId::layernorm_backward:
        case OpId::embedding_backward:
        case OpId::column_sum:
        case OpId::gru_backward:
        case OpId::flow_begin_backward:
        case OpId::flow_neuron_backward:
        case OpId::flow_move_backward:
        case OpId::flow_spawn_backward:
        case OpId::flow_spawn_state_backward:
        case OpId::flow_rest_backward:
        case OpId::flow_clear:
        case OpId::flow_lay_backward:
        case OpId::token_embed_backward:
        case OpId::attention_backward:
        case OpId::masked_mean_backward: return Phase::backward;
        case OpId::micro_end:
        case OpId::grad_norm:
        case OpId::optimizer:
        case OpId::metrics_push: return Phase::optimizer;
        case OpId::fill:
        case OpId::copy:
        case OpId::add:
        case OpId::count_: break;
    }
    return std::nullopt;
}

}  // namespace

std::vector<Phase> phases_of(std::span<const ops::Record> records) {
    std::vector<Phase> phases;
    phases.reserve(records.size());
    Phase shared = Phase::forward;
    for (const ops::Record& record : records) {
        std::optional<Phase> own = own_phase(record.op);
        if (own == Phase::forward && shared == Phase::backward) own = Phase::backward;  // computed again on the way back
        if (own == Phase::backward || own == Phase::optimizer) shared = *own;
        if (own == Phase::data) shared = Phase::forward;  // the next micro-batch
        phases.push_back(own.value_or(shared));
    }
    return phases;
}

}  // namespace millrace::tape
