#pragma once
// What every kernel of the CPU backend is built with, and how it is made: one factory per operator, which returns something to
// run.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "base/result.h"
#include "comm/group.h"
#include "ops/backend.h"
#include "ops/cpu/simd_kernels.h"
#include "ops/cpu/thread_pool.h"
#include "ops/op.h"

namespace millrace::ops::cpu {

/// Working memory of kernels: one shared part and one part per worker. Kernels run one after another, so all of them use the same
/// memory; each says while it is prepared how much it needs, the backend allocates once, and running only reads the addresses.
class Scratch {
public:
    explicit Scratch(int workers) : workers_(static_cast<std::size_t>(workers)) {}

    /// Floats that were reserved.
    struct Wanted {
        std::size_t shared = 0, worker = 0;
    };
    void reserve_shared(std::size_t floats) { wanted_.shared = std::max(wanted_.shared, round(floats)); }
    void reserve_worker(std::size_t floats) { wanted_.worker = std::max(wanted_.worker, round(floats)); }
    /// Puts `wanted` in the place of what was reserved, which it gives back.
    Wanted want(Wanted wanted) { return std::exchange(wanted_, wanted); }
    [[nodiscard]] WorkingMemory memory(const Wanted& wanted) const {
        return {wanted.shared * sizeof(float), workers_ * wanted.worker * sizeof(float)};
    }

    /// Grows to what was reserved. Addresses change: never while a kernel runs.
    base::Status allocate() {
        if (const std::size_t size = floats(wanted_); size > size_) {
            float* memory =
                static_cast<float*>(::operator new (size * sizeof(float), std::align_val_t{kAlignment}, std::nothrow));
            if (memory == nullptr)
                return base::Error{"no memory for " + std::to_string(size * sizeof(float)) +
                                       " bytes of working memory; a smaller batch needs less",
                                   "", 1};
            memory_.reset(memory);
            size_ = size;
        }
        allocated_ = wanted_;
        return base::ok();
    }

    [[nodiscard]] float* shared() const { return memory_.get(); }
    [[nodiscard]] float* worker(int index) const {
        return memory_.get() + allocated_.shared + static_cast<std::size_t>(index) * allocated_.worker;
    }

private:
    static constexpr std::size_t kAlignment = 64;
    [[nodiscard]] std::size_t floats(const Wanted& wanted) const { return wanted.shared + workers_ * wanted.worker; }
    static std::size_t round(std::size_t floats) { return (floats + 15) / 16 * 16; }
    struct Free {
        void operator()(float* p) const { ::operator delete (p, std::align_val_t{kAlignment}); }
    };
    std::size_t workers_;
    Wanted wanted_, allocated_;
    std::size_t size_ = 0;  ///< floats
    std::unique_ptr<float, Free> memory_;
};

struct Context {
    ThreadPool pool;
    const SimdKernels& simd;
    Scratch scratch;
    comm::Group alone;
    comm::Group& group;                     ///< BackendOptions::group, or `alone`
    base::Status group_error = base::ok();  ///< the first of its calls since the last check

    Context(int threads, const SimdKernels& table, comm::Group* ranks = nullptr)
        : pool(threads), simd(table), scratch(pool.threads()), group(ranks != nullptr ? *ranks : alone) {}
    void note(base::Status status) {
        if (!status.ok() && group_error.ok()) group_error = std::move(status);
    }
};

/// Splits [0, size) into blocks of a multiple of `unit`.
struct Blocks {
    int size = 0, block = 1, count = 0;

