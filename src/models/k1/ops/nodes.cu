// Norms of the nodes, a block for each piece of their parameters, then the choice, a block for each member. Sums of groups.
#include "models/k1/ops/nodes.h"

#include "models/k1/ops/choose_rule.h"
#include "ops/cuda/context.h"
#include "ops/cuda/device.cuh"
#include "ops/cuda/vector.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

constexpr int kChoosingThreads = 256;

__global__ void node_squares_kernel(Mat<const float> grads, const NodePiece* pieces, float* squares) {
    __shared__ float shared[32];
    const NodePiece piece = pieces[blockIdx.x];
    begin_kernel();
    const float* g = grads.row(blockIdx.y, 0, 0);
    float sum = 0;
    for (int i = piece.begin + threadIdx.x; i < piece.end; i += kChoosingThreads) sum += g[i] * g[i];
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0) squares[static_cast<std::int64_t>(blockIdx.y) * gridDim.x + blockIdx.x] = sum;
}

/// first[n] to first[n + 1] are the pieces of node n.
__global__ void choose_kernel(const float* squares, const int* first, int pieces, ChooseRule rule, const ChoosePolicy* policies,
                              States states, Groups groups, Mat<float> statistics, Mat<float> carries) {
    __shared__ float norms[kMostNodes], gains[kMostNodes];
    __shared__ std::int32_t parents[kMostNodes];
    for (int n = threadIdx.x; n < rule.nodes; n += kChoosingThreads) parents[n] = rule.parent[n];
    rule.parent = parents;
    begin_kernel();
    const int k = blockIdx.x;
    rule.policy = policies[k];
    const MemberState& state = states[k];
    GroupState* table = groups.row(k);
    for (int n = threadIdx.x; n < rule.nodes; n += kChoosingThreads) {
        float sum = 0;
        for (int i = first[n]; i < first[n + 1]; ++i) sum += squares[static_cast<std::int64_t>(k) * pieces + i];
        norms[n] = sqrtf(sum) / state.loss_scale;
        gains[n] = 0;
    }
    __syncthreads();
    if (rule.takes_path()) {
        if (threadIdx.x == 0) rule.walk(state, table, norms, gains);
    } else {
        for (int n = threadIdx.x; n < rule.nodes; n += kChoosingThreads) gains[n] = rule.gain_of(n, state, norms);
    }
    __syncthreads();
    const bool counts = rule.counts(state, norms);
    const int label = rule.label_of(state);
    for (int n = threadIdx.x; n < rule.nodes; n += kChoosingThreads) {
        GroupState& group = table[rule.group[n]];
        rule.write(group, gains[n], norms[n]);
        if (counts) rule.note(statistics.row(k, n, 0), carries.row(k, n, 0), n, label, group, gains[n], norms);
    }
}

using tensor::Operand;

/// A run of V columns of one output group a thread. first[m] to first[m + 1] are the terms of group m.
template <class T, int V>
__global__ void mix_groups_kernel(Mat<const T> in, Mat<T> out, const MixTerm* terms, const int* first, int rows, int cols,
                                  int out_cols, bool accumulate) {
    begin_kernel();
    const int runs = out_cols / V;
    for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < std::int64_t{rows} * runs;
         i += std::int64_t{gridDim.x} * blockDim.x) {
        const std::int64_t r = i / runs;
        const int c = static_cast<int>(i % runs) * V, m = c / cols, inner = c % cols;
        T* to = out.row(blockIdx.z, 0, r) + c;
        float sum[V] = {}, v[V];
        if (accumulate) load_run<V>(to, sum);
        for (int t = first[m]; t < first[m + 1]; ++t) {
            const MixTerm term = terms[t];
            load_run<V>(in.row(blockIdx.z, 0, r) + term.in * cols + inner, v);
#pragma unroll
            for (int j = 0; j < V; ++j) sum[j] += term.weight * v[j];
        }
        store_run<V>(to, sum);
    }
}

}  // namespace

KernelResult make_choose_nodes(Context& c, const Bound& b) {
    namespace at = choose_nodes;
    const Operand &grads = b[at::grads], &states = b[at::state], &groups = b[at::groups], &statistics = b[at::statistics],
                  &carries = b[at::carries];
    const auto& params = b.params<ChooseParams>();
    std::vector<int> first(params.group.size() + 1);
    for (const NodePiece& piece : params.pieces) ++first[static_cast<std::size_t>(piece.node) + 1];
    for (std::size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
    const auto table = [&c]<class T>(const std::vector<T>& values) {
        return upload_table(c, values.data(), values.size() * sizeof(T));
    };
    MILLRACE_LET(pieces, table(params.pieces));
    MILLRACE_LET(starts, table(first));
    MILLRACE_LET(group, table(params.group));
    MILLRACE_LET(parent, table(params.parent));
    MILLRACE_LET(squares, zero_table(c, sizeof(float) * params.pieces.size() * static_cast<std::size_t>(grads.k)));
    std::vector<ChoosePolicy> each(static_cast<std::size_t>(grads.k), params.policy.front());
    if (params.policy.size() > 1) each = params.policy;
    MILLRACE_LET(policies, table(each));
    ChooseRule rule = rule_of(params, params.policy.front());
    rule.group = static_cast<const std::int32_t*>(group);
    rule.parent = static_cast<const std::int32_t*>(parent);
    const auto count = static_cast<unsigned>(params.pieces.size());
    return make_kernel([=, stream = c.stream, kept_group = group, kept_parent = parent] {
        launch(node_squares_kernel, dim3(count, grads.k), dim3(kChoosingThreads), 0, stream, grads, pieces, squares);
        launch(choose_kernel, dim3(grads.k), dim3(kChoosingThreads), 0, stream, squares, starts, static_cast<int>(count), rule,
               policies, states, groups, statistics, carries);
    });
}

KernelResult make_mix_groups(Context& c, const Bound& b) {
    namespace at = mix_groups;
    const Operand &in = b[at::in], &out = b[at::out];
    const auto& params = b.params<MixParams>();
    const int groups = out.cols / params.cols;
    std::vector<int> first(static_cast<std::size_t>(groups) + 1);
    for (const MixTerm& term : params.terms) ++first[static_cast<std::size_t>(term.out) + 1];
    for (std::size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
    std::vector<MixTerm> terms = params.terms;
    terms.resize(std::max<std::size_t>(terms.size(), 1));
    MILLRACE_LET(list, upload_table(c, terms.data(), terms.size() * sizeof(MixTerm)));
    MILLRACE_LET(starts, upload_table(c, first.data(), first.size() * sizeof(int)));
    const bool runs = params.cols % 8 == 0 && whole_runs(in) && whole_runs(out);
    return by_real(out.dtype, [&]<class T>(T) -> KernelResult {
        const auto make = [&]<int V>(std::integral_constant<int, V>) -> KernelResult {
            const dim3 grid(std::min(blocks_for(std::int64_t{out.rows} * out.cols / V, 256), 2048u), 1, out.k);
            return make_launch(c, mix_groups_kernel<T, V>, grid, dim3(256), 0, in, out, list, starts, out.rows, params.cols,
                               out.cols, b.accumulates(at::out));
        };
        return runs ? make(std::integral_constant<int, 8>{}) : make(std::integral_constant<int, 1>{});
    });
}

}  // namespace millrace::ops::cuda
