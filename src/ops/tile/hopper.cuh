#pragma once
// The instructions of compute capability 9.0a that a tiled product is made of: barriers in shared memory, asynchronous copies,
// and matrix products that a warpgroup (four warps) issues with operands in shared memory and sums in registers. Code for other
// devices compiles to nothing and is never launched (tile_product.cuh asks first).
//
// Operands lie in shared memory as rows of 64 bf16 (128 bytes), 16-byte piece c of row r at place c ^ (r & 7) of the row, eight
// rows after another: the 128-byte swizzle, K-major. Either may have the summed index along its rows instead of its columns, and
// the left one may lie in registers.

#include <cstdint>
#include <type_traits>

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

/// Until the others of kThreads have given these threads their turn, with the same number, as many times as these have waited;
/// where all of them wait, until all have come.
template <int kThreads = 256>
__device__ inline void await_turn(int number) {
    MILLRACE_ASM("bar.sync %0, %1;" ::"r"(number), "n"(kThreads) : "memory");
}
template <int kThreads = 256>
__device__ inline void give_turn(int number) {
    MILLRACE_ASM("bar.arrive %0, %1;" ::"r"(number), "n"(kThreads) : "memory");
}

/// Rows from `address` on (a multiple of 1,024 bytes, plus 32 for each 16 columns to the right).
__device__ inline std::uint64_t operand(std::uint32_t address) {
    constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62, kEightRows = std::uint64_t{1024 >> 4} << 32;
    return kSwizzle128 | kEightRows | std::uint64_t{1} << 16 | (address >> 4 & 0x3fff);
}

/// Rows from `address` on (a multiple of 1,024 bytes) as the summed index, 16 of them for one product (2,048 bytes on for the
/// next ones). 64 columns lie in the 128 bytes of a row, the next 64 are `next` bytes further: the 128-byte swizzle, MN-major.
__device__ inline std::uint64_t summed_rows(std::uint32_t address, std::uint32_t next) {
    constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62, kEightRows = std::uint64_t{1024 >> 4} << 32;
    return kSwizzle128 | kEightRows | std::uint64_t{next >> 4} << 16 | (address >> 4 & 0x3fff);
}

/// The same of rows of 32 columns, 64 bytes: 16-byte piece c of row r at place c ^ (r / 2 & 3), from a multiple of 512 bytes on.
/// The next 16 rows are 1,024 bytes on.
__device__ inline std::uint64_t summed_short_rows(std::uint32_t address) {
    constexpr std::uint64_t kSwizzle64 = std::uint64_t{2} << 62, kEightRows = std::uint64_t{512 >> 4} << 32;
    return kSwizzle64 | kEightRows | std::uint64_t{1} << 16 | (address >> 4 & 0x3fff);
}

/// Begins copies of kRows rows of kColumns columns for summed_rows, by kThreads threads: zeros from row `rows` and column `cols`
/// on. 64 columns are a part, the next part lies behind the rows of this one. Rows begin at multiples of 16 bytes.
template <int kThreads, int kRows, int kColumns, class T>
requires(sizeof(T) == 2) __device__ void stage_columns(const T* from, int ld, int rows, int cols, std::uint32_t to) {
    constexpr int kPieces = kColumns / 8, kStep = kThreads / kPieces;
    static_assert(kStep % 8 == 0);  // a thread's rows have one swizzle
    const int row = static_cast<int>(threadIdx.x) / kPieces, piece = static_cast<int>(threadIdx.x) % kPieces;
    const int bytes = min(16, 2 * (cols - 8 * piece)), limit = bytes > 0 ? rows : 0;
    to += piece / 8 * (kRows * 128) + row * 128 + ((piece % 8 ^ (row & 7)) << 4);
    from += bytes > 0 ? 8 * piece : 0;
#pragma unroll
    for (int i = 0; i < kRows; i += kStep) {
        const bool there = row + i < limit;
        copy16(to + 128 * i, from + std::int64_t{there ? row + i : 0} * ld, there ? bytes : 0);
    }
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

/// `begin` and `end` of an instruction around its types, which T says, and its operands.
#define MILLRACE_PRODUCT(begin, end, ...) \
    if constexpr (std::is_same_v<T, bf16>) \
        MILLRACE_ASM("{ .reg .pred p; " begin ".f32.bf16.bf16 " end "; }" : __VA_ARGS__); \
    else \
        MILLRACE_ASM("{ .reg .pred p; " begin ".f32.f16.f16 " end "; }" : __VA_ARGS__)
#define MILLRACE_ALONG(shape, registers, left, right, ...) \
    MILLRACE_PRODUCT("setp.eq.b32 p, 0, 0; wgmma.mma_async.sync.aligned." shape, "{" registers "}, {" left "}, " right ", p, 1, 1, 1", \
                     __VA_ARGS__ : "r"(from_left[0]), "r"(from_left[1]), "r"(from_left[2]), "r"(from_left[3]), "l"(from_right))
#define MILLRACE_STEP(shape, registers, left, right, left_rows, right_rows, more, ...) \
    MILLRACE_PRODUCT("setp.ne.b32 p, " more ", 0; wgmma.mma_async.sync.aligned." shape, \
                     "{" registers "}, " left ", " right ", p, 1, 1, " left_rows ", " right_rows, \
                     __VA_ARGS__ : "l"(from_left), "l"(from_right), "n"(kLeftRows ? 1 : 0), "n"(kRightRows ? 1 : 0), "r"(add))

/// Sums += 64 x 16 numbers in registers times 16 rows at `from_right` (summed_rows), 64 columns for each array. Thread t has rows
/// 16 (t / 32) + t % 32 / 4 (in from_left[0] and [2], + 8 in the others) and columns 2 (t % 4) and the next one (+ 8 in [2] and [3]).
template <class T>
__device__ inline void multiply_along(float (&sums)[2][32], const std::uint32_t (&from_left)[4], std::uint64_t from_right) {
    MILLRACE_ALONG("m64n128k16", MILLRACE_REGISTERS_0 ", " MILLRACE_REGISTERS_1, "%64, %65, %66, %67", "%68",
                   MILLRACE_SUMS(sums[0]), MILLRACE_SUMS(sums[1]));
}
template <class T>
__device__ inline void multiply_along(float (&sums)[3][32], const std::uint32_t (&from_left)[4], std::uint64_t from_right) {
    MILLRACE_ALONG("m64n192k16", MILLRACE_REGISTERS_0 ", " MILLRACE_REGISTERS_1 ", " MILLRACE_REGISTERS_2,
                   "%96, %97, %98, %99", "%100", MILLRACE_SUMS(sums[0]), MILLRACE_SUMS(sums[1]), MILLRACE_SUMS(sums[2]));
}
template <class T>
__device__ inline void multiply_along(float (&sums)[4][32], const std::uint32_t (&from_left)[4], std::uint64_t from_right) {
    MILLRACE_ALONG("m64n256k16", MILLRACE_REGISTERS_0 ", " MILLRACE_REGISTERS_1 ", " MILLRACE_REGISTERS_2 ", " MILLRACE_REGISTERS_3,
                   "%128, %129, %130, %131", "%132",
                   MILLRACE_SUMS(sums[0]), MILLRACE_SUMS(sums[1]), MILLRACE_SUMS(sums[2]), MILLRACE_SUMS(sums[3]));
}
}  // namespace millrace::ops::cuda::hopper

