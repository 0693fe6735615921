#pragma once
// What every kernel of the CPU backend is built with.

#include "comm/group.h"
#include "ops/backend.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/simd_kernels.h"
#include "ops/cpu/thread_pool.h"

namespace millrace::ops::cpu {

struct Context {
    ThreadPool pool;
    const SimdKernels& simd;
    Scratch scratch;
    comm::Group* const group;               ///< BackendOptions::group
    base::Status group_error = base::ok();  ///< the first of its calls since the last check

    Context(int threads, const SimdKernels& table, comm::Group* ranks = nullptr)
        : pool(threads), simd(table), scratch(pool.threads()), group(ranks) {}
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

}  // namespace millrace::ops::cpu
