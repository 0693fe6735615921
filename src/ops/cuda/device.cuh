#pragma once
// Device-side pieces shared by the kernels: element access, activations, random masks, reductions in a fixed order, dependent
// launches.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "base/philox.h"
#include "ops/activation.h"
#include "ops/cuda/context.h"

namespace millrace::ops::cuda {

using bf16 = __nv_bfloat16;
using f16 = __half;

/// A matrix view on the device.
template <class T>
struct Mat {
    T* data = nullptr;
    std::int64_t stride_k = 0, stride_g = 0, stride_row = 0;

    Mat() = default;
    Mat(const tensor::Operand& o)
        : data(static_cast<T*>(o.data)), stride_k(o.stride_k), stride_g(o.stride_g), stride_row(o.stride_row) {}
    __device__ T* row(int k, int g, std::int64_t r) const { return data + k * stride_k + g * stride_g + r * stride_row; }
    __device__ explicit operator bool() const { return data != nullptr; }
};

struct States {
    std::uint8_t* data = nullptr;
    std::int64_t stride = 0;

    States() = default;
    States(const tensor::Operand& o) : data(static_cast<std::uint8_t*>(o.data)), stride(o.stride_k) {}
    __device__ MemberState& operator[](int k) const { return *reinterpret_cast<MemberState*>(data + k * stride); }
};

struct Segments {
    const Segment* data = nullptr;
    int count = 0;

    Segments() = default;
    Segments(const tensor::Operand& o) : data(static_cast<const Segment*>(o.data)), count(o.rows) {}
};

/// The group table: `count` groups of each member.
struct Groups {
    std::uint8_t* data = nullptr;
    std::int64_t stride = 0;
    int count = 0;

