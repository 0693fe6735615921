#include <fmt/format.h>

#include "op_case.h"
#include "ops/attention/attention.h"

namespace millrace::ops::cases {
namespace {

OpCase cached(int k, int sequences, int heads, int width, int positions, int position) {
    namespace at = attention_cached;
    const int all = heads * width;
    OpCase c;
    c.name = fmt::format("attention_cached/K{}_B{}_H{}_W{}_N{}_p{}", k, sequences, heads, width, positions, position);
    c.op = &attention_cached::kDef;
    c.params = CachedAttentionParams{heads};
    c.members = k;
    c.slot(at::qkv, Element::real, k, 1, sequences, 3 * all, uniform(-1, 1), kWindow);
    c.slot(at::position, Element::i32, 1, 1, 1, 1, constant(position));
    c.slot(at::cache, Element::real, k, 1, sequences * positions, 2 * all, uniform(-1, 1));
    return c.slot(at::out, Element::real, k, 1, sequences, all, poison());
}

}  // namespace

void add_cached_cases(std::vector<OpCase>& cases) {
    cases.push_back(cached(1, 1, 1, 1, 1, 0));
    cases.push_back(cached(2, 3, 2, 5, 7, 4));
    cases.push_back(cached(1, 2, 4, 32, 64, 63));
    cases.push_back(cached(1, 1, 2, 16, 300, 217));
    cases.push_back(cached(1, 1, 2, 16, 9, 12));  // behind the end: the last one
}

}  // namespace millrace::ops::cases
