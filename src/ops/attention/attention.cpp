#include "ops/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/host_kernels.h"
#include "ops/kernels.h"
#include "ops/text/sequences.h"

namespace millrace::ops {
namespace {

using tensor::Operand;

/// Every position against every position of its sequence: what is masked is not known before a run, and counts.
std::int64_t products(const tensor::View& values, const tensor::View& lengths) {
    return lengths.rows == 0 ? 0 : product_flops(values, values.rows / lengths.rows);
}
std::int64_t attention_forward_flops(const Record& r) {
    return 2 * products(r.slots[attention_forward::out], r.slots[attention_forward::lengths]);
}
/// Scores again, and the gradients of weights, values, queries and keys.
std::int64_t attention_backward_flops(const Record& r) {
    return 5 * products(r.slots[attention_backward::dout], r.slots[attention_backward::lengths]);
}

/// What both directions have: queries, keys and values, numbers per head, values beside each other.
Checker& check_heads(Checker& c, int qkv, int lengths, std::initializer_list<int> per_head, std::initializer_list<int> values) {
    const auto& p = c.params<AttentionParams>();
    const auto [k, g, rows, cols] = c.shape(qkv);
    c.require({qkv}, Type::real, {k, 1, rows, cols}).require(values, Type::real, {k, 1, rows, cols / 3});
    c.require(per_head, Type::stat, {k, 1, rows, p.heads});
    c.that(p.heads > 0 && cols > 0 && cols % (3 * p.heads) == 0, "qkv needs three times as many columns as whole heads");
    return check_positions(c, qkv, lengths, p.prefix).that(p.prefix >= 0, "the prefix is below 0");
}

/// The operands of either direction; what a direction does not have is absent.
struct Heads {
    AttentionParams params;
    Operand qkv, lengths, logsumexp, out, dout, dqkv;

    [[nodiscard]] int positions() const { return positions_of(qkv, lengths); }
    [[nodiscard]] int width() const { return qkv.cols / 3 / params.heads; }
    /// Head number `task` of all sequences of all members.
    template <class T>
    [[nodiscard]] cpu::AttentionHeadOf<T> head(int task) const {
        const int h = task % params.heads, sequence = task / params.heads % lengths.rows;
        const int member = task / params.heads / lengths.rows, all = qkv.cols / 3, column = h * width();
        const std::int64_t row = std::int64_t{sequence} * positions();
        const auto at = [&](const Operand& o, int part = 0) {
            return o.present() ? o.at<T>(member, 0, row) + part * all + column : nullptr;
        };
        return {.width = width(),
                .positions = positions(),
                .filled = params.prefix + tokens_of(lengths, member, sequence, positions() - params.prefix),
                .prefix = params.prefix,
                .causal = params.causal,
                .scale = static_cast<T>(1 / std::sqrt(static_cast<double>(width()))),
                .q = at(qkv),
                .k = at(qkv, 1),
                .v = at(qkv, 2),
                .stride = qkv.stride_row,
                .logsumexp = logsumexp.at<T>(member, 0, row) + h,
                .logsumexp_stride = logsumexp.stride_row,
                .out = at(out),
                .out_stride = out.stride_row,
                .dout = at(dout),
                .dout_stride = dout.stride_row,
                .dq = at(dqkv),
                .dk = at(dqkv, 1),
                .dv = at(dqkv, 2),
                .gradient_stride = dqkv.stride_row,
                .scratch = nullptr};
    }
    [[nodiscard]] int count() const { return positions() == 0 ? 0 : qkv.k * lengths.rows * params.heads; }
};

Heads forward_heads(const Bound& b) {
    using namespace attention_forward;
    return {b.params<AttentionParams>(), b[qkv], b[lengths], b[logsumexp], b[out], {}, {}};
}
Heads backward_heads(const Bound& b) {
    using namespace attention_backward;
    return {b.params<AttentionParams>(), b[qkv], b[lengths], b[logsumexp], b[out], b[dout], b[dqkv]};
}

void run_heads(const Heads& heads, void (*one)(const cpu::AttentionHeadOf<double>&)) {
    for (int task = 0; task < heads.count(); ++task) one(heads.head<double>(task));
}
KernelResult make_heads(cpu::Context& context, const Heads& heads, void (*one)(const cpu::AttentionHead&)) {
    context.scratch.reserve_worker(attention_floats(context.simd, heads.positions(), heads.width()));
    return cpu::make_kernel([&context, heads, one]() noexcept {
        const std::int64_t work = 2 * heads.qkv.count() / 3 * heads.positions();
        context.pool.for_each_if(work >= cpu::kParallelProducts, heads.count(), [&](int task, int worker) {
            cpu::AttentionHead head = heads.head<float>(task);
            head.scratch = context.scratch.worker(worker);
            one(head);
        });
    });
}

using PlainHead = cpu::AttentionHeadOf<double>;

/// Positions that position i sees are the first so many.
int seen_by(const PlainHead& h, int i) { return h.causal ? std::min(h.filled, std::max(i + 1, h.prefix)) : h.filled; }

double dot(const PlainHead& h, const double* a, const double* b) {
    double sum = 0;
    for (int d = 0; d < h.width; ++d) sum += a[d] * b[d];
    return sum;
}
double score(const PlainHead& h, int i, int j) { return dot(h, h.q + i * h.stride, h.k + j * h.stride) * h.scale; }

void attend(const PlainHead& h) {
    for (int i = 0; i < h.positions; ++i) {
        double *to = h.out + i * h.out_stride, &logarithm = h.logsumexp[i * h.logsumexp_stride];
        std::fill_n(to, h.width, 0.0);
        logarithm = 0;
        if (i >= h.filled) continue;
        std::vector<double> scores(static_cast<std::size_t>(seen_by(h, i)));
        for (std::size_t j = 0; j < scores.size(); ++j) scores[j] = score(h, i, static_cast<int>(j));
        const double top = *std::max_element(scores.begin(), scores.end());
        double sum = 0;
        for (const double value : scores) sum += std::exp(value - top);
        logarithm = top + std::log(sum);
        for (int j = 0; j < seen_by(h, i); ++j) {
            const double weight = std::exp(scores[static_cast<std::size_t>(j)] - logarithm);
            for (int d = 0; d < h.width; ++d) to[d] += weight * h.v[j * h.stride + d];
        }
    }
}

void attend_back(const PlainHead& h) {
    for (double* part : {h.dq, h.dk, h.dv})
        for (int i = 0; i < h.positions; ++i) std::fill_n(part + i * h.gradient_stride, h.width, 0.0);
    for (int i = 0; i < h.filled; ++i) {
        const double* up = h.dout + i * h.dout_stride;
        const double delta = dot(h, up, h.out + i * h.out_stride);
        for (int j = 0; j < seen_by(h, i); ++j) {
            const double weight = std::exp(score(h, i, j) - h.logsumexp[i * h.logsumexp_stride]);
            const double dscore = weight * (dot(h, up, h.v + j * h.stride) - delta) * h.scale;
            for (int d = 0; d < h.width; ++d) {
                h.dq[i * h.gradient_stride + d] += dscore * h.k[j * h.stride + d];
                h.dk[j * h.gradient_stride + d] += dscore * h.q[i * h.stride + d];
                h.dv[j * h.gradient_stride + d] += weight * up[d];
            }
        }
    }
}

/// attention_cached for one sequence of one member. Two passes over the scores need no memory for them.
template <class T>
void attend_cached(const Bound& bound, int member, int sequence) {
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
        const auto score_of = [&](int p) {
            T sum = 0;
            for (int d = 0; d < width; ++d) sum += in[h * width + d] * row(p)[h * width + d];
            return sum * scale;
        };
        T top = score_of(0), sum = 0;
        for (int p = 1; p <= last; ++p) top = std::max(top, score_of(p));
        std::fill_n(out + h * width, width, T{0});
        for (int p = 0; p <= last; ++p) {
            const T weight = std::exp(score_of(p) - top);
            sum += weight;
            for (int d = 0; d < width; ++d) out[h * width + d] += weight * row(p)[all + h * width + d];
        }
        for (int d = 0; d < width; ++d) out[h * width + d] /= sum;
    }
}

}  // namespace

