#pragma once
// Fragments of tensor core products from shared memory, by its 32-bit addresses.

#include <cstdint>

namespace millrace::ops::cuda::sequence {

/// Four 8 x 8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
__device__ inline void load_fragments(std::uint32_t (&to)[4], std::uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
}

}  // namespace millrace::ops::cuda::sequence
