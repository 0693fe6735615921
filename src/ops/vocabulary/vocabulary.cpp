#include "ops/vocabulary/vocabulary.h"

#include "ops/kernels.h"

namespace millrace::ops {
namespace {

/// One product for the logits and one for each of the large gradients.
std::int64_t count_flops(const Record& record) {
    namespace at = vocabulary_loss;
    const tensor::View &x = record.slots[at::x], &weight = record.slots[at::weight];
    const int products = 1 + (record.slots[at::dx].present() ? 1 : 0) + (record.slots[at::dweight].present() ? 1 : 0);
    return products * product_flops(x, weight.rows);
}

}  // namespace

MILLRACE_OPERATOR_WITH(vocabulary_loss, Phase::loss, count_flops, {"x"}, {"weight"}, {"bias"}, {"ids"}, {"lengths"},
                       {"state", update}, {"logsumexp", write}, {"dx", add}, {"dweight", add}, {"dbias", add}, {"tally", add});

}  // namespace millrace::ops
