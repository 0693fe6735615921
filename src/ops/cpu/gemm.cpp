#include "ops/cpu/gemm.h"

#include <algorithm>

namespace millrace::ops::cpu {
namespace {

using tensor::Operand;

constexpr int kChunkRows = 128;     ///< rows of a batch whose transposed block is kept at once
constexpr int kPanelColumns = 256;  ///< columns of b packed at once: with kDepth rows they fill a part of the second cache
constexpr int kGradTasks = 2;       ///< per thread: each packs its own b, so the fewer, the less is packed twice
constexpr std::int64_t kManyElements = 1 << 18;  ///< a matrix of this size does not stay in the second cache

int round_up(int value, int unit) { return (value + unit - 1) / unit * unit; }

int panel_columns(const SimdKernels& simd) { return round_up(kPanelColumns, simd.nr); }

/// Columns per block come in whole tiles and, where the tile allows, whole cache lines.
int column_unit(const SimdKernels& simd) { return 16 % simd.mr == 0 ? 16 : 2 * simd.mr; }

}  // namespace

ForwardProduct::ForwardProduct(Context& context, const Operand& x, const Operand& w, bool rows_may_split)
    : context_(context), x_(x), w_(w) {
    const SimdKernels& simd = context.simd;
    const int batches = x.k * w.g, threads = context.pool.threads();
    parallel_ = threads > 1 && std::int64_t{batches} * x.rows * x.cols * w.rows >= kParallelProducts;
    const int unit = column_unit(simd), longest = kMaxColumns / unit * unit;
    const int wanted = parallel_ ? (4 * threads + batches - 1) / batches : 1;
    columns_ = Blocks(w.rows, unit, wanted, longest);
    const int row_parts = rows_may_split && parallel_ ? wanted / std::max(1, columns_.count) : 1;
    rows_ = Blocks(x.rows, round_up(32, simd.nr), row_parts);
    packed_members_ = x.stride_k == 0 ? 1 : x.k;
    packed_groups_ = x.stride_g == 0 ? 1 : x.g;
    panels_ = (x.rows + simd.nr - 1) / simd.nr;
    context.scratch.reserve_shared(packed_floats());
    context.scratch.reserve_worker(static_cast<std::size_t>(round_up(columns_.block, simd.mr)) * (kChunkRows + simd.nr));
}

std::size_t ForwardProduct::packed_floats() const {
    return static_cast<std::size_t>(packed_members_) * packed_groups_ * panels_ * context_.simd.nr * x_.cols;
}

std::size_t ForwardProduct::worker_floats(const SimdKernels& simd) {
    return static_cast<std::size_t>(round_up(kMaxColumns, simd.mr)) * (kChunkRows + simd.nr);
}

void ForwardProduct::place_behind(std::size_t floats) {
    shared_offset_ = floats;
    context_.scratch.reserve_shared(floats + packed_floats());
}

const float* ForwardProduct::panel(int member, int group, int panel_index, int depth) const {
    const std::int64_t matrix = std::int64_t{member % packed_members_} * packed_groups_ + group % packed_groups_;
    return context_.scratch.shared() + shared_offset_ + ((matrix * panels_ + panel_index) * x_.cols + depth) * context_.simd.nr;
}

void ForwardProduct::pack(const std::int32_t* rows, const std::int32_t* counts) const noexcept {
    const int nr = context_.simd.nr, tasks = packed_members_ * packed_groups_ * panels_;
    context_.pool.for_each_if(parallel_ && x_.count() >= kParallelElements, tasks, [&](int task, int worker) {
        const int p = task % panels_, group = task / panels_ % packed_groups_, member = task / panels_ / packed_groups_;
        const int here = std::min(nr, (rows != nullptr ? counts[member] : x_.rows) - p * nr);
        if (here <= 0) return;
        const std::int32_t* row = rows != nullptr ? rows + std::int64_t{member} * x_.rows + p * nr : nullptr;
        const float* from = x_.at<float>(member, group, row != nullptr ? row[0] : std::int64_t{p} * nr);
        std::int64_t stride = x_.stride_row;
        if (row != nullptr && row[here - 1] - row[0] != here - 1) {
            float* gathered = context_.scratch.worker(worker);
            for (int i = 0; i < here; ++i)
                std::copy_n(x_.at<float>(member, group, row[i]), x_.cols, gathered + std::int64_t{i} * x_.cols);
            from = gathered;
            stride = x_.cols;
        }
        context_.simd.pack_transposed(x_.cols, from, stride, here, nr, const_cast<float*>(panel(member, group, p, 0)));
    });
}

ForwardProduct::Block ForwardProduct::block(int index) const {
    const int c = index % columns_.count, r = index / columns_.count % rows_.count;
    const int batch = index / columns_.count / rows_.count;
    return Block{batch / w_.g,      batch % w_.g,
                 rows_.begin(r),    rows_.end(r) - rows_.begin(r),
                 columns_.begin(c), columns_.end(c) - columns_.begin(c)};
}

// Rows of w are read where they lie and x is packed, because w is used once per batch and x once per output: the tile computes
// y^T.
void ForwardProduct::run(const Block& block, float* c, std::int64_t ldc, int worker) const noexcept {
    const SimdKernels& simd = context_.simd;
    const int depth = x_.cols;
    float* transposed = context_.scratch.worker(worker);
    for (int chunk = 0; chunk < block.rows; chunk += kChunkRows) {
        const int rows = std::min(kChunkRows, block.rows - chunk);
        const std::int64_t ld = round_up(rows, simd.nr);
        int k = 0;
        do {
            const int kc = std::min(kDepth, depth - k);
            for (int row = 0; row < rows; row += simd.nr) {
                const float* x = panel(block.member, block.group, (block.row + chunk + row) / simd.nr, k);
                for (int col = 0; col < block.cols; col += simd.mr) {
                    const float* w = w_.at<float>(block.member, block.group, block.col + col) + k;
                    simd.tile_rows(kc, w, w_.stride_row, std::min(simd.mr, block.cols - col), x, transposed + col * ld + row, ld,
                                   k > 0);
                }
            }
            k += kDepth;
        } while (k < depth);
        simd.transpose(block.cols, rows, transposed, ld, c + chunk * ldc, ldc);
    }
}

GradProduct::GradProduct(Context& context, const Operand& a, const Operand& b, const Operand& c, bool transposed, bool accumulate)
    : context_(context), a_(a), b_(b), c_(c), transposed_(transposed), accumulate_(accumulate), depth_(b.rows) {
    const SimdKernels& simd = context.simd;
    const int batches = c.k * c.g, threads = context.pool.threads();
    parallel_ = threads > 1 && std::int64_t{batches} * c.rows * c.cols * depth_ >= kParallelProducts;
    const int wanted = parallel_ ? (kGradTasks * threads + batches - 1) / batches : 1;
    // A task goes through all of a's rows that belong to it: with many of them the tasks share rows out, so that a comes from
    // memory once, and else columns, so that b is packed once.
    const int row_unit = round_up(16, simd.mr);
    if (c.rows >= row_unit * wanted && std::int64_t{c.rows} * depth_ >= kManyElements) {
        rows_ = Blocks(c.rows, row_unit, wanted);
        columns_ = Blocks(c.cols, simd.nr, parallel_ ? wanted / std::max(1, rows_.count) : 1);
        packs_a_by_task_ = transposed && columns_.count == 1;
    } else {
        columns_ = Blocks(c.cols, simd.nr, wanted);
        rows_ = Blocks(c.rows, row_unit, parallel_ ? wanted / std::max(1, columns_.count) : 1);
    }
    if (transposed && !packs_a_by_task_) {
        a_panel_floats_ = std::int64_t{round_up(c.rows, simd.mr)} * depth_;
        context.scratch.reserve_shared(static_cast<std::size_t>(batches * a_panel_floats_));
    }
    const int kc = std::min(kDepth, depth_), width = std::min(columns_.block, panel_columns(simd));
    b_floats_ = std::int64_t{kc} * width;
    const std::int64_t a_floats = packs_a_by_task_ ? std::int64_t{kc} * round_up(rows_.block, simd.mr) : 0;
    context.scratch.reserve_worker(static_cast<std::size_t>(b_floats_ + a_floats));
}

void GradProduct::run() const noexcept {
    if (transposed_ && !packs_a_by_task_) pack_a();
    const int tasks = c_.k * c_.g * columns_.count * rows_.count;
    context_.pool.for_each_if(parallel_, tasks, [this](int index, int worker) { task(index, worker); });
}

void GradProduct::pack_a() const noexcept {
    const int mr = context_.simd.mr;
    const Blocks parts(c_.rows, mr, parallel_ && a_.count() >= kParallelElements ? context_.pool.threads() : 1);
    context_.pool.for_each_if(parts.count > 1, c_.k * c_.g * parts.count, [&](int index, int) {
        const int part = index % parts.count, batch = index / parts.count, row = parts.begin(part);
        pack(a_, mr, batch / c_.g, batch % c_.g, row, parts.end(part) - row, 0, depth_,
             context_.scratch.shared() + batch * a_panel_floats_ + std::int64_t{row} * depth_);
    });
}

void GradProduct::pack(const Operand& from, int unit, int member, int group, int first, int count, int depth, int kc,
                       float* panels) const noexcept {
    for (int at = 0; at < count; at += unit)
        context_.simd.pack_rows(kc, from.at<float>(member, group, depth) + first + at, from.stride_row,
                                std::min(unit, count - at), unit, panels + std::int64_t{at} * kc);
}

void GradProduct::task(int index, int worker) const noexcept {
    const SimdKernels& simd = context_.simd;
    const int cb = index % columns_.count, rb = index / columns_.count % rows_.count;
    const int batch = index / columns_.count / rows_.count, member = batch / c_.g, group = batch % c_.g;
    const int first = rows_.begin(rb), last = rows_.end(rb), width = panel_columns(simd);
    float *b = context_.scratch.worker(worker), *a_piece = b + b_floats_;
    const float* a_whole = context_.scratch.shared() + batch * a_panel_floats_;
    int k = 0;
    do {
        const int kc = std::min(kDepth, depth_ - k);
        if (packs_a_by_task_) pack(a_, simd.mr, member, group, first, last - first, k, kc, a_piece);
        for (int col = columns_.begin(cb); col < columns_.end(cb); col += width) {
            const int cols = std::min(width, columns_.end(cb) - col);
            pack(b_, simd.nr, member, group, col, cols, k, kc, b);
            for (int row = first; row < last; row += simd.mr) {
                const float* a = packs_a_by_task_ ? a_piece + std::int64_t{row - first} * kc
                                                  : a_whole + std::int64_t{row} * depth_ + std::int64_t{k} * simd.mr;
                for (int c = 0; c < cols; c += simd.nr)
                    tile(member, group, row, col + c, k, kc, a, b + std::int64_t{c} * kc, accumulate_ || k > 0);
            }
        }
        k += kDepth;
    } while (k < depth_);
}

void GradProduct::tile(int member, int group, int row, int col, int depth, int kc, const float* a, const float* b,
                       bool add) const noexcept {
    const SimdKernels& simd = context_.simd;
    const int rows = std::min(simd.mr, c_.rows - row), cols = std::min(simd.nr, c_.cols - col);
    const bool whole = rows == simd.mr && cols == simd.nr;
    float edge[kMaxTileRows * kMaxTileColumns];
    float* target = c_.at<float>(member, group, row) + col;
    float* out = whole ? target : edge;
    const std::int64_t ld = whole ? c_.stride_row : simd.nr;
    if (transposed_) {
        simd.tile_panels(kc, a, b, out, ld, whole && add);
    } else {
        simd.tile_rows(kc, a_.at<float>(member, group, row) + depth, a_.stride_row, rows, b, out, ld, whole && add);
    }
    if (whole) return;
    for (int r = 0; r < rows; ++r) {
        for (int c = 0; c < cols; ++c) {
            float& value = target[r * c_.stride_row + c];
            value = add ? value + edge[r * simd.nr + c] : edge[r * simd.nr + c];
        }
    }
}

}  // namespace millrace::ops::cpu