    Groups() = default;
    Groups(const tensor::Operand& o)
        : data(static_cast<std::uint8_t*>(o.data)), stride(o.stride_k), count(o.cols / static_cast<int>(sizeof(GroupState))) {}
    __device__ GroupState* row(int k) const { return reinterpret_cast<GroupState*>(data + k * stride); }
};

__device__ inline float load(const float* p) { return *p; }
__device__ inline float load(const bf16* p) { return __bfloat162float(*p); }
__device__ inline float load(const f16* p) { return __half2float(*p); }
__device__ inline float load(const std::int32_t* p) { return static_cast<float>(*p); }
__device__ inline double load(const double* p) { return *p; }
__device__ inline void store(double* p, float v) { *p = v; }
__device__ inline void store(float* p, float v) { *p = v; }
__device__ inline void store(bf16* p, float v) { *p = __float2bfloat16_rn(v); }
__device__ inline void store(f16* p, float v) { *p = __float2half_rn(v); }
__device__ inline void store(std::int32_t* p, float v) { *p = static_cast<std::int32_t>(v); }
/// v as it reads back after being stored.
__device__ inline float rounded(float v, const float*) { return v; }
__device__ inline float rounded(float v, const bf16*) { return __bfloat162float(__float2bfloat16_rn(v)); }
__device__ inline float rounded(float v, const f16*) { return __half2float(__float2half_rn(v)); }
/// Two values rounded to f16 or bf16, the first in the lower half.
__device__ inline std::uint32_t pair_bits(float low, float high, bool to_f16) {
    const __half2 half = __floats2half2_rn(low, high);
    const __nv_bfloat162 brain = __floats2bfloat162_rn(low, high);
    return to_f16 ? *reinterpret_cast<const std::uint32_t*>(&half) : *reinterpret_cast<const std::uint32_t*>(&brain);
}
/// The same of a known type, and back.
template <class T>
__device__ inline std::uint32_t pack(float low, float high) {
    return pair_bits(low, high, std::is_same_v<T, f16>);
}
template <class T>
__device__ inline float low_of(std::uint32_t pair) {
    if constexpr (std::is_same_v<T, f16>)
        return __half2float(__ushort_as_half(static_cast<unsigned short>(pair)));
    else
        return __uint_as_float(pair << 16);  // bf16 is the upper half of a float
}
template <class T>
__device__ inline float high_of(std::uint32_t pair) {
    if constexpr (std::is_same_v<T, f16>)
        return low_of<T>(pair >> 16);
    else
        return __uint_as_float(pair & 0xffff0000u);
}

__device__ inline float activate(float u, Activation a) {
    switch (a) {
        case Activation::none: return u;
        case Activation::relu: return u > 0 || u != u ? u : 0;  // NaN passes, as it does on the other backends
        case Activation::gelu:
            return 0.5f * u * erfcf(-u * 0.70710678118654752f);  // erfc keeps the left tail that 1 + erf cancels
        case Activation::tanh: return tanhf(u);
        case Activation::sigmoid: return 1 / (1 + expf(-u));
    }
    return u;
}

__device__ inline float activation_slope(float u, Activation a) {
    switch (a) {
        case Activation::none: return 1;
        case Activation::relu: return u > 0 ? 1 : 0;
        case Activation::gelu: return 0.5f * erfcf(-u * 0.70710678118654752f) + u * 0.39894228040143268f * expf(-0.5f * u * u);
        case Activation::tanh: {
            float t = tanhf(u);
            return 1 - t * t;
        }
        case Activation::sigmoid: {
            float s = 1 / (1 + expf(-u));
            return s * (1 - s);
        }
    }
    return 1;
}

constexpr float kLog2E = 1.44269504f;
// The plain instructions: those of the language are longer, for arguments that do not occur.
__device__ inline float reciprocal_fast(float x) {
    float y = 0;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ inline float exp2_fast(float x) {
    float y = 0;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/// GELU and its slope from one exponential: for x >= 0, erfc(x) = exp(-x^2) t P(t) with t = 1 / (1 + x / 2), P within 5e-8 of the
/// quotient up to x = 9, behind which the exponential has vanished. Relative, so that the left tail keeps its digits.
__device__ inline void gelu_and_slope(float u, float& value, float& slope) {
    float t, e;  // by functions the kernels of a neuron are scheduled otherwise
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(t) : "f"(fmaf(0.5f * 0.70710678f, fabsf(u), 1.0f)));
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(-0.72134752f * u * u));
    float p = -0.029320537f;  // P / 2
    p = fmaf(p, t, 0.141237385f);
    p = fmaf(p, t, -0.241410645f);
    p = fmaf(p, t, 0.13650901f);
    p = fmaf(p, t, -0.011557595f);
    p = fmaf(p, t, 0.100592705f);
    p = fmaf(p, t, 0.121744055f);
    p = fmaf(p, t, 0.141160835f);
    p = fmaf(p, t, 0.141044765f);
    const float tail = p * t * e, below = u > 0 ? 1 - tail : tail;  // below: share of the normal distribution below u
    value = u * below;
    slope = fmaf(0.39894228f * u, e, below);
}

/// Dropout of one operator.
struct Dropout {
    float probability = 0;
    std::uint32_t op_number = 0;
};
/// What decides about the elements of a member, as it was loaded: whatever is computed from it waits for the load, and a warp
/// runs in order. So a kernel makes its key before its product and computes with it afterwards.
struct DropoutKey {
    std::uint64_t seed = 0;
    std::uint32_t step = 0, micro = 0, op = 0;
    float probability = 0, scale = 0;  ///< of the operator, of the member
};
__device__ inline DropoutKey dropout_key(const Dropout& d, const States& s, int k) {
    if (d.probability <= 0) return {};
    const MemberState& m = s[k];
    return {m.seed, m.step, m.micro, d.op_number, d.probability, m.dropout_scale};
}
/// Elements whose bits are below `threshold` become zero, the others are multiplied by `factor`.
struct DropoutRule {
    std::uint32_t threshold;
    float factor;
};
__device__ inline DropoutRule dropout_rule(const DropoutKey& key) {
    const float p = fminf(key.probability * key.scale, 0x1.fffffep-1f);
    return {__float2uint_rz(p * 0x1p32f), 1 / (1 - p)};
}
/// 0 or 1 / (1 - p). A thread with several elements works the rule out once.
__device__ inline float dropout_factor(const DropoutKey& key, const DropoutRule& rule, std::uint64_t element) {
    if (rule.threshold == 0) return 1;
    return base::random_bits(key.seed, key.step, key.micro, key.op, element) >= rule.threshold ? rule.factor : 0;
}
__device__ inline float dropout_factor(const DropoutKey& key, std::uint64_t element) {
    return dropout_factor(key, dropout_rule(key), element);
}

/// Programmatic dependent launch: every kernel waits here before it touches memory that its predecessor may write, then lets its
/// successor be scheduled. A predecessor that lets us start has waited itself, so everything older is complete: a kernel may read
/// parameters before this call when at least one kernel stands between it and the update.
__device__ inline void begin_kernel() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Whether a grid may start while its predecessor drains, and blocks form clusters: both device and compiled code are of compute
/// capability 9.0 or newer. Code for older ones has no wait in begin_kernel, so its grids run one after the other.
bool dependent_launches();

/// Launches with the dependent-launch attribute: the grid may be scheduled while its predecessor drains (begin_kernel waits for
/// it). `cluster` blocks along z run together and see each other's shared memory.
template <class... Params, class... Args>
void launch_clusters(void (*kernel)(Params...), dim3 grid, dim3 block, unsigned cluster, std::size_t shared, cudaStream_t stream,
                     Args... args) {
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim = {1, 1, cluster};
    config.attrs = attributes;
    config.numAttrs = !dependent_launches() ? 0 : cluster > 1 ? 2 : 1;
    cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
}
template <class... Params, class... Args>
void launch(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t shared, cudaStream_t stream, Args... args) {
    launch_clusters(kernel, grid, block, 1, shared, stream, args...);
}
/// A kernel that is one such launch. Operands become what the parameters are (Mat, States, ...), tables become pointers and are
/// held.
template <class... Params, class... Args>
KernelPtr make_launch(const Context& c, void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t shared,
                      const Args&... args) {
    return make_kernel([=, stream = c.stream] { launch(kernel, grid, block, shared, stream, args...); });
}

/// Sum over the block, the same bits whatever the schedule: lanes by a butterfly, warps in order. Every thread gets the sum.
/// `shared` holds one value per warp; callers synchronise before using it again.
template <class T>
__device__ T block_sum(T value, T* shared) {
    for (int d = 16; d > 0; d /= 2) value += __shfl_xor_sync(0xffffffffu, value, d);
    const int thread = threadIdx.x + blockDim.x * threadIdx.y;
    const int warps = (blockDim.x * blockDim.y + 31) / 32;
    if ((thread & 31) == 0) shared[thread >> 5] = value;
    __syncthreads();
    T sum = 0;
    for (int w = 0; w < warps; ++w) sum += shared[w];
    __syncthreads();
    return sum;
}

/// Writes a member's values into its place of the ring. The host may look at any time: `sequence`, which makes the row valid,
/// goes last.
__device__ inline void write_metrics(MetricsRow* to, const MemberState& m, std::uint64_t sequence) {
    volatile MetricsRow& r = *to;
    r.step = m.step;
    r.epoch = m.epoch;
    r.rows = m.rows;
    r.correct = m.correct;
    r.skipped = m.skipped;
    r.nonfinite = m.nonfinite;
    r.lr = m.lr;
    r.grad_norm = m.grad_norm;
    r.loss = m.loss;
    r.penalty = m.penalty;
    r.loss_scale = m.loss_scale;
    r.good_steps = m.good_steps;
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    r.clock = now;
    __threadfence_system();
    r.sequence = sequence;
}

/// Sum over threadIdx.y of a block of 32 x kLanes threads, in ascending order; every thread gets its column's.
template <int kLanes, class T>
__device__ T sum_over_y(T value) {
    __shared__ T shared[kLanes][32];
    __syncthreads();  // an earlier call has been read
    shared[threadIdx.y][threadIdx.x] = value;
    __syncthreads();
    T sum = 0;
    for (int y = 0; y < kLanes; ++y) sum += shared[y][threadIdx.x];
    return sum;
}

/// target (+) = value.
template <class T>
__device__ void put(T* at, float value, bool accumulate) {
    store(at, accumulate ? load(at) + value : value);
}

/// For launch bounds: `wanted` blocks of so many threads, or as many as a multiprocessor of the architecture has room for.
constexpr int blocks_at_once(int threads, int wanted) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    constexpr int kRoom = 1024;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 800 && (__CUDA_ARCH__ < 900 || __CUDA_ARCH__ >= 1200)
    constexpr int kRoom = 1536;
#else
    constexpr int kRoom = 2048;
#endif
    return threads * wanted <= kRoom ? wanted : kRoom / threads;
}
inline unsigned blocks_for(std::int64_t work, int per_block) { return static_cast<unsigned>((work + per_block - 1) / per_block); }

/// A grid whose z counts members times groups and whose x strides over the elements of one matrix.
inline dim3 element_grid(const tensor::Operand& o) {
    return dim3(std::min(blocks_for(std::int64_t{o.rows} * o.cols, 256), 1024u), 1, static_cast<unsigned>(o.k * o.g));
}

/// f with a value of the 16-bit element type.
template <class F>
auto by_half(tensor::DType type, F f) {
    return type == tensor::DType::f16 ? f(f16{}) : f(bf16{});
}
/// f with a value of the element type of activations: bf16{}, f16{} or float{}.
template <class F>
auto by_real(tensor::DType type, F f) {
    return type == tensor::DType::bf16 ? f(bf16{}) : type == tensor::DType::f16 ? f(f16{}) : f(float{});
}

}  // namespace millrace::ops::cuda
