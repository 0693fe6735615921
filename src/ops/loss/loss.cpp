#include "ops/loss/loss.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_DECLARE_KERNELS(cross_entropy)
MILLRACE_DECLARE_KERNELS(mse)
MILLRACE_DECLARE_KERNELS(cosine_diversity)

namespace {

using enum Access;

constexpr SlotDef kCrossEntropy[] = {{"logits"}, {"labels"}, {"state", update}, {"dlogits", write}};
static_assert(std::size(kCrossEntropy) == cross_entropy::slots);
constexpr SlotDef kMse[] = {{"prediction"}, {"target"}, {"state", update}, {"dprediction", write}};
static_assert(std::size(kMse) == mse::slots);
constexpr SlotDef kCosineDiversity[] = {{"o"}, {"state", update}, {"dout", add}};
static_assert(std::size(kCosineDiversity) == cosine_diversity::slots);

}  // namespace

const OpDef cross_entropy::kDef(
    {.name = "cross_entropy", .slots = kCrossEntropy, .phase = Phase::loss, MILLRACE_KERNELS(cross_entropy)});
const OpDef mse::kDef({.name = "mse", .slots = kMse, .phase = Phase::loss, MILLRACE_KERNELS(mse)});
const OpDef cosine_diversity::kDef(
    {.name = "cosine_diversity", .slots = kCosineDiversity, .phase = Phase::loss, MILLRACE_KERNELS(cosine_diversity)});

}  // namespace millrace::ops
