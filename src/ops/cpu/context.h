#pragma once
// What every kernel of the CPU backend is built with.

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
