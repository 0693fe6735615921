// The way back through the neuron. A block takes tiles of rows, one thread per row; what the parameters' gradients are made of
// goes through shared memory, where the same threads sum outer products over the rows of the tile. Every block leaves its sums
// in scratch memory, and a second kernel adds the blocks up in order.

#include "ops/cuda/context.h"
#include "ops/cuda/flow_neuron.cuh"

namespace millrace::ops::cuda {
namespace {

using namespace neuron;
using tensor::Operand;

constexpr int kTileRows = kFlowThreads, kMostBlocks = 256;
constexpr int kPitch = kTileRows + 4;  // columns begin four banks apart
constexpr int kLeft = 2 * kHidden, kRight = kHidden;
constexpr std::size_t kShared = sizeof(float) * (kCount + (kLeft + kRight) * kPitch);

template <class T>
struct BackwardArgs {
    Flows flows;
    Mat<const float> params;
    Mat<const T> dout;
    Mat<float> dflow;
    float* partial;  ///< [members, blocks, kCount]
    int rows, first_member;
    bool accumulate;
    NeuronParams p;
};

/// What one thread sums for the block.
struct Sums {
    float w6[4][4], w3[2][4], w0, b6, norm4, b3, norm1, b0, place;
};

__device__ float4 four_rows(const float* column, int r) { return *reinterpret_cast<const float4*>(column + r); }
__device__ float dot(const float4& a, const float4& b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }

/// sums[i][j] += over the tile's rows of left column (a + 16 i) times right column (b + 8 j).
template <int A, int B>
__device__ void add_outer(float (&sums)[A][B], const float* left, const float* right, int a, int b) {
    for (int r = 0; r < kTileRows; r += 4) {
        float4 l[A], q[B];
#pragma unroll
        for (int i = 0; i < A; ++i) l[i] = four_rows(left + (a + 16 * i) * kPitch, r);
#pragma unroll
        for (int j = 0; j < B; ++j) q[j] = four_rows(right + (b + 8 * j) * kPitch, r);
#pragma unroll
        for (int i = 0; i < A; ++i)
#pragma unroll
            for (int j = 0; j < B; ++j) sums[i][j] += dot(l[i], q[j]);
    }
}

__device__ float column_dot(const float* a, const float* b) {
    float sum = 0;
    for (int r = 0; r < kTileRows; r += 4) sum += dot(four_rows(a, r), four_rows(b, r));
    return sum;
}
__device__ float column_total(const float* a) {
    float sum = 0;
    for (int r = 0; r < kTileRows; r += 4) sum += dot(four_rows(a, r), make_float4(1, 1, 1, 1));
    return sum;
}

/// Back through GELU and LayerNorm of one hidden layer. `back` is the gradient behind GELU and becomes the one before the norm.
/// Leaves d (before GELU) in left columns 0..31, the result in 32..63 and hat in the right columns, at this thread's row.
__device__ void norm_back(float (&back)[kHidden], const float (&hat)[kHidden], float inv, const float* gain, const float* shift,
                          float* left, float* right) {
    float sum = 0, along = 0;
#pragma unroll
    for (int i = 0; i < kHidden; ++i) {
        const float d = back[i] * activation_slope(gain[i] * hat[i] + shift[i], Activation::gelu);
        left[i * kPitch] = d;
        right[i * kPitch] = hat[i];
        back[i] = d * gain[i];
        sum += back[i];
        along += back[i] * hat[i];
    }
    sum /= kHidden;
    along /= kHidden;
#pragma unroll
    for (int i = 0; i < kHidden; ++i) {
        back[i] = inv * (back[i] - sum - hat[i] * along);
        left[(kHidden + i) * kPitch] = back[i];
    }
}

/// Gains, shifts and the bias before the norm, from what norm_back left: threads 0..31 and 32..63 gains and shifts, 64..95
/// biases.
__device__ void add_norm(float& norm, float& bias, const float* left, const float* right) {
    const int group = threadIdx.x / kHidden, i = threadIdx.x % kHidden;
    if (group == 0) norm += column_dot(left + i * kPitch, right + i * kPitch);
    if (group == 1) norm += column_total(left + i * kPitch);
    if (group == 2) bias += column_total(left + (kHidden + i) * kPitch);
}

/// dx[i] = sum over o of w[o][i] dy[o]; dy stands in columns of shared memory at this thread's row.
template <int N>
__device__ void times_transposed(const float* w, const float* dy, int outputs, float (&dx)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) dx[i] = 0;
#pragma unroll 4
    for (int o = 0; o < outputs; ++o) {
        const float d = dy[o * kPitch];
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            const float4 four = *reinterpret_cast<const float4*>(w + o * N + i);
            dx[i] += four.x * d;
            dx[i + 1] += four.y * d;
            dx[i + 2] += four.z * d;
            dx[i + 3] += four.w * d;
        }
    }
}

