#include <algorithm>

#include "base/philox.h"
#include "ops/cpu/kernel.h"
#include "ops/gather/gather.h"

namespace millrace::ops::cpu {
namespace {

using namespace gather_rows;
using tensor::DType;

}  // namespace

KernelResult make_gather_rows(Context& context, const Bound& bound) {
    const auto p = bound.params<GatherRowsParams>();
    const tensor::Operand& result = bound[out];
    Checker check(bound);
    const DType type = result.dtype == DType::i32 ? DType::i32 : DType::f32;
    check.require(out, type, result.k, 1, result.rows, result.cols).state(state, result.k);
    check.require(table, type, 1, 1, bound[table].rows, result.cols);
    check.require(subset, DType::i32, 1, 1, static_cast<int>(p.samples), 1);
    MILLRACE_TRY(check.status());
    return make_kernel([&context, b = bound, p]() noexcept {
        const tensor::Operand& to = b[out];
        const bool parallel = to.count() >= kParallelElements;
        const Blocks rows(to.rows, 8, parallel ? 2 * context.pool.threads() : 1);
        context.pool.for_each_if(parallel, to.k * rows.count, [&](int task, int) {
            const int member = task / rows.count, part = task % rows.count;
            const MemberState& s = state_of(b[state], member);
            const base::Shuffle order = base::make_shuffle(s.seed, s.epoch, p.samples);
            for (int row = rows.begin(part); row < rows.end(part); ++row) {
                const std::uint32_t q = (p.training ? s.position : s.eval_position) + static_cast<std::uint32_t>(row);
                if (q >= p.samples) break;
                const std::uint32_t place = p.shuffle ? base::shuffled_index(order, q) : q;
                const std::int32_t sample = *b[subset].at<std::int32_t>(0, 0, place);
                if (to.dtype == DType::i32)
                    std::copy_n(b[table].at<std::int32_t>(0, 0, sample), to.cols, to.at<std::int32_t>(member, 0, row));
                else
                    std::copy_n(b[table].at<float>(0, 0, sample), to.cols, to.at<float>(member, 0, row));
            }
        });
    });
}

}  // namespace millrace::ops::cpu
