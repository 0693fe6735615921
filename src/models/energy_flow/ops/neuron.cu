// The neuron's network, there and back. A block takes tiles of 32 rows as neuron.cuh says; what the parameters' gradients are
// made of goes through shared memory, where the same threads sum outer products over the rows of the tile. Every block leaves its
// sums in scratch memory, and a second kernel adds the blocks up in order.
#include "models/energy_flow/ops/flow.h"
#include "models/energy_flow/ops/neuron.cuh"
#include "ops/cuda/context.h"

namespace millrace::ops::cuda {
namespace {

using namespace neuron;
using tensor::Operand;

template <class T>
struct ForwardArgs {
    Flows flows;
    Mat<const float> params;
    Mat<T> out;
    int rows, cols;
    NeuronParams p;
};

/// V: how many columns a store takes.
template <class T, int V>
__global__ void __launch_bounds__(kThreads) neuron_forward_kernel(const __grid_constant__ ForwardArgs<T> a) {
    __shared__ __align__(16) float w[kCount], values[kHidden * kPitch];
    __shared__ Exchange exchange[2];
    begin_kernel();
    const int row = static_cast<int>(blockIdx.x) * kTileRows + lane_of(), part = part_of(), k = blockIdx.z;
    const bool live = row < a.rows && a.flows.alive(k, row);
    const bool some = __syncthreads_or(live) != 0;
    float flow[kIn] = {}, features[kOwnFeatures] = {};
    if (live) {
        const float* from = a.flows.table.row(k, 0, row);
#pragma unroll
        for (int i = 0; i < kIn; ++i) flow[i] = from[i];  // x, y, z, energy
    }
    if (some) {
        stage_parameters(w, a.params.row(k, 0, 0), a.p);
        float in[kIn];
        Layer first, second;
        read_in(w, flow, in);
        forward(w, in, values, exchange, first, second);  // its last meeting has all behind their reading of `values`
#pragma unroll
        for (int j = 0; j < kOwn; ++j) values[(part * kOwn + j) * kPitch + lane_of()] = second.value[j];
        __syncthreads();
        affine(w + kW6 + part * kOwnFeatures * kHidden, w + kB6 + part * kOwnFeatures, values + lane_of(), features);
    }
    if (row >= a.rows) return;
    T* out = a.out.row(k, 0, row);
#pragma unroll
    for (int c = 0; c < kOwnFeatures; c += V) {
        float run[V];
#pragma unroll
        for (int i = 0; i < V; ++i) run[i] = live ? features[c + i] : 0.0f;
        store_run<V>(out + part * kOwnFeatures + c, run);
    }
    for (int c = kFeatures + part * V; c < a.cols; c += kParts * V) {
        float tail[V] = {};
        if (c == kFeatures) tail[0] = flow[flow::energy];
        store_run<V>(out + c, tail);
    }
}

using namespace neuron;
using tensor::Operand;

constexpr int kMostBlocks = 396;

template <class T>
struct BackwardArgs {
    Flows flows;
    Mat<const float> params;
    Mat<const T> dout;
    Mat<float> dflow;
    float* partial;  ///< [members, blocks, kCount]
    int rows, first_member;
    bool accumulate, whole;  ///< whole: rows of dout begin at multiples of 16 bytes
    NeuronParams p;
};

/// What the warps see of each other, in columns of a tile's rows.
struct Columns {
    float left[kFeatures * kPitch], right[kHidden * kPitch];
    float values[kHidden * kPitch];                                ///< the first layer's, from the forward pass on
    float in[kIn * kPitch], place[3 * kPitch], din[kIn * kPitch];  ///< what net.0 read, the place itself, the gradient of `in`
};
struct Shared {
    float w[kCount];
    Columns columns;
    Exchange exchange[4];
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
#pragma unroll 2
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
#pragma unroll
    for (int r = 0; r < kTileRows; r += 4) sum += dot(four_rows(a, r), four_rows(b, r));
    return sum;
}
__device__ float column_total(const float* a) {
    float sum = 0;
#pragma unroll
    for (int r = 0; r < kTileRows; r += 4) sum += dot(four_rows(a, r), make_float4(1, 1, 1, 1));
    return sum;
}

/// Back through GELU and LayerNorm of one hidden layer. `back` is the gradient of this thread's units behind GELU and becomes the
/// one before the norm. Leaves d (before GELU) in left columns 0..31, the result in 32..63 and hat in the right columns.
__device__ void norm_back(float (&back)[kOwn], const Layer& layer, const float* gain, Columns& c, Exchange& exchange) {
    const int unit = part_of() * kOwn, lane = lane_of();
    float sum = 0, along = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
        const float d = back[i] * layer.slope[i];
        c.left[(unit + i) * kPitch + lane] = d;
        c.right[(unit + i) * kPitch + lane] = layer.hat[i];
        back[i] = d * gain[i];
        sum += back[i];
        along += back[i] * layer.hat[i];
    }
    exchange[part_of()][lane] = make_float2(sum, along);
    __syncthreads();
    sum = along = 0;
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
        const float2 part = exchange[p][lane];
        sum += part.x;
        along += part.y;
    }
    sum /= kHidden;
    along /= kHidden;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
        back[i] = layer.inv * (back[i] - sum - layer.hat[i] * along);
        c.left[(kHidden + unit + i) * kPitch + lane] = back[i];
    }
    __syncthreads();
}

