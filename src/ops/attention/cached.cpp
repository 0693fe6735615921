#include "ops/attention/cached.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_OPERATOR(attention_cached, Phase::forward, {"qkv"}, {"position"}, {"cache", update}, {"out", write});

void attention_cached::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(qkv);
    const int heads = c.params<CachedAttentionParams>().heads, all = cols / 3, cached = c.shape(cache).rows;
    c.require({qkv}, real, {k, 1, rows, 3 * all}).require({cache}, real, {k, 1, cached, 2 * all});
    c.require({out}, real, {k, 1, rows, all}).require({position}, i32, {1, 1, 1, 1});
    c.that(heads > 0 && all % heads == 0 && rows > 0 && cached % rows == 0 && cached > 0,
           "whole heads and as many positions for every sequence are needed");
}

}  // namespace millrace::ops
