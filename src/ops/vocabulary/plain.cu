// The vocabulary head for all shapes and precisions: rows go in chunks of logits that are stored, through the products of
// the linear layers.

#include <vector>

#include "ops/cuda/late_sums.h"
#include "ops/vocabulary/tiles.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;
namespace at = vocabulary_loss;

/// Rows whose logits are in memory at once: all, unless they take more than a 128th of the device. Chunks that stay in the second
/// cache save 8 bytes a logit and cost more than that, since their products are small: 1.19 instead of 0.97 ms for 16,384 rows of
/// 384 columns and 10,000 words on an H200.
int chunk_rows(const Context& c, const Operand& x, const Operand& weight) {
    constexpr std::int64_t kLeastRows = 64;
    const int members = c.deterministic ? 1 : x.k;  // whose sums of chunks must not depend on the others
    const std::int64_t row_bytes = std::int64_t{members} * weight.rows * static_cast<std::int64_t>(tensor::size_of(x.dtype));
    const std::int64_t most = std::max(kLeastRows, static_cast<std::int64_t>(c.memory_bytes / 128) / row_bytes);
    const std::int64_t chunks = std::max<std::int64_t>(1, (x.rows + most - 1) / most);
    return static_cast<int>((x.rows + chunks - 1) / chunks);
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

KernelResult make_plain(Context& c, const Bound& b, const TokenSums& found) {
    const Operand &x = b[at::x], &weight = b[at::weight], &dx = b[at::dx], &dweight = b[at::dweight], &dbias = b[at::dbias];
    const std::int64_t row_bytes = std::int64_t{weight.rows} * static_cast<std::int64_t>(tensor::size_of(x.dtype));
    const int most = chunk_rows(c, x, weight);
    MILLRACE_LET(memory, zero_table(c, static_cast<std::size_t>(std::max<std::int64_t>(1, row_bytes * most * x.k))));
    Kernels steps;
    const auto then = [&steps](KernelResult made) -> base::Status {
        if (!made.ok()) return made.error();
        steps.emplace_back(std::move(*made));
        return base::ok();
    };
    const bool differentiates = dx.present() || dweight.present() || dbias.present();
    int begin = 0;
    do {  // once even without rows: the gradients of the weights become zeros
        const int rows = std::min(most, x.rows - begin);
        const Operand logits{memory.get(), x.dtype, x.k, 1, rows, weight.rows, std::int64_t{most} * weight.rows, 0, weight.rows};
        const Operand part = rows_of(x, begin, rows), gradients = differentiates ? logits : Operand{};
        MILLRACE_TRY(then(make_product(c, Product::forward, part, weight, logits, false)));
        // The sums for the bias come with the losses where a block of these holds whole rows.
        const int parts = dbias.present() ? token_loss_parts(logits, gradients, b[at::bias]) : 0;
        ChunkSums bias_sums{dbias, nullptr, parts, weight.rows, begin > 0 || b.accumulates(at::dbias)};
        if (parts > 0) {
            const std::int64_t floats = std::int64_t{x.k} * parts * weight.rows;
            MILLRACE_LET(table, zero_table(c, sizeof(float) * static_cast<std::size_t>(floats)));
            bias_sums.held = table;
            bias_sums.partial = static_cast<float*>(table);
        }
        auto losses = make_kernel([stream = c.stream, logits, gradients, bias = b[at::bias], ids = b[at::ids],
                                   each = b[at::losses], found, begin, partial = bias_sums.held] {
            launch_token_losses(stream, logits, gradients, bias, ids, each, found, begin, static_cast<float*>(partial));
        });
        MILLRACE_TRY(then(with_sums(c, std::move(losses), std::span(&bias_sums, parts > 0 ? 1 : 0))));
        if (dx.present())
            MILLRACE_TRY(then(make_product(c, Product::dgrad, logits, weight, rows_of(dx, begin, rows), b.accumulates(at::dx))));
        if (dweight.present())
            MILLRACE_TRY(then(make_product(c, Product::wgrad, logits, part, dweight, begin > 0 || b.accumulates(at::dweight))));
        if (dbias.present() && parts == 0)
            MILLRACE_TRY(then(make_column_sum(c, logits, dbias, begin > 0 || b.accumulates(at::dbias))));
        begin += most;
    } while (begin < x.rows);
    return in_order(std::move(steps), memory);
}

}  // namespace vocabulary
}  // namespace millrace::ops::cuda