/// Gains, shifts and the bias before the norm, from what norm_back left: a warp each.
__device__ void add_norm(float& norm, float& bias, const Columns& c) {
    const int part = part_of(), i = lane_of();
    if (part == 0) norm += column_dot(c.left + i * kPitch, c.right + i * kPitch);
    if (part == 1) norm += column_total(c.left + i * kPitch);
    if (part == 2) bias += column_total(c.left + (kHidden + i) * kPitch);
}

/// dx[j] = sum over o of w[o][j] dy[o] for this thread's units of a layer with kHidden of them; dy stands in columns of shared
/// memory at this thread's row.
__device__ void times_transposed(const float* w, const float* dy, int outputs, float (&dx)[kOwn]) {
#pragma unroll
    for (int j = 0; j < kOwn; ++j) dx[j] = 0;
#pragma unroll 8
    for (int o = 0; o < outputs; ++o) {
        const float d = dy[o * kPitch];
#pragma unroll
        for (int j = 0; j < kOwn; j += 4) {
            const float4 four = *reinterpret_cast<const float4*>(w + o * kHidden + j);
            dx[j] += four.x * d;
            dx[j + 1] += four.y * d;
            dx[j + 2] += four.z * d;
            dx[j + 3] += four.w * d;
        }
    }
}

__device__ void write_sums(const Sums& s, float* to, int a, int b) {
    const int thread = threadIdx.x, part = part_of(), i32 = lane_of();
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) to[kW6 + (a + 16 * i) * kHidden + b + 8 * j] = s.w6[i][j];
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) to[kW3 + (a + 16 * i) * kHidden + b + 8 * j] = s.w3[i][j];
    to[kW0 + i32 * kIn + part] = s.w0;
    if (thread < kFeatures) to[kB6 + thread] = s.b6;
    if (part == 0) to[kG4 + i32] = s.norm4, to[kG1 + i32] = s.norm1;
    if (part == 1) to[kS4 + i32] = s.norm4, to[kS1 + i32] = s.norm1;
    if (part == 2) to[kB3 + i32] = s.b3, to[kB0 + i32] = s.b0;
    if (thread < 12) to[kPlaceW + thread] = s.place;  // nine weights, then three biases
}

/// This thread's part of the row's gradient, to the left columns.
template <class T>
__device__ void stage_gradient(const BackwardArgs<T>& a, const T* dout, float* left) {
    const int from = part_of() * kOwnFeatures;
    float d[kOwnFeatures] = {};
    if (dout != nullptr && a.whole) {
        load_run<kOwnFeatures>(dout + from, d);
    } else if (dout != nullptr) {
#pragma unroll
        for (int i = 0; i < kOwnFeatures; ++i) d[i] = load(dout + from + i);
    }
#pragma unroll
    for (int i = 0; i < kOwnFeatures; ++i) left[(from + i) * kPitch + lane_of()] = d[i];
}

