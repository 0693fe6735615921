// The vocabulary head for all shapes and precisions: rows go in chunks whose logits fit the second cache, through the products of
// the linear layers.

#include <vector>

#include "ops/cuda/context.h"
#include "ops/vocabulary/tiles.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;
namespace at = vocabulary_loss;

constexpr std::int64_t kChunkBytes = 32 << 20, kLeastRows = 64;

/// One block per row: logits without bias become gradients, zeros where no token is predicted.
template <class T>
__global__ void vocabulary_rows_kernel(Mat<T> logits, Mat<const float> bias, Mat<const std::int32_t> ids,
                                       Mat<const std::int32_t> lengths, States state, Mat<float> logsumexp, Found* found,
                                       TokenShape shape, int begin, TokenLossParams p) {
    __shared__ float sums[32];
    __shared__ int counts[32];
    begin_kernel();
    const int k = blockIdx.z, row = begin + blockIdx.x, sequence = row / shape.positions, t = row % shape.positions - p.first;
    T* l = logits.row(k, 0, blockIdx.x);
    const float* shift = bias ? bias.row(k, 0, 0) : nullptr;
    Found& out = found[std::int64_t{k} * shape.sequences * shape.positions + row];
    const bool asked = t >= 0 && t < tokens_of(lengths, k, sequence, shape.tokens);
    const std::int32_t id = asked ? ids.row(k, 0, sequence)[t] : 0;
    if (!asked || id < 0 || id >= shape.vocabulary) {  // the same for the whole block
        for (int c = threadIdx.x; c < shape.vocabulary; c += blockDim.x) store(l + c, 0.0f);
        if (threadIdx.x == 0) {
            out = {0, 0, asked};
            *logsumexp.row(k, 0, row) = 0;
        }
        return;
    }
    const auto logit = [l, shift](int c) { return load(l + c) + (shift != nullptr ? shift[c] : 0); };
    float most, part = 0;
    int best;
    block_largest(logit, shape.vocabulary, most, best);
    for (int c = threadIdx.x; c < shape.vocabulary; c += blockDim.x) part += expf(logit(c) - most);
    const float total = block_sum(part, sums);
    if (threadIdx.x == 0) {
        const float loss = logf(total) - (logit(id) - most);
        out = {loss, best == id, !isfinite(loss)};
        *logsumexp.row(k, 0, row) = most + logf(total);
    }
    const float share = static_cast<float>(p.scale / block_tokens(lengths, k, shape, counts)) * state[k].loss_scale;
    for (int c = threadIdx.x; c < shape.vocabulary; c += blockDim.x)
        store(l + c, (expf(logit(c) - most) / total - (c == id ? 1.0f : 0.0f)) * share);
}

Operand rows_of(const Operand& whole, int begin, int count) {
    Operand part = whole;
    part.rows = count;
    part.data =
        static_cast<std::byte*>(whole.data) + begin * whole.stride_row * static_cast<std::int64_t>(tensor::size_of(whole.dtype));
    return part;
}

}  // namespace

namespace vocabulary {

KernelResult make_plain(Context& c, const Bound& b, const TokenShape& shape, const DeviceTable& found) {
    const Operand &x = b[at::x], &weight = b[at::weight], &ids = b[at::ids], &l = b[at::lengths], &dx = b[at::dx],
                  &dweight = b[at::dweight], &dbias = b[at::dbias];
    const auto& p = b.params<TokenLossParams>();
    const std::int64_t row_bytes = std::int64_t{weight.rows} * static_cast<std::int64_t>(tensor::size_of(x.dtype));
    const auto most = static_cast<int>(std::min<std::int64_t>(x.rows, std::max(kLeastRows, kChunkBytes / row_bytes)));
    MILLRACE_LET(memory, zero_table(c, static_cast<std::size_t>(std::max<std::int64_t>(1, row_bytes * most * x.k))));
    std::vector<std::shared_ptr<Kernel>> steps;
    const auto then = [&steps](KernelResult made) -> base::Status {
        if (!made.ok()) return made.error();
        steps.emplace_back(std::move(*made));
        return base::ok();
    };
    int begin = 0;
    do {  // once even without rows: the gradients of the weights become zeros
        const int rows = std::min(most, x.rows - begin);
        const Operand logits{memory.get(), x.dtype, x.k, 1, rows, weight.rows, std::int64_t{most} * weight.rows, 0, weight.rows};
        const Operand part = rows_of(x, begin, rows);
        MILLRACE_TRY(then(make_product(c, Product::forward, part, weight, logits, false)));
        if (rows > 0)
            MILLRACE_TRY(then(by_real(x.dtype, [&]<class T>(T) -> KernelResult {
                return make_launch(c, vocabulary_rows_kernel<T>, dim3(rows, 1, x.k), threads_for(shape.vocabulary), 0, logits,
                                   b[at::bias], ids, l, b[at::state], b[at::logsumexp], found, shape, begin, p);
            })));
        if (dx.present())
            MILLRACE_TRY(then(make_product(c, Product::dgrad, logits, weight, rows_of(dx, begin, rows), b.accumulates(at::dx))));
        if (dweight.present())
            MILLRACE_TRY(then(make_product(c, Product::wgrad, logits, part, dweight, begin > 0 || b.accumulates(at::dweight))));
        if (dbias.present()) MILLRACE_TRY(then(make_column_sum(c, logits, dbias, begin > 0 || b.accumulates(at::dbias))));
        begin += most;
    } while (begin < x.rows);
    return make_kernel([steps, memory] {
        for (const std::shared_ptr<Kernel>& step : steps) step->run();
    });
}

}  // namespace vocabulary
}  // namespace millrace::ops::cuda
