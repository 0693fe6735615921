#include "ops/text/text.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_DECLARE_KERNELS(token_embed)
MILLRACE_DECLARE_KERNELS(token_embed_backward)
MILLRACE_DECLARE_KERNELS(masked_mean)
MILLRACE_DECLARE_KERNELS(masked_mean_backward)
MILLRACE_DECLARE_KERNELS(token_cross_entropy)
MILLRACE_DECLARE_KERNELS(token_choose)

namespace {

using enum Access;

constexpr SlotDef kTokenEmbed[] = {{"table"}, {"place"}, {"before"}, {"ids"}, {"lengths"}, {"state", update}, {"y", write}};
static_assert(std::size(kTokenEmbed) == token_embed::slots);
constexpr SlotDef kTokenEmbedBackward[] = {{"dy"}, {"ids"}, {"lengths"}, {"dtable", add}, {"dplace", add}, {"dbefore", add}};
static_assert(std::size(kTokenEmbedBackward) == token_embed_backward::slots);
constexpr SlotDef kMaskedMean[] = {{"x"}, {"lengths"}, {"y", write}};
static_assert(std::size(kMaskedMean) == masked_mean::slots);
constexpr SlotDef kMaskedMeanBackward[] = {{"dy"}, {"lengths"}, {"dx", add}};
static_assert(std::size(kMaskedMeanBackward) == masked_mean_backward::slots);
constexpr SlotDef kTokenCrossEntropy[] = {{"logits"},         {"ids"},       {"lengths"}, {"state", update},
                                          {"dlogits", write}, {"tally", add}};
static_assert(std::size(kTokenCrossEntropy) == token_cross_entropy::slots);
constexpr SlotDef kTokenChoose[] = {{"logits"}, {"ids", update}, {"lengths", update}};
static_assert(std::size(kTokenChoose) == token_choose::slots);

}  // namespace

const OpDef token_embed::kDef(
    {.name = "token_embed", .slots = kTokenEmbed, .phase = Phase::forward, MILLRACE_KERNELS(token_embed)});
const OpDef token_embed_backward::kDef({.name = "token_embed_backward",
                                        .slots = kTokenEmbedBackward,
                                        .phase = Phase::backward,
                                        MILLRACE_KERNELS(token_embed_backward)});
const OpDef masked_mean::kDef(
    {.name = "masked_mean", .slots = kMaskedMean, .phase = Phase::forward, MILLRACE_KERNELS(masked_mean)});
const OpDef masked_mean_backward::kDef({.name = "masked_mean_backward",
                                        .slots = kMaskedMeanBackward,
                                        .phase = Phase::backward,
                                        MILLRACE_KERNELS(masked_mean_backward)});
const OpDef token_cross_entropy::kDef(
    {.name = "token_cross_entropy", .slots = kTokenCrossEntropy, .phase = Phase::loss, MILLRACE_KERNELS(token_cross_entropy)});
const OpDef token_choose::kDef(
    {.name = "token_choose", .slots = kTokenChoose, .phase = Phase::forward, MILLRACE_KERNELS(token_choose)});

}  // namespace millrace::ops