/// A tile with at least one live row. Rows that are not alive take part with zeros. The result is the gradient of flow column
/// part_of() of this thread's row.
template <class T>
__device__ float take_tile(const BackwardArgs<T>& a, Shared& shared, Sums& s, int k, int row, bool live) {
    Columns& c = shared.columns;
    const float* w = shared.w;
    const int thread = threadIdx.x, lane = lane_of(), part = part_of(), unit = part * kOwn;
    const int lane_a = thread % 16, lane_b = thread / 16;
    float flow[kIn] = {}, in[kIn];
    if (live) {
        const float* from = a.flows.table.row(k, 0, row);
#pragma unroll
        for (int i = 0; i < kIn; ++i) flow[i] = from[i];  // x, y, z, energy
    }
    const T* dout = live ? a.dout.row(k, 0, row) : nullptr;
    stage_gradient(a, dout, c.left);
    read_in(w, flow, in);
#pragma unroll
    for (int i = 0; i < kIn; ++i)
        if (i == part) {
            c.in[i * kPitch + lane] = in[i];
            if (i < 3) c.place[i * kPitch + lane] = flow[i];
        }
    Layer first, second;
    forward(w, in, c.values, shared.exchange, first, second);
#pragma unroll
    for (int j = 0; j < kOwn; ++j) c.right[(unit + j) * kPitch + lane] = second.value[j];
    __syncthreads();
    float back[kOwn];
    times_transposed(w + kW6 + unit, c.left + lane, kFeatures, back);
    add_outer(s.w6, c.left, c.right, lane_a, lane_b);
    if (thread < kFeatures) s.b6 += column_total(c.left + thread * kPitch);
    __syncthreads();

    norm_back(back, second, w + kG4 + unit, c, shared.exchange[2]);
    add_norm(s.norm4, s.b3, c);
    times_transposed(w + kW3 + unit, c.left + kHidden * kPitch + lane, kHidden, back);
    add_outer(s.w3, c.left + kHidden * kPitch, c.values, lane_a, lane_b);
    __syncthreads();

    norm_back(back, first, w + kG1 + unit, c, shared.exchange[3]);
    add_norm(s.norm1, s.b0, c);
    s.w0 += column_dot(c.left + (kHidden + lane) * kPitch, c.in + part * kPitch);
    float din = 0;  // of column `part` of what net.0 read
#pragma unroll 8
    for (int o = 0; o < kHidden; ++o) din += w[kW0 + o * kIn + part] * c.left[(kHidden + o) * kPitch + lane];
    c.din[part * kPitch + lane] = din;
    __syncthreads();
    if (thread < 9) s.place += column_dot(c.din + thread / 3 * kPitch, c.place + thread % 3 * kPitch);
    if (thread >= 9 && thread < 12) s.place += column_total(c.din + (thread - 9) * kPitch);
    if (!live) return 0;
    if (part == flow::energy) return din + load(dout + kFeatures);
    float sum = 0;
#pragma unroll
    for (int o = 0; o < 3; ++o) sum += w[kPlaceW + 3 * o + part] * c.din[o * kPitch + lane];
    return sum;
}

template <class T>
__global__ void __launch_bounds__(kThreads, 3) neuron_backward_kernel(const __grid_constant__ BackwardArgs<T> a, int tiles) {
    extern __shared__ __align__(16) float memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    begin_kernel();
    const int k = a.first_member + static_cast<int>(blockIdx.z), part = part_of();
    stage_parameters(shared.w, a.params.row(k, 0, 0), a.p);
    Sums sums{};
    for (int t = 0; t < tiles; ++t) {
        const int row = (static_cast<int>(blockIdx.x) * tiles + t) * kTileRows + lane_of();
        const bool live = row < a.rows && a.flows.alive(k, row);
        float gradient = 0;
        if (__syncthreads_or(live)) gradient = take_tile(a, shared, sums, k, row, live);
        if (row >= a.rows) continue;
        float* dflow = a.dflow.row(k, 0, row);
        if (a.accumulate) {
            if (live) dflow[part] += gradient;
        } else {
            dflow[part] = gradient;
            dflow[kIn + part] = 0;  // from heading on
        }
    }
    write_sums(sums, a.partial + (static_cast<std::int64_t>(blockIdx.z) * gridDim.x + blockIdx.x) * kCount,
               static_cast<int>(threadIdx.x) % 16, static_cast<int>(threadIdx.x) / 16);
}
static_assert(kFlowColumns == 2 * kIn && flow::energy == kIn - 1);