    Blocks() = default;
    /// About `wanted` blocks, none longer than `longest` (a multiple of unit; 0: no limit).
    Blocks(int total, int unit, int wanted, int longest = 0) : size(total) {
        const int units = (total + unit - 1) / unit;
        const int parts = wanted < 1 ? 1 : wanted < units ? wanted : units;
        block = units == 0 ? unit : (units + parts - 1) / parts * unit;
        if (longest > 0 && block > longest) block = longest;
        count = (total + block - 1) / block;
    }
    [[nodiscard]] int begin(int index) const { return index * block; }
    [[nodiscard]] int end(int index) const { return index * block + block < size ? index * block + block : size; }
};

/// Work below this many multiply-adds (or elements touched) stays on the calling thread: handing it out costs more than it saves.
constexpr std::int64_t kParallelProducts = 200'000;
constexpr std::int64_t kParallelElements = 16'384;

/// A kernel that calls `body` with denormals flushed. The body must not throw or allocate.
template <class Body>
KernelResult make_kernel(Body body) {
    class BodyKernel final : public Kernel {
    public:
        explicit BodyKernel(Body&& work) : work_(std::move(work)) {}
        void run() noexcept override {
            FlushDenormals flush;
            work_();
        }

    private:
        Body work_;
    };
    return std::unique_ptr<Kernel>(std::make_unique<BodyKernel>(std::move(body)));
}

/// c (+) = a b, or a^T b: the products of the gradients.
KernelResult make_grad_product(Context& context, const tensor::Operand& a, const tensor::Operand& b, const tensor::Operand& c,
                               bool transposed, bool accumulate);

/// Calls body(member, group, col, cols) for blocks of at most kMaxColumns columns of every matrix; on all threads from `least`
/// elements on.
template <class Body>
void for_each_columns(Context& context, const tensor::Operand& shape, Body&& body,
                      std::int64_t least = kParallelElements) noexcept {
    const bool parallel = shape.count() >= least;
    const Blocks columns(shape.cols, 16, parallel ? 2 * context.pool.threads() : 1, kMaxColumns);
    context.pool.for_each_if(parallel, shape.k * shape.g * columns.count, [&](int task, int) {
        const int part = task % columns.count, batch = task / columns.count, col = columns.begin(part);
        body(batch / shape.g, batch % shape.g, col, columns.end(part) - col);
    });
}

/// Columns [col, col + cols) of the first row of a slot (+) = values; nothing where the slot is absent.
inline void put_columns(const Bound& b, int slot, int member, int group, int col, int cols, const float* values) noexcept {
    if (!b[slot].present()) return;
    float* out = b[slot].at<float>(member, group) + col;
    const bool add = b.accumulates(slot);
    for (int i = 0; i < cols; ++i) out[i] = add ? out[i] + values[i] : values[i];
}

/// Calls body(matrix, begin, end) for pieces of the rows of all matrices, on all threads when there is enough to do.
template <class Body>
void for_each_piece(Context& context, int matrices, int rows, std::int64_t elements_per_row, Body&& body) noexcept {
    const std::int64_t all = std::int64_t{matrices} * rows;
    const bool parallel = all > 1 && all * elements_per_row >= kParallelElements;
    const std::int64_t parts = parallel ? std::min<std::int64_t>(all, 4 * context.pool.threads()) : 1;
    context.pool.for_each_if(parallel, static_cast<int>(parts), [&](int part, int) {
        const std::int64_t end = all * (part + 1) / parts;
        for (std::int64_t at = all * part / parts; at < end;) {
            const std::int64_t first = at % rows, last = std::min<std::int64_t>(rows, first + end - at);
            body(static_cast<int>(at / rows), static_cast<int>(first), static_cast<int>(last));
            at += last - first;
        }
    });
}

/// The probability of a layer in one member.
inline float dropout_of(const MemberState& state, float p) { return std::min(p * state.dropout_scale, 0x1.fffffep-1f); }
/// Elements with bits below it are dropped.
inline std::uint32_t dropout_threshold(float p) { return static_cast<std::uint32_t>(static_cast<double>(p) * 4294967296.0); }
inline float dropout_scale(float p) { return static_cast<float>(1.0 / (1.0 - static_cast<double>(p))); }

inline RandomKey random_key(const MemberState& state, std::uint32_t op_number) {
    return RandomKey{state.seed, state.step, state.micro, op_number};
}

struct MaskStart {
    int member, group, row, col;
};

/// Gives a pass over the block of `out` that begins at `start` its mask; nothing without dropout.
template <class Pass, class Params>
void set_dropout(Pass& pass, const Params& params, const tensor::Operand& states, const tensor::Operand& out,
                 const MaskStart& start) {
    if (params.dropout <= 0) return;
    const MemberState& state = state_of(states, start.member);
    const float p = dropout_of(state, params.dropout);
    pass.threshold = dropout_threshold(p);
    pass.dropout_scale = dropout_scale(p);
    pass.random = random_key(state, params.op_number);
    pass.element_stride = static_cast<std::uint64_t>(out.cols);
    pass.element = (static_cast<std::uint64_t>(start.group) * out.rows + start.row) * pass.element_stride + start.col;
}

}  // namespace millrace::ops::cpu
