#pragma once
// Matrix products in f32 over [K, G] batches of row-major matrices. The sum of every output element runs over its terms in
// ascending order in pieces of kDepth, so neither threads, nor block sizes, nor the number of members change a bit of it.

#include <cstdint>

#include "ops/cpu/kernel.h"
#include "tensor/view.h"

namespace millrace::ops::cpu {

constexpr int kDepth =
    256;  ///< terms summed in registers before they meet memory: a panel of that depth stays in the first cache

/// y = x w^T: x [K,G,B,In], w [K,G,Out,In]. The caller runs the blocks, so that it can finish a block while it is in the cache.
class ForwardProduct {
public:
    /// Reserves scratch. `rows_may_split`: blocks may be parts of the batch (not with batch statistics).
    ForwardProduct(Context& context, const tensor::Operand& x, const tensor::Operand& w, bool rows_may_split);

    [[nodiscard]] int blocks() const { return x_.k * w_.g * columns_.count * rows_.count; }
    [[nodiscard]] bool parallel() const { return parallel_; }
    /// Before the blocks of a run: packs x. With `rows` row i of member m is rows[m * x.rows + i], i < counts[m], of x: the
    /// blocks then run over those. `x` must have one matrix per member.
    void pack(const std::int32_t* rows = nullptr, const std::int32_t* counts = nullptr) const noexcept;
    /// Moves the packed x behind `floats` of the shared scratch, which another product uses at the same time.
    void place_behind(std::size_t floats);
    [[nodiscard]] std::size_t packed_floats() const;
    /// Takes `x` of the same shape from another place.
    void move(const tensor::Operand& x) { x_ = x; }
    /// What run() uses at the beginning of a worker's scratch, for blocks of up to kMaxColumns columns.
    [[nodiscard]] static std::size_t worker_floats(const SimdKernels& simd);

    struct Block {
        int member, group, row, rows, col, cols;
    };
    [[nodiscard]] Block block(int index) const;
    /// c [rows, cols] = that block of the product.
    void run(const Block& block, float* c, std::int64_t ldc, int worker) const noexcept;

private:
    [[nodiscard]] const float* panel(int member, int group, int panel_index, int depth) const;
    Context& context_;
    tensor::Operand x_, w_;
    Blocks columns_, rows_;
    int packed_groups_ = 1, packed_members_ = 1, panels_ = 0;
    std::size_t shared_offset_ = 0;
    bool parallel_ = false;
};

/// c (+)= a b, a [K,G,M,D], b [K,G,D,N].  (transposed: a [K,G,D,M], c (+)= a^T b.)
class GradProduct {
public:
    GradProduct(Context& context, const tensor::Operand& a, const tensor::Operand& b, const tensor::Operand& c, bool transposed,
                bool accumulate);
    /// Takes operands of the same shapes from other places.
    void move(const tensor::Operand& a, const tensor::Operand& b, const tensor::Operand& c) { a_ = a, b_ = b, c_ = c; }
    void run() const noexcept;

private:
    void pack_a() const noexcept;
    /// Columns [first, first + count) of rows [depth, depth + kc) of `from`, in panels of `unit` columns.
    void pack(const tensor::Operand& from, int unit, int member, int group, int first, int count, int depth, int kc,
              float* panels) const noexcept;
    void task(int index, int worker) const noexcept;
    /// a: the panel of the tile's rows, when transposed.
    void tile(int member, int group, int row, int col, int depth, int kc, const float* a, const float* b,
              bool add) const noexcept;

    Context& context_;
    tensor::Operand a_, b_, c_;
    bool transposed_, accumulate_, parallel_ = false;
    bool packs_a_by_task_ = false;  ///< a transposed is packed piece by piece, by the one task that uses the piece
    int depth_ = 0;
    Blocks columns_, rows_;
    std::int64_t a_panel_floats_ = 0, b_floats_ = 0;
};

}  // namespace millrace::ops::cpu