namespace millrace::ops::cuda::tile {

/// One step: 64 rows times kWide, over 16 summed elements. Thread t of the warpgroup holds of sums[g] those of rows 16 (t / 32) + t % 32 / 4 (+ 8) and columns 64 g + 8 j + 2 (t % 4)
/// (+ 1): numbers 4 j (+ 1), 4 j + 2 (+ 1). add: 0 where the sums begin.
template <class T, bool kLeftRows, bool kRightRows>
__device__ inline void multiply_step(float (&sums)[32], std::uint64_t from_left, std::uint64_t from_right, int add) {
    MILLRACE_STEP("m64n64k16", MILLRACE_REGISTERS_0, "%32", "%33", "%34", "%35", "%36", MILLRACE_SUMS(sums));
}
template <class T, bool kLeftRows, bool kRightRows>
__device__ inline void multiply_step(float (&sums)[1][32], std::uint64_t from_left, std::uint64_t from_right, int add) {
    multiply_step<T, kLeftRows, kRightRows>(sums[0], from_left, from_right, add);
}
template <class T, bool kLeftRows, bool kRightRows>
__device__ inline void multiply_step(float (&sums)[2][32], std::uint64_t from_left, std::uint64_t from_right, int add) {
    MILLRACE_STEP("m64n128k16", MILLRACE_REGISTERS_0 ", " MILLRACE_REGISTERS_1, "%64", "%65", "%66", "%67", "%68",
                  MILLRACE_SUMS(sums[0]), MILLRACE_SUMS(sums[1]));
}
template <class T, bool kLeftRows, bool kRightRows>
__device__ inline void multiply_step(float (&sums)[4][32], std::uint64_t from_left, std::uint64_t from_right, int add) {
    MILLRACE_STEP("m64n256k16", MILLRACE_REGISTERS_0 ", " MILLRACE_REGISTERS_1 ", " MILLRACE_REGISTERS_2 ", " MILLRACE_REGISTERS_3,
                  "%128", "%129", "%130", "%131", "%132",
                  MILLRACE_SUMS(sums[0]), MILLRACE_SUMS(sums[1]), MILLRACE_SUMS(sums[2]), MILLRACE_SUMS(sums[3]));
}
/// The same of 32 columns, and of eight: numbers 0 (+ 1) and 2 (+ 1).
template <class T, bool kLeftRows, bool kRightRows>
__device__ inline void multiply_step(float (&sums)[16], std::uint64_t from_left, std::uint64_t from_right, int add) {
    MILLRACE_STEP("m64n32k16", "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15", "%16", "%17", "%18", "%19", "%20",
                  "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]), "+f"(sums[6]), "+f"(sums[7]),
                  "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]), "+f"(sums[11]), "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[14]), "+f"(sums[15]));
}
template <class T, bool kLeftRows, bool kRightRows>
__device__ inline void multiply_step(float (&sums)[4], std::uint64_t from_left, std::uint64_t from_right, int add) {
    MILLRACE_STEP("m64n8k16", "%0, %1, %2, %3", "%4", "%5", "%6", "%7", "%8", "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]));
}
#undef MILLRACE_STEP
#undef MILLRACE_ALONG
#undef MILLRACE_PRODUCT
// clang-format on

/// Where a role stands in a ring of stages.
struct Cursor {
    int stage = 0;
    std::uint32_t phase = 0;
    template <int kStages>
    __device__ void advance(int by = 1) {
        stage += by;
        if (by > 1) {
            phase ^= stage / kStages & 1;
            stage %= kStages;
        } else if (stage == kStages) {
            stage = 0;
            phase ^= 1;
        }
    }
};

}  // namespace millrace::ops::cuda::tile