__device__ void write_sums(const Sums& s, float* to, int a, int b) {
    const int thread = threadIdx.x, group = thread / kHidden, i32 = thread % kHidden;
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) to[kW6 + (a + 16 * i) * kHidden + b + 8 * j] = s.w6[i][j];
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) to[kW3 + (a + 16 * i) * kHidden + b + 8 * j] = s.w3[i][j];
    to[kW0 + i32 * kIn + group] = s.w0;
    if (thread < kFeatures) to[kB6 + thread] = s.b6;
    if (group == 0) to[kG4 + i32] = s.norm4, to[kG1 + i32] = s.norm1;
    if (group == 1) to[kS4 + i32] = s.norm4, to[kS1 + i32] = s.norm1;
    if (group == 2) to[kB3 + i32] = s.b3, to[kB0 + i32] = s.b0;
    if (thread < 12) to[kPlaceW + thread] = s.place;  // nine weights, then three biases
}

/// A tile with at least one live row. Rows that are not alive take part with zeros.
template <class T>
__device__ void take_tile(const BackwardArgs<T>& a, const float* w, float* left, float* right, Sums& s, int k, int row,
                          bool live) {
    const int thread = threadIdx.x, lane_a = thread % 16, lane_b = thread / 16;
    float flow[kIn] = {};
    if (live) {
        const float* from = a.flows.table.row(k, 0, row);
#pragma unroll
        for (int i = 0; i < kIn; ++i) flow[i] = from[i];  // x, y, z, energy
    }
    float *my_left = left + thread, *my_right = right + thread;
    Pass p;
    forward(w, flow[0], flow[1], flow[2], flow[3], p);

    const T* dout = live ? a.dout.row(k, 0, row) : nullptr;
    for (int o = 0; o < kFeatures; ++o) my_left[o * kPitch] = live ? load(dout + o) : 0.0f;
#pragma unroll
    for (int i = 0; i < kHidden; ++i) my_right[i * kPitch] = behind_norm(p.second[i], w[kG4 + i], w[kS4 + i]);
    float back[kHidden];
    times_transposed(w + kW6, my_left, kFeatures, back);
    __syncthreads();
    add_outer(s.w6, left, right, lane_a, lane_b);
    if (thread < kFeatures) s.b6 += column_total(left + thread * kPitch);
    __syncthreads();

    norm_back(back, p.second, p.second_inv, w + kG4, w + kS4, my_left, my_right);
    __syncthreads();
    add_norm(s.norm4, s.b3, left, right);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kHidden; ++i) my_right[i * kPitch] = behind_norm(p.first[i], w[kG1 + i], w[kS1 + i]);
    times_transposed(w + kW3, my_left + kHidden * kPitch, kHidden, back);
    __syncthreads();
    add_outer(s.w3, left + kHidden * kPitch, right, lane_a, lane_b);
    __syncthreads();

    norm_back(back, p.first, p.first_inv, w + kG1, w + kS1, my_left, my_right);
    __syncthreads();
    add_norm(s.norm1, s.b0, left, right);
    float din[kIn];
    times_transposed(w + kW0, my_left + kHidden * kPitch, kHidden, din);
    __syncthreads();
    // Right columns 0..3: what net.0 read; 4..6: the place; 8..10: the gradient of the place behind its matrix.
#pragma unroll
    for (int i = 0; i < kIn; ++i) my_right[i * kPitch] = p.in[i];
#pragma unroll
    for (int i = 0; i < 3; ++i) {
        my_right[(4 + i) * kPitch] = flow[i];
        my_right[(8 + i) * kPitch] = din[i];
    }
    __syncthreads();
    s.w0 += column_dot(left + (kHidden + thread % kHidden) * kPitch, right + thread / kHidden * kPitch);
    if (thread < 9) s.place += column_dot(right + (8 + thread / 3) * kPitch, right + (4 + thread % 3) * kPitch);
    if (thread >= 9 && thread < 12) s.place += column_total(right + (8 + thread - 9) * kPitch);

    if (!live) return;
    float* dflow = a.dflow.row(k, 0, row);
