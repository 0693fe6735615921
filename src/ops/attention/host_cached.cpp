#include <algorithm>
#include <cmath>

#include "ops/attention/cached.h"
#include "ops/host_kernels.h"

namespace millrace::ops {
namespace {

/// One sequence of one member; T is the element type and that of the sums. Two passes over the scores need no memory for them.
template <class T>
void attend(const Bound& bound, int member, int sequence) {
    namespace at = attention_cached;
    const auto &qkv = bound[at::qkv], &cache = bound[at::cache];
    const int heads = bound.params<CachedAttentionParams>().heads, all = qkv.cols / 3, width = all / heads;
    const int positions = cache.rows / qkv.rows;
    const int last = std::clamp(*bound[at::position].template at<std::int32_t>(0), 0, positions - 1);
    const T* in = qkv.template at<T>(member, 0, sequence);
    const auto row = [&](int p) { return cache.template at<T>(member, 0, std::int64_t{sequence} * positions + p); };
    std::copy_n(in + all, 2 * all, row(last));
    T* out = bound[at::out].template at<T>(member, 0, sequence);
    const T scale = 1 / std::sqrt(static_cast<T>(width));
    for (int h = 0; h < heads; ++h) {
        const auto score = [&](int p) {
            T sum = 0;
            for (int d = 0; d < width; ++d) sum += in[h * width + d] * row(p)[h * width + d];
            return sum * scale;
        };
        T top = score(0), sum = 0;
        for (int p = 1; p <= last; ++p) top = std::max(top, score(p));
        std::fill_n(out + h * width, width, T{0});
        for (int p = 0; p <= last; ++p) {
            const T weight = std::exp(score(p) - top);
            sum += weight;
            for (int d = 0; d < width; ++d) out[h * width + d] += weight * row(p)[all + h * width + d];
        }
        for (int d = 0; d < width; ++d) out[h * width + d] /= sum;
    }
}

}  // namespace

MILLRACE_HOST_ROWS(attention_cached, qkv, bound[attention_cached::cache].count() / std::max(1, bound[attention_cached::cache].k),
                   attend);

}  // namespace millrace::ops
