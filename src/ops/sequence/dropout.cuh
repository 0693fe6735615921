#pragma once
// Dropout in kernels of a whole layer: a block holds rows of one member and keeps that member's state in shared memory.

#include "ops/cuda/async_copy.cuh"
#include "ops/cuda/device.cuh"
#include "ops/dense/dense.h"

namespace millrace::ops::cuda::sequence {

/// Of a dense record.
inline Dropout dropout_of(const Bound& b) {
    const auto& p = b.params<DenseParams>();
    return {p.dropout, p.op_number};
}

/// Begins to copy the state of member k, a word a thread: it is needed much later and takes no registers until then.
__device__ inline void stage_state(const States& states, int k, MemberState* to) {
    const auto word = static_cast<int>(threadIdx.x);
    if (word >= static_cast<int>(sizeof(MemberState) / 4)) return;
    copy4(shared_address(reinterpret_cast<std::uint32_t*>(to) + word), reinterpret_cast<const std::uint32_t*>(&states[k]) + word,
          true);
}

/// Which of a thread's elements stay, a bit each, and what these are multiplied by.
struct Kept {
    std::uint32_t bits = 0;
    float factor = 0;
    [[nodiscard]] __device__ float operator[](int i) const { return (bits >> i & 1u) != 0 ? factor : 0; }
};

/// Dropout of runs of four elements. A layer's columns are a multiple of four, so that such a run is a random block.
struct Mask {
    DropoutKey key;
    DropoutRule rule;

    __device__ Mask(const Dropout& d, const MemberState& m)
        : key{m.seed, m.step, m.micro, d.op_number, d.probability, m.dropout_scale}, rule(dropout_rule(key)) {}
    /// `runs` <= 8 of them: random block `block` and every `step`-th one behind it.
    [[nodiscard]] __device__ Kept draw(int runs, std::uint32_t block, int step) const {
        Kept kept{0, rule.factor};
#pragma unroll 1
        for (int i = 0; i < runs; ++i, block += step) {  // rolled: code is fetched as slowly as data
            const auto four = base::random_block(key.seed, key.step, key.micro, key.op, block);
#pragma unroll
            for (int j = 0; j < 4; ++j) kept.bits |= (four.v[j] >= rule.threshold ? 1u : 0u) << (4 * i + j);
        }
        return kept;
    }
};

}  // namespace millrace::ops::cuda::sequence