#pragma unroll
    for (int i = 0; i < 3; ++i) dflow[i] += w[kPlaceW + i] * din[0] + w[kPlaceW + 3 + i] * din[1] + w[kPlaceW + 6 + i] * din[2];
    dflow[flow::energy] += din[3] + load(dout + kFeatures);
}

template <class T>
__global__ void __launch_bounds__(kFlowThreads) neuron_backward_kernel(const __grid_constant__ BackwardArgs<T> a) {
    extern __shared__ __align__(16) float shared[];
    float *w = shared, *left = w + kCount, *right = left + kLeft * kPitch;
    begin_kernel();
    const int k = a.first_member + static_cast<int>(blockIdx.z);
    stage_parameters(w, a.params.row(k, 0, 0), a.p);
    Sums sums{};
    for (int tile = static_cast<int>(blockIdx.x) * kTileRows; tile < a.rows; tile += static_cast<int>(gridDim.x) * kTileRows) {
        const int row = tile + static_cast<int>(threadIdx.x);
        const bool live = row < a.rows && a.flows.alive(k, row);
        if (row < a.rows && !a.accumulate)
            for (int c = 0; c < kFlowColumns; ++c) a.dflow.row(k, 0, row)[c] = 0;
        if (__syncthreads_or(live)) take_tile(a, w, left, right, sums, k, row, live);
    }
    write_sums(sums, a.partial + (static_cast<std::int64_t>(blockIdx.z) * gridDim.x + blockIdx.x) * kCount,
               static_cast<int>(threadIdx.x) % 16, static_cast<int>(threadIdx.x) / 16);
}

constexpr int kFinalLanes = 8;

__global__ void neuron_parameter_kernel(const float* partial, Mat<float> dparams, int blocks, int first_member, bool accumulate,
                                        NeuronParams p) {
    __shared__ double shared[kFinalLanes][32];
    begin_kernel();
    const int i = static_cast<int>(blockIdx.x * 32 + threadIdx.x);
    const float* from = partial + static_cast<std::int64_t>(blockIdx.z) * blocks * kCount;
    double sum = 0;
    for (int b = static_cast<int>(threadIdx.y); i < kCount && b < blocks; b += kFinalLanes) sum += from[b * kCount + i];
    shared[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || i >= kCount) return;
    double total = 0;
    for (int y = 0; y < kFinalLanes; ++y) total += shared[y][threadIdx.x];
    float* at = dparams.row(first_member + static_cast<int>(blockIdx.z), 0, 0) + place_of(p, i);
    *at = static_cast<float>(accumulate ? *at + total : total);
}

}  // namespace

KernelResult make_flow_neuron_backward(Context& c, const Bound& b) {
    namespace at = flow_neuron_backward;
    const Operand &table = b[at::flow], &dout = b[at::dout], &dparams = b[at::dparams];
    if (table.k == 0) return make_kernel([] {});
    return by_real(dout.dtype, [&]<class T>(T) -> KernelResult {
        BackwardArgs<T> a{};
        a.flows = flows(table, b[at::counters]);
        a.params = mat<const float>(b[at::params]);
        a.dout = mat<const T>(dout);
        a.dflow = mat<float>(b[at::dflow]);
        a.partial = static_cast<float*>(c.workspace);
        a.rows = table.rows;
        a.accumulate = b.accumulates(at::dflow);
        a.p = b.params<NeuronParams>();
        MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(neuron_backward_kernel<T>)));
        const unsigned blocks = std::clamp(blocks_for(table.rows, kTileRows), 1u, static_cast<unsigned>(kMostBlocks));
        const int at_once = static_cast<int>(c.workspace_bytes / (blocks * kCount * sizeof(float)));
        return make_kernel([stream = c.stream, dparams, members = table.k, blocks, at_once, a, add = b.accumulates(at::dparams)] {
            for (int first = 0; first < members; first += at_once) {
                const auto depth = static_cast<unsigned>(std::min(at_once, members - first));
                BackwardArgs<T> part = a;
                part.first_member = first;
                launch(neuron_backward_kernel<T>, dim3(blocks, 1, depth), dim3(kFlowThreads), kShared, stream, part);
                launch(neuron_parameter_kernel, dim3(blocks_for(kCount, 32), 1, depth), dim3(32, kFinalLanes), 0, stream,
                       a.partial, mat<float>(dparams), static_cast<int>(blocks), first, add, a.p);
            }
        });
    });
}

}  // namespace millrace::ops::cuda