MILLRACE_OPERATOR_WITH(attention_forward, Phase::forward, attention_forward_flops, {"qkv"}, {"lengths"}, {"logsumexp", write},
                       {"out", write});
MILLRACE_OPERATOR_WITH(attention_backward, Phase::backward, attention_backward_flops, {"dout"}, {"qkv"}, {"lengths"},
                       {"logsumexp"}, {"out"}, {"delta", write}, {"dqkv", write});
MILLRACE_OPERATOR(attention_cached, Phase::forward, {"qkv"}, {"position"}, {"cache", update}, {"out", write});

void attention_forward::check(Checker& c) { check_heads(c, qkv, lengths, {logsumexp}, {out}); }
void attention_backward::check(Checker& c) {
    check_heads(c, qkv, lengths, {logsumexp, delta}, {out, dout}).require({dqkv}, real, c.shape(qkv));
}
void attention_cached::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(qkv);
    const int heads = c.params<CachedAttentionParams>().heads, all = cols / 3, cached = c.shape(cache).rows;
    c.require({qkv}, real, {k, 1, rows, 3 * all}).require({cache}, real, {k, 1, cached, 2 * all});
    c.require({out}, real, {k, 1, rows, all}).require({position}, i32, {1, 1, 1, 1});
    c.that(heads > 0 && all % heads == 0 && rows > 0 && cached % rows == 0 && cached > 0,
           "whole heads and as many positions for every sequence are needed");
}

MILLRACE_HOST_KERNELS(attention_forward, run_heads(forward_heads(bound), attend),
                      make_heads(context, forward_heads(bound), context.simd.attention_forward));
MILLRACE_HOST_KERNELS(attention_backward, run_heads(backward_heads(bound), attend_back),
                      make_heads(context, backward_heads(bound), context.simd.attention_backward));
MILLRACE_HOST_ROWS(attention_cached, qkv, bound[attention_cached::cache].count() / std::max(1, bound[attention_cached::cache].k),
                   attend_cached);

}  // namespace millrace::ops
