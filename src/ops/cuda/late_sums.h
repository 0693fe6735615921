#pragma once
// Second stages of sums over rows. What no record reads soon, such as the gradients of a norm's parameters, waits: all that do
// are one launch in front of the first record that reads or writes one of them, or at the end of the section.

#include "ops/cuda/context.h"
#include "ops/uses.h"

namespace millrace::ops::cuda {

/// out (+) [K,G,1,C] f32 = the sum over chunks, in an order fixed by their number, of `partial`, [K * G][chunks][pitch], which
/// begins with the first of the C columns.
struct ChunkSums {
    tensor::Operand out;
    const float* partial = nullptr;
    int chunks = 1, pitch = 1;
    bool accumulate = false;
    DeviceTable held = {};  ///< the memory of `partial`
    std::size_t made = 0;   ///< by the kernel of this record; with_sums sets it
};

/// A kernel that leaves chunks, with their sums but for absent outputs: `chunks` alone where these can wait. They cannot inside
/// of a region, nor where the same record has sums for the same output already.
KernelResult with_sums(Context& c, KernelPtr chunks, std::span<const ChunkSums> sums);
/// Those that wait, in one launch behind one of the record prepared last; none waits any more. Null: none did.
base::Result<KernelPtr> take_late_sums(Context& c);
/// Whether a record reads or writes what waits.
bool touches_late_sums(const Context& c, const Bound& record);

}  // namespace millrace::ops::cuda
