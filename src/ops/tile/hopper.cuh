#pragma once
// The instructions of compute capability 9.0a that a tiled product is made of: barriers in shared memory, asynchronous copies,
// and matrix products that a warpgroup (four warps) issues with operands in shared memory and sums in registers. Code for other
// devices compiles to nothing and is never launched (tile_product.cuh asks first).
//
// Operands lie in shared memory as rows of 64 bf16 (128 bytes), 16-byte piece c of row r at place c ^ (r & 7) of the row, eight
// rows after another: the 128-byte swizzle, K-major.

#include <cstdint>

#include "ops/cuda/device.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define MILLRACE_HOPPER 1
#endif

namespace millrace::ops::cuda::hopper {

__device__ inline std::uint32_t shared_address(const void* p) { return static_cast<std::uint32_t>(__cvta_generic_to_shared(p)); }

#ifdef MILLRACE_HOPPER
#define MILLRACE_ASM(...) asm volatile(__VA_ARGS__)
#else
#define MILLRACE_ASM(...) (void)0
#endif

__device__ inline void barrier_init(std::uint32_t barrier, int arrivals) {
    MILLRACE_ASM("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
/// Makes initialised barriers known to the copy engine.
__device__ inline void barriers_ready() { MILLRACE_ASM("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void barrier_arrive(std::uint32_t barrier) {
    MILLRACE_ASM("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Arrives and announces `bytes` that a bulk copy will bring.
__device__ inline void barrier_expect(std::uint32_t barrier, std::uint32_t bytes) {
    MILLRACE_ASM("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ inline void barrier_wait(std::uint32_t barrier, std::uint32_t parity) {
    MILLRACE_ASM(
        "{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @done bra ready; bra again; "
        "ready: }" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

/// 16 bytes to shared memory; `bytes` 0 writes zeros.
__device__ inline void copy16(std::uint32_t to, const void* from, int bytes) {
    MILLRACE_ASM("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
/// Arrives when this thread's copies so far have landed.
__device__ inline void copies_arrive(std::uint32_t barrier) {
    MILLRACE_ASM("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
__device__ inline void bulk_copy(std::uint32_t to, const void* from, std::uint32_t bytes, std::uint32_t barrier) {
    MILLRACE_ASM("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
                 "r"(bytes), "r"(barrier)
                 : "memory");
}
/// Brings `bytes` (a multiple of 16) to the L2 cache.
__device__ inline void fetch_ahead(const void* from, std::uint32_t bytes) {
    MILLRACE_ASM("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
/// What ordinary copies brought becomes visible to the matrix units.
__device__ inline void copies_visible() { MILLRACE_ASM("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ inline void products_begin() { MILLRACE_ASM("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void products_commit() { MILLRACE_ASM("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Until at most `kLeft` committed groups are under way.
template <int kLeft>
__device__ inline void products_wait() {
    MILLRACE_ASM("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
/// Keeps reads of the sums behind the wait.
template <int kCount>
__device__ inline void hold(float (&sums)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

template <int kRegisters>
__device__ inline void give_registers() {
    MILLRACE_ASM("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void take_registers() {
    MILLRACE_ASM("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// Rows from `address` on (a multiple of 1,024 bytes, plus 32 for each 16 columns to the right).
__device__ inline std::uint64_t operand(std::uint32_t address) {
    constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62, kEightRows = std::uint64_t{1024 >> 4} << 32;
    return kSwizzle128 | kEightRows | std::uint64_t{1} << 16 | (address >> 4 & 0x3fff);
}

// clang-format off
/// The 32 sums of an array as operands, and their registers in an instruction.
#define MILLRACE_SUMS(v) \
    "+f"(v[0]), "+f"(v[1]), "+f"(v[2]), "+f"(v[3]), "+f"(v[4]), "+f"(v[5]), "+f"(v[6]), "+f"(v[7]), \
    "+f"(v[8]), "+f"(v[9]), "+f"(v[10]), "+f"(v[11]), "+f"(v[12]), "+f"(v[13]), "+f"(v[14]), "+f"(v[15]), \
    "+f"(v[16]), "+f"(v[17]), "+f"(v[18]), "+f"(v[19]), "+f"(v[20]), "+f"(v[21]), "+f"(v[22]), "+f"(v[23]), \
    "+f"(v[24]), "+f"(v[25]), "+f"(v[26]), "+f"(v[27]), "+f"(v[28]), "+f"(v[29]), "+f"(v[30]), "+f"(v[31])
#define MILLRACE_REGISTERS_0 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define MILLRACE_REGISTERS_1 \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define MILLRACE_REGISTERS_2 \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define MILLRACE_REGISTERS_3 \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

/// Sums += 64 rows at `left` times 64 rows per array at `right`, over 16 columns: tile::multiply_step of three arrays.
__device__ inline void multiply(float (&a)[32], float (&b)[32], float (&c)[32], std::uint64_t left, std::uint64_t right) {
    MILLRACE_ASM("{ .reg .pred p; setp.ne.b32 p, %98, 0; wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {"
                 MILLRACE_REGISTERS_0 ", " MILLRACE_REGISTERS_1 ", " MILLRACE_REGISTERS_2 "}, %96, %97, p, 1, 1, 0, 0; }"
                 : MILLRACE_SUMS(a), MILLRACE_SUMS(b), MILLRACE_SUMS(c)
                 : "l"(left), "l"(right), "r"(1));
}
// clang-format on
}  // namespace millrace::ops::cuda::hopper