constexpr int kFinalLanes = 16;

__global__ void neuron_parameter_kernel(const float* partial, Mat<float> dparams, int blocks, int first_member, bool accumulate,
                                        NeuronParams p) {
    begin_kernel();
    const int i = static_cast<int>(blockIdx.x * 32 + threadIdx.x);
    const float* from = partial + static_cast<std::int64_t>(blockIdx.z) * blocks * kCount;
    double sum = 0;
    for (int b = static_cast<int>(threadIdx.y); i < kCount && b < blocks; b += kFinalLanes) sum += from[b * kCount + i];
    const double total = sum_over_y<kFinalLanes>(sum);
    if (threadIdx.y != 0 || i >= kCount) return;
    float* at = dparams.row(first_member + static_cast<int>(blockIdx.z), 0, 0) + place_of(p, i);
    *at = static_cast<float>(accumulate ? *at + total : total);
}

}  // namespace

KernelResult make_flow_neuron_forward(Context& c, const Bound& b) {
    namespace at = flow_neuron_forward;
    const Operand &table = b[at::flow], &out = b[at::out];
    return by_real(out.dtype, [&]<class T>(T) -> KernelResult {
        const ForwardArgs<T> a{{table, b[at::counters]}, b[at::params], out, out.rows, out.cols, b.params<NeuronParams>()};
        const auto kernel = whole_runs(out) && out.cols % 8 == 0 ? neuron_forward_kernel<T, 8> : neuron_forward_kernel<T, 1>;
        const dim3 grid(blocks_for(out.rows, kTileRows), 1, out.k);
        return make_launch(c, kernel, grid, dim3(kThreads), 0, a);
    });
}

KernelResult make_flow_neuron_backward(Context& c, const Bound& b) {
    namespace at = flow_neuron_backward;
    const Operand &table = b[at::flow], &dout = b[at::dout], &dparams = b[at::dparams];
    return by_real(dout.dtype, [&]<class T>(T) -> KernelResult {
        BackwardArgs<T> a{};
        a.flows = {table, b[at::counters]};
        a.params = b[at::params];
        a.dout = dout;
        a.dflow = b[at::dflow];
        a.partial = static_cast<float*>(c.workspace);
        a.rows = table.rows;
        a.accumulate = b.accumulates(at::dflow);
        a.p = b.params<NeuronParams>();
        a.whole = whole_runs(dout);
        MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(neuron_backward_kernel<T>)));
        const unsigned all = std::max(blocks_for(table.rows, kTileRows), 1u), tiles = blocks_for(all, kMostBlocks);
        const unsigned blocks = blocks_for(all, static_cast<int>(tiles));
        const int at_once = static_cast<int>(c.workspace_bytes / (blocks * kCount * sizeof(float)));
        return make_kernel(
            [stream = c.stream, dparams, members = table.k, blocks, tiles, at_once, a, add = b.accumulates(at::dparams)] {
                for (int first = 0; first < members; first += at_once) {
                    const auto depth = static_cast<unsigned>(std::min(at_once, members - first));
                    BackwardArgs<T> part = a;
                    part.first_member = first;
                    launch(neuron_backward_kernel<T>, dim3(blocks, 1, depth), dim3(kThreads), sizeof(Shared), stream, part,
                           static_cast<int>(tiles));
                    launch(neuron_parameter_kernel, dim3(blocks_for(kCount, 32), 1, depth), dim3(32, kFinalLanes), 0, stream,
                           a.partial, dparams, static_cast<int>(blocks), first, add, a.p);
                }
            });
    });
}

}  // namespace millrace::ops::cuda
