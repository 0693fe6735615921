#include "ops/vocabulary/vocabulary.h"

#include "ops/kernels.h"
#include "ops/text/sequences.h"

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
                       {"state", update}, {"losses", write}, {"dx", add}, {"dweight", add}, {"dbias", add}, {"tally", add},
                       {"total"});

void vocabulary_loss::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(x);
    const int words = c.shape(weight).rows;
    c.require({x}, real, {k, 1, rows, cols}).allow({dx}, real, {k, 1, rows, cols}).require({weight}, real, {k, 1, words, cols});
    c.allow({dweight}, stat, {k, 1, words, cols}).allow({bias, dbias}, stat, {k, 1, 1, words});
    c.require({losses}, stat, {k, 1, rows, 1}).allow({tally}, stat, {k, 1, 1, kTallyColumns}).state(state, k);
    c.allow({total}, stat, {k, 1, 1, 2});
    check_tokens(c, x, ids, lengths, c.params<TokenLossParams>().first).that(words > 0, "the vocabulary is empty");
}

}  // namespace millrace::ops
