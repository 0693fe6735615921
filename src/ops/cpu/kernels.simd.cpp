#include "ops/cpu/simd_kernels.h"

namespace millrace::ops::cpu::MILLRACE_ISA {

#include "ops/cpu/vector.inl"

#include "ops/cpu/gemm_tiles.inl"

#include "ops/cpu/column_loops.inl"

#include "ops/cpu/row_loops.inl"

#include "ops/cpu/text_loops.inl"

#include "ops/conv/pool_loops.inl"

namespace {

#if defined(__aarch64__)
constexpr const char *kId = "neon", *kName = "NEON";
#elif defined(__x86_64__)
constexpr const char* kId = kVectorBytes == 64 ? "avx512" : kVectorBytes == 32 ? "avx2" : "sse2";
constexpr const char* kName = kVectorBytes == 64 ? "AVX-512" : kVectorBytes == 32 ? "AVX2" : "SSE2";
#else
constexpr const char *kId = "portable", *kName = "portable";
#endif

}  // namespace

constexpr SimdKernels simd_kernels = {.id = kId,
                                      .name = kName,
                                      .vector_bytes = kVectorBytes,
                                      .mr = kTileRows,
                                      .nr = kTileColumns,
                                      .tile_rows = tile_rows,
                                      .tile_panels = tile_panels,
                                      .pack_rows = pack_rows,
                                      .pack_transposed = pack_transposed,
                                      .transpose = transpose,
                                      .column_sums = column_sums,
                                      .column_squares = column_squares,
                                      .column_pass = column_pass,
                                      .column_backward = column_backward,
                                      .column_norm_backward = column_norm_backward,
                                      .add_rows = add_rows,
                                      .scale_row = scale_row,
                                      .layernorm_row = layernorm_row,
                                      .layernorm_row_backward = layernorm_row_backward,
                                      .layernorm_column_sums = layernorm_column_sums,
                                      .squared_distance = squared_distance,
                                      .gru_gates = gru_gates,
                                      .gru_row_backward = gru_row_backward,
                                      .largest = largest_at,
                                      .exp_sum = exp_sum,
                                      .attention_forward = attention_forward_head,
                                      .attention_backward = attention_backward_head,
                                      .pool_forward = pool_forward,
                                      .pool_backward = pool_backward,
                                      .adam = adam,
                                      .sgd = sgd,
                                      .sum_of_squares = sum_of_squares,
                                      .pixels = pixels};

}  // namespace millrace::ops::cpu::MILLRACE_ISA
