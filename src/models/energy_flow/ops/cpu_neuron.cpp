#include <algorithm>
#include <array>

#include "models/energy_flow/ops/flow.h"
#include "models/energy_flow/ops/flow_rule.h"
#include "models/energy_flow/ops/neuron_loops.h"
#include "ops/cpu/kernel.h"

namespace millrace::ops::cpu {
namespace {

using tensor::Operand;

constexpr int kHidden = kNeuronHidden, kFeatures = kNeuronFeatures, kTile = kNeuronTile;

template <class Pointer, class Offset>
NeuronTensors<Pointer> tensors_at(Pointer base, const Offset* at) {
    return {base + at[0], base + at[1], base + at[2], base + at[3], base + at[4],  base + at[5],
            base + at[6], base + at[7], base + at[8], base + at[9], base + at[10], base + at[11]};
}

/// The tensors one behind the other, as partial sums keep them.
constexpr std::array<int, kNeuronTensors + 1> packed_offsets() {
    std::array<int, kNeuronTensors + 1> at{};
    for (std::size_t t = 0; t < kNeuronTensors; ++t) at[t + 1] = at[t] + kNeuronSizes[t];
    return at;
}
constexpr auto kPacked = packed_offsets();
constexpr int kPackedFloats = (kPacked[kNeuronTensors] + 15) / 16 * 16;

/// Up to kTile alive rows of a table, feature by feature; missing ones are zeros.
struct Gathered {
    int count = 0;
    std::array<int, kTile> row{};
    alignas(64) std::array<float, 4 * kTile> flow{};

    /// Takes alive rows from `next` on and moves it behind the last one looked at.
    void fill(const Operand& table, int member, int& next, int end) {
        count = 0;
        flow.fill(0);
        for (; next < end && count < kTile; ++next) {
            const float* from = table.at<float>(member, 0, next);
            if (from[flow::active] == 0) continue;
            const auto at = static_cast<std::size_t>(count++);
            row[at] = next;
            for (std::size_t i = 0; i < 4; ++i) flow[i * kTile + at] = from[i];
        }
    }
};
static_assert(flow::x == 0 && flow::energy == 3);

void forward_rows(const Context& context, const Bound& b, int member, int begin, int end) {
    namespace at = flow_neuron_forward;
    const Operand& to = b[at::out];
    for (int row = begin; row < end; ++row) {
        float* x = to.at<float>(member, 0, row);
        if (b[at::flow].at<float>(member, 0, row)[flow::active] == 0 || has_stopped(b[at::counters], member))
            std::fill_n(x, to.cols, 0.0f);
        else
            std::fill_n(x + kFeatures, to.cols - kFeatures, 0.0f);
    }
    if (has_stopped(b[at::counters], member)) return;
    const NeuronWeights weights = tensors_at<const float*>(b[at::params].at<float>(member), b.params<NeuronParams>().offsets);
    alignas(64) float features[kTile * kFeatures];
    Gathered rows;
    for (int next = begin; next < end;) {
        rows.fill(b[at::flow], member, next, end);
        if (rows.count == 0) break;
        MILLRACE_ISA_PICK(neuron_loops, context.simd.vector_bytes).forward(weights, rows.flow.data(), features);
        for (int i = 0; i < rows.count; ++i) {
            const auto at = static_cast<std::size_t>(i);
            float* x = to.at<float>(member, 0, rows.row[at]);
            std::copy_n(features + i * kFeatures, kFeatures, x);
            x[kFeatures] = rows.flow[flow::energy * kTile + at];
        }
    }
}

/// Blocks of rows fixed by the shape: each has partial sums of its own, which are added in ascending order.
class NeuronBackward {
public:
    NeuronBackward(Context& context, const Bound& bound)
        : context_(context), b_(bound), blocks_(bound[flow_neuron_backward::flow].rows, 8 * kTile, kMostBlocks) {
        context.scratch.reserve_shared(static_cast<std::size_t>(bound[flow_neuron_backward::flow].k) *
                                       static_cast<std::size_t>(blocks_.count) * kPackedFloats);
    }

