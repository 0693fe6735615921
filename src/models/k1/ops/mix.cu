#include "models/k1/ops/mix.h"
#include "ops/cuda/context.h"
#include "ops/cuda/device.cuh"
#include "ops/cuda/vector.cuh"

namespace millrace::ops::cuda {
namespace {

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
