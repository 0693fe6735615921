#include "ops/op.h"

#include <span>

namespace millrace::ops {
namespace {

struct SlotInfo {
    const char* name;
    bool written;
};
struct OpInfo {
    const char* name;
    std::span<const SlotInfo> slots;
};

constexpr SlotInfo kStepBegin[] = {{"state", true}};
constexpr SlotInfo kMicroEnd[] = {{"state", true}};
constexpr SlotInfo kMetricsPush[] = {{"state", false}, {"counter", true}, {"ring", true}};
constexpr SlotInfo kFill[] = {{"out", true}};
constexpr SlotInfo kCopy[] = {{"in", false}, {"out", true}};
constexpr SlotInfo kGather[] = {{"images", false}, {"labels", false}, {"subset", false},
                                {"state", false},  {"x", true},       {"y", true}};
constexpr SlotInfo kGatherRows[] = {{"table", false}, {"subset", false}, {"state", false}, {"out", true}};
constexpr SlotInfo kDenseForward[] = {
    {"x", false},          {"w", false},    {"bias", false},   {"gamma", false}, {"beta", false}, {"running_mean", true},
    {"running_var", true}, {"saved", true}, {"inv_std", true}, {"state", false}, {"y", true}};
constexpr SlotInfo kDenseBackward[] = {{"dy", false},    {"saved", false}, {"gamma", false}, {"beta", false}, {"inv_std", false},
                                       {"state", false}, {"dz", true},     {"dgamma", true}, {"dbeta", true}, {"dbias", true}};
constexpr SlotInfo kDgrad[] = {{"dz", false}, {"w", false}, {"dx", true}};
constexpr SlotInfo kWgrad[] = {{"dz", false}, {"x", false}, {"dw", true}};
constexpr SlotInfo kAdd[] = {{"a", false}, {"b", false}, {"out", true}};
constexpr SlotInfo kPointwiseForward[] = {{"x", false}, {"state", false}, {"y", true}};
constexpr SlotInfo kPointwiseBackward[] = {{"dy", false}, {"x", false}, {"state", false}, {"dx", true}};
constexpr SlotInfo kLayerNormForward[] = {{"x", false},   {"gamma", false},  {"beta", false},
                                          {"mean", true}, {"inv_std", true}, {"y", true}};
constexpr SlotInfo kLayerNormBackward[] = {{"dy", false},      {"x", false}, {"gamma", false}, {"mean", false},
                                           {"inv_std", false}, {"dx", true}, {"dgamma", true}, {"dbeta", true}};
constexpr SlotInfo kEmbeddingForward[] = {{"table", false}, {"index", false}, {"state", true}, {"y", true}};
constexpr SlotInfo kEmbeddingBackward[] = {{"dy", false}, {"index", false}, {"dtable", true}};
constexpr SlotInfo kCrossEntropy[] = {{"logits", false}, {"labels", false}, {"state", true}, {"dlogits", true}};
constexpr SlotInfo kMse[] = {{"prediction", false}, {"target", false}, {"state", true}, {"dprediction", true}};
constexpr SlotInfo kDiversity[] = {{"o", false}, {"state", true}, {"dout", true}};
constexpr SlotInfo kGradNorm[] = {{"grads", false}, {"scratch", true}, {"state", true}};
constexpr SlotInfo kOptimizer[] = {{"params", true}, {"grads", true},  {"m", true},
                                   {"v", true},      {"copy16", true}, {"state", true}};
constexpr SlotInfo kColumnSum[] = {{"in", false}, {"out", true}};
constexpr SlotInfo kGruForward[] = {{"x", false},      {"h", false},    {"flow", false}, {"counters", false},
                                    {"w_ih", false},   {"w_hh", false}, {"b_ih", false}, {"b_hh", false},
                                    {"scratch", true}, {"gates", true}, {"out", true}};
constexpr SlotInfo kGruBackward[] = {{"dh", true},  {"gates", false}, {"h", false},  {"flow", false}, {"counters", false},
                                     {"a0", false}, {"w0", false},    {"a1", false}, {"w1", false},   {"a2", false},
                                     {"w2", false}, {"a3", false},    {"w3", false}, {"dgates", true}};
constexpr SlotInfo kFlowBegin[] = {{"e", false}, {"flow", true}, {"counters", true}};
constexpr SlotInfo kFlowBeginBackward[] = {{"dflow", false}, {"de", true}};
constexpr SlotInfo kFlowNeuronForward[] = {{"flow", false}, {"params", false}, {"counters", false}, {"out", true}};
constexpr SlotInfo kFlowNeuronBackward[] = {{"flow", false}, {"params", false}, {"counters", false},
                                            {"dout", false}, {"dparams", true}, {"dflow", true}};
constexpr SlotInfo kFlowMove[] = {{"before", false},   {"u", false},    {"state", false},
                                  {"counters", false}, {"moved", true}, {"after", true}};
constexpr SlotInfo kFlowMoveBackward[] = {{"dafter", false}, {"moved", false}, {"du", true}, {"dbefore", true}};
constexpr SlotInfo kFlowSpawn[] = {{"before", false}, {"flow", true}, {"moved", true}, {"counters", true}};
constexpr SlotInfo kFlowSpawnState[] = {{"flow", false}, {"h", true}};
constexpr SlotInfo kFlowSpawnBackward[] = {{"moved", false}, {"dafter", true}, {"dbefore", true}};
constexpr SlotInfo kFlowSpawnStateBackward[] = {{"moved", false}, {"dh", true}};
constexpr SlotInfo kFlowCount[] = {{"flow", false}, {"moved", false}, {"counters", false}, {"next", true}};
constexpr SlotInfo kFlowLay[] = {{"flow", false}, {"state", true}, {"surface", true}};
constexpr SlotInfo kFlowLayBackward[] = {{"flow", false}, {"dsurface", false}, {"dflow", true}};
constexpr SlotInfo kTokenEmbed[] = {{"table", false},   {"place", false}, {"before", false}, {"ids", false},
                                    {"lengths", false}, {"state", true},  {"y", true}};
constexpr SlotInfo kTokenEmbedBackward[] = {{"dy", false},    {"ids", false},   {"lengths", false},
                                            {"dtable", true}, {"dplace", true}, {"dbefore", true}};
constexpr SlotInfo kAttentionForward[] = {{"qkv", false}, {"lengths", false}, {"level", true}, {"out", true}};
constexpr SlotInfo kAttentionBackward[] = {{"dout", false}, {"qkv", false}, {"lengths", false}, {"level", false}, {"dqkv", true}};
constexpr SlotInfo kMaskedMean[] = {{"x", false}, {"lengths", false}, {"y", true}};
constexpr SlotInfo kMaskedMeanBackward[] = {{"dy", false}, {"lengths", false}, {"dx", true}};
constexpr SlotInfo kTokenCrossEntropy[] = {{"logits", false}, {"ids", false},    {"lengths", false},
                                           {"state", true},   {"dlogits", true}, {"tally", true}};
constexpr SlotInfo kTokenChoose[] = {{"logits", false}, {"ids", true}, {"lengths", true}};

constexpr SlotInfo kFlowRest[] = {{"counters", false}, {"before", false}, {"after", true}, {"next", true}};
constexpr SlotInfo kFlowRestBackward[] = {{"counters", false}, {"dafter", false}, {"dbefore", true}};
constexpr SlotInfo kFlowClear[] = {{"counters", false}, {"earlier", false}, {"out0", true},  {"out1", true},  {"out2", true},
                                   {"out3", true},      {"out4", true},     {"out5", true},  {"out6", true},  {"out7", true},
                                   {"out8", true},      {"out9", true},     {"out10", true}, {"out11", true}, {"out12", true}};
static_assert(std::size(kFlowClear) == flow_clear::slots && std::size(kFlowClear) <= kWhile);

constexpr std::array<OpInfo, kOpCount> kOps = {{
    {"step_begin", kStepBegin},
    {"micro_end", kMicroEnd},
    {"metrics_push", kMetricsPush},
    {"fill", kFill},
    {"copy", kCopy},
    {"gather_images", kGather},
    {"gather_rows", kGatherRows},
    {"dense_forward", kDenseForward},
    {"dense_backward", kDenseBackward},
    {"linear_dgrad", kDgrad},
    {"linear_wgrad", kWgrad},
    {"add", kAdd},
    {"pointwise_forward", kPointwiseForward},
    {"pointwise_backward", kPointwiseBackward},
    {"layernorm_forward", kLayerNormForward},
    {"layernorm_backward", kLayerNormBackward},
    {"embedding_forward", kEmbeddingForward},
    {"embedding_backward", kEmbeddingBackward},
    {"cross_entropy", kCrossEntropy},
    {"mse", kMse},
    {"cosine_diversity", kDiversity},
    {"grad_norm", kGradNorm},
    {"optimizer", kOptimizer},
    {"column_sum", kColumnSum},
    {"gru_forward", kGruForward},
    {"gru_backward", kGruBackward},
    {"flow_begin", kFlowBegin},
    {"flow_begin_backward", kFlowBeginBackward},
    {"flow_neuron_forward", kFlowNeuronForward},
    {"flow_neuron_backward", kFlowNeuronBackward},
    {"flow_move", kFlowMove},
    {"flow_move_backward", kFlowMoveBackward},
    {"flow_spawn", kFlowSpawn},
    {"flow_spawn_state", kFlowSpawnState},
    {"flow_spawn_backward", kFlowSpawnBackward},
    {"flow_spawn_state_backward", kFlowSpawnStateBackward},
    {"flow_count", kFlowCount},
    {"flow_lay", kFlowLay},
    {"flow_lay_backward", kFlowLayBackward},
    {"flow_rest", kFlowRest},
    {"flow_rest_backward", kFlowRestBackward},
    {"flow_clear", kFlowClear},
    {"token_embed", kTokenEmbed},
    {"token_embed_backward", kTokenEmbedBackward},
    {"attention_forward", kAttentionForward},
    {"attention_backward", kAttentionBackward},
    {"masked_mean", kMaskedMean},
    {"masked_mean_backward", kMaskedMeanBackward},
    {"token_cross_entropy", kTokenCrossEntropy},
    {"token_choose", kTokenChoose},
}};
static_assert(std::size(kDenseForward) == dense_forward::slots && std::size(kDenseBackward) == dense_backward::slots);
static_assert(std::size(kOptimizer) == optimizer::slots && std::size(kGather) == gather_images::slots);
static_assert(std::size(kGruBackward) == gru_backward::slots && std::size(kGruBackward) <= kWhile);
static_assert(std::size(kGatherRows) == gather_rows::slots && std::size(kDenseForward) <= kMaxSlots);

const OpInfo& info(OpId op) { return kOps[static_cast<std::size_t>(op)]; }

}  // namespace

const char* name_of(OpId op) { return info(op).name; }
int slot_count(OpId op) { return static_cast<int>(info(op).slots.size()); }
const char* slot_name(OpId op, int slot) { return info(op).slots[static_cast<std::size_t>(slot)].name; }
bool slot_is_written(OpId op, int slot) { return info(op).slots[static_cast<std::size_t>(slot)].written; }

}  // namespace millrace::ops