    void operator()() noexcept {
        namespace at = flow_neuron_backward;
        const int members = b_[at::flow].k;
        context_.pool.for_each_if(members * b_[at::flow].rows > 2 * kTile, members * blocks_.count,
                                  [this](int task, int) { block(task / blocks_.count, task % blocks_.count); });
        for (int m = 0; m < members; ++m) merge(m);
    }

private:
    static constexpr int kMostBlocks = 64;

    [[nodiscard]] float* sums_of(int member, int index) const {
        return context_.scratch.shared() + (std::int64_t{member} * blocks_.count + index) * kPackedFloats;
    }

    void block(int member, int index) noexcept {
        namespace at = flow_neuron_backward;
        const int begin = blocks_.begin(index), end = blocks_.end(index);
        float* sums = sums_of(member, index);
        std::fill_n(sums, kPackedFloats, 0.0f);
        for (int row = begin; row < end && !b_.accumulates(at::dflow); ++row)
            std::fill_n(b_[at::dflow].at<float>(member, 0, row), kFlowColumns, 0.0f);
        if (has_stopped(b_[at::counters], member)) return;
        const NeuronWeights weights =
            tensors_at<const float*>(b_[at::params].at<float>(member), b_.params<NeuronParams>().offsets);
        const NeuronGradients gradients = tensors_at<float*>(sums, kPacked.data());
        alignas(64) float gradient[kTile * kFeatures], back[4 * kTile];
        Gathered rows;
        for (int next = begin; next < end;) {
            rows.fill(b_[at::flow], member, next, end);
            if (rows.count == 0) break;
            for (int i = 0; i < kTile; ++i) {
                if (i < rows.count)
                    std::copy_n(b_[at::dout].at<float>(member, 0, rows.row[static_cast<std::size_t>(i)]), kFeatures,
                                gradient + i * kFeatures);
                else
                    std::fill_n(gradient + i * kFeatures, kFeatures, 0.0f);
            }
            MILLRACE_ISA_PICK(neuron_loops, context_.simd.vector_bytes)
                .backward(weights, rows.flow.data(), gradient, gradients, back);
            for (int i = 0; i < rows.count; ++i) {
                const int row = rows.row[static_cast<std::size_t>(i)];
                float* to = b_[at::dflow].at<float>(member, 0, row);
                for (int c = 0; c < 4; ++c) to[c] += back[c * kTile + i];
                to[flow::energy] += b_[at::dout].at<float>(member, 0, row)[kFeatures];
            }
        }
    }

    void merge(int member) noexcept {
        namespace at = flow_neuron_backward;
        const std::int32_t* offsets = b_.params<NeuronParams>().offsets;
        float* to = b_[at::dparams].at<float>(member);
        const bool add = b_.accumulates(at::dparams);
        for (std::size_t t = 0; t < kNeuronTensors; ++t) {
            float* target = to + offsets[t];
            if (!add) std::fill_n(target, kNeuronSizes[t], 0.0f);
            for (int index = 0; index < blocks_.count; ++index) {
                const float* part = sums_of(member, index) + kPacked[t];
                for (int i = 0; i < kNeuronSizes[t]; ++i) target[i] += part[i];
            }
        }
    }

    Context& context_;
    Bound b_;
    Blocks blocks_;
};

}  // namespace

KernelResult make_flow_neuron_forward(Context& context, const Bound& bound) {
    namespace at = flow_neuron_forward;
    return make_kernel([&context, b = bound]() noexcept {
        for_each_piece(context, b[at::flow].k, b[at::flow].rows, 3000,
                       [&](int m, int begin, int end) { forward_rows(context, b, m, begin, end); });
    });
}

KernelResult make_flow_neuron_backward(Context& context, const Bound& bound) {
    return make_kernel(NeuronBackward(context, bound));
}

}  // namespace millrace::ops::cpu
