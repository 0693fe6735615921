// Bookkeeping of the step: schedule, counters, metrics ring, fills, copies, and the gathering of images.

#include "ops/cuda/context.h"
#include "ops/cuda/device.cuh"
#include "ops/step/step.h"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

__device__ double schedule_factor(const MemberState& p, std::uint32_t s) {
    if (s <= p.warmup_steps) return static_cast<double>(s) / p.warmup_steps;
    const double n = p.total_steps > p.warmup_steps ? p.total_steps - p.warmup_steps : 1;
    const double t = fmin(static_cast<double>(s - p.warmup_steps), n);
    switch (p.schedule) {
        case ScheduleKind::constant: return 1;
        case ScheduleKind::cosine: return p.floor + (1 - p.floor) * (1 + cospi(t / n)) / 2;
        case ScheduleKind::step: return pow(p.gamma, static_cast<double>((s - 1) / p.interval));
    }
    return 1;
}

__global__ void step_begin_kernel(States states, Groups groups, int members, StepBeginParams p) {
    begin_kernel();
    // Three threads a member, two of them for one group (blockIdx.y): each of the double-precision powers takes longer than all
    // other work.
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= members) return;
    if (threadIdx.y > 0) {
        // Volatile, so that all are loaded at once: the compiler puts a load behind a branch that waits for another one.
        const MemberState& m = states[k];
        GroupState& group = groups.row(k)[blockIdx.y];
        const volatile GroupState& now = group;
        const std::uint32_t trainable = now.trainable, applied = now.applied;
        const double beta = *static_cast<const volatile float*>(threadIdx.y == 1 ? &m.beta1 : &m.beta2);
        if (trainable == 0) return;
        (threadIdx.y == 1 ? group.bias1 : group.bias2) = static_cast<float>(1 - pow(beta, static_cast<double>(applied + 1)));
        return;
    }
    if (blockIdx.y > 0) return;
    MemberState& out = states[k];
    const MemberState m = out;
    out.step = m.step + 1;
    out.micro = p.rank;
    out.position = m.position + p.first;
    out.nonfinite = 0;
    out.rows = out.correct = 0;
    out.loss = out.penalty = 0;
    out.lr = static_cast<float>(m.base_lr * schedule_factor(m, m.step + 1));
}

__global__ void micro_end_kernel(States states, int members, MicroEndParams p) {
    begin_kernel();
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < members) close_micro(p, states[k]);
}

__global__ void metrics_push_kernel(States states, int members, std::uint64_t* counter, MetricsRow* ring,
                                    std::uint32_t capacity) {
    begin_kernel();
    const std::uint64_t sequence = *counter + 1;
    __syncthreads();
    MetricsRow* row = ring + (sequence % capacity) * members;
    for (int k = threadIdx.x; k < members; k += blockDim.x) write_metrics(row + k, states[k], sequence);
    if (threadIdx.x == 0) *counter = sequence;
}

}  // namespace

bool dependent_launches() {
    static const bool able = [] {
        cudaFuncAttributes compiled{};
        if (cudaFuncGetAttributes(&compiled, step_begin_kernel) != cudaSuccess) return false;
        return std::min(compiled.ptxVersion, compiled.binaryVersion) >= 90;
    }();
    return able;
}

KernelResult make_step_begin(Context& c, const Bound& b) {
    const Operand& s = b[step_begin::state];
    const Groups groups(b[step_begin::groups]);
    return make_launch(c, step_begin_kernel, dim3(blocks_for(s.k, 32), groups.count), dim3(32, 3), 0, s, groups, s.k,
                       b.params<StepBeginParams>());
}

KernelResult make_micro_end(Context& c, const Bound& b) {
    const Operand& s = b[micro_end::state];
    return make_launch(c, micro_end_kernel, dim3(blocks_for(s.k, 64)), dim3(64), 0, s, s.k, b.params<MicroEndParams>());
}

KernelResult make_metrics_push(Context& c, const Bound& b) {
    const Operand &s = b[metrics_push::state], &counter = b[metrics_push::counter], &ring = b[metrics_push::ring];
    return make_launch(c, metrics_push_kernel, dim3(1), dim3(64), 0, s, s.k, static_cast<std::uint64_t*>(counter.data),
                       static_cast<MetricsRow*>(ring.data), b.params<MetricsPushParams>().capacity);
}

}  // namespace millrace::ops::cuda
