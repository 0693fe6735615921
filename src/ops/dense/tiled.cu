// Dense layers as products of ops/tile, with what follows a product in its epilogue.

#include <vector>

#include "ops/cuda/late_sums.h"
#include "ops/cuda/squares.h"
#include "ops/cuda/vector.cuh"
#include "ops/dense/epilogues.cuh"
#include "ops/dense/forms.h"
#include "ops/tile/product.cuh"

namespace millrace::ops::cuda::tiled {
namespace {

using tensor::DType;
using tensor::Operand;
using tile::Extent;
using tile::Factors;
using tile::Plan;
using tile::TileShape;

const char* refuses_product(const Operand& left, const Operand& right) {
    if (!has_tile_products()) return "the GPU lacks the instructions";
    if (left.dtype != right.dtype || !tile::has_tensor_map(left) || !tile::has_tensor_map(right))
        return "operands are not 16 bits an element in rows that begin at multiples of 16 bytes";
    return nullptr;
}

/// Sums must not depend on how many members stand beside each other in pinned runs.
int members(const Context& c, const Operand& out) { return c.deterministic ? 1 : out.k; }

/// Efforts of epilogues on an H200, to be fitted again with the figures of ops/tile/plan.cu.
double activation_effort(const DenseParams& p) {
    const bool simple = p.activation == Activation::none || p.activation == Activation::relu;
    return (simple ? 0 : 0.8) + (p.dropout > 0 ? 0.8 : 0);
}

Extent forward_extent(const Context& c, const Bound& b) {
    const Operand& y = b[dense_forward::y];
    const auto& p = b.params<DenseParams>();
    const bool more = p.norm == Norm::batch_train || b[dense_forward::saved].present();
    return {y.rows, y.cols, b[dense_forward::x].cols, y.g, members(c, y), (more ? 1.4 : 1) + activation_effort(p)};
}
Extent dgrad_extent(const Context& c, const Bound& d, const Bound* layer = nullptr) {
    const Operand& dx = d[linear_dgrad::dx];
    const double effort = layer ? 1.8 + activation_effort(layer->params<DenseParams>()) : 1;
    return {dx.rows, dx.cols, d[linear_dgrad::dz].cols, dx.g, members(c, dx), effort};
}
Extent wgrad_extent(const Context& c, const Bound& w) {
    const Operand& dw = w[linear_wgrad::dw];
    return {dw.rows, dw.cols, w[linear_wgrad::dz].rows, dw.g, members(c, dw), 1.3};
}

Plan plan_one(const Context& c, const Extent& e, TileShape widest = TileShape::wide) {
    return tile::plan_products(std::span(&e, 1), c.multiprocessors, tile::limits_of(c.forms, widest));
}
/// Wide tiles have no room for sums of columns.
constexpr TileShape kWithColumns = TileShape::turns;

bool whole_columns(const Operand& o) { return o.cols % 8 == 0 && whole_runs(o); }

/// The product of one record, whose `extent` was planned for.
template <class T, bool kRightRows, class Epilogue>
KernelResult make_one(Context& c, const Operand& left, const Operand& right, Extent extent, const Plan& plan,
                      const typename Epilogue::Args& args) {
    extent.members = left.k;
    const Factors<typename Epilogue::Args> f{left, right, extent, args};
    return tile::make_products<T, false, kRightRows, Epilogue>(c, std::span(&f, 1), plan, c.reads_early({&right}));
}

template <class T>
KernelResult make_batch_forward(Context& c, const Bound& b) {
    using namespace dense_forward;
    Operand z;
    MILLRACE_LET(memory, batch_norm::make_product_memory(c, b[y], z));
    const Extent extent = forward_extent(c, b);
    const Plan plan = plan_one(c, extent, kWithColumns);
    batch_norm::Chunks chunks{};
    MILLRACE_LET(table, batch_norm::make_chunks(c, z, tile::rows_of(plan.shape), chunks));
    MILLRACE_LET(product, (make_one<T, false, MomentsEpilogue>(c, b[x], b[w], extent, plan, {z, chunks, z.cols % 8 == 0})));
    return in_order({std::move(product), batch_norm::make_apply_forward(c, b, z, chunks)}, memory, table);
}

template <class T, class Out>
KernelResult make_plain_dgrad(Context& c, const Bound& d) {
    using namespace linear_dgrad;
    const Extent extent = dgrad_extent(c, d);
    return make_one<T, true, GradientEpilogue<Out>>(c, d[dz], d[w], extent, plan_one(c, extent),
                                                    {d[dx], d.accumulates(dx), whole_columns(d[dx])});
}

template <class T>
KernelResult make_pair(Context& c, const Bound& d, const Bound& b) {
    using namespace dense_backward;
    using Epilogue = BackwardEpilogue<T>;
    const Operand& out = b[dz];
    const bool batch = b.params<DenseParams>().norm == Norm::batch_train;
    const Extent extent = dgrad_extent(c, d, &b);
    const Plan plan = plan_one(c, extent, kWithColumns);
    batch_norm::Chunks chunks{};
    MILLRACE_LET(table, batch_norm::make_chunks(c, out, tile::rows_of(plan.shape), chunks));
    const bool sums = batch || b[dbias].present();
    const typename Epilogue::Args args{
        layer_backward<T>(b), d[linear_dgrad::dx], sums ? chunks.values.data : nullptr, out.rows, out.cols, out.g,
        extent.cols,          chunks.count,        d.accumulates(linear_dgrad::dx)};
    MILLRACE_LET(product, (make_one<T, true, Epilogue>(c, d[linear_dgrad::dz], d[linear_dgrad::w], extent, plan, args)));
    if (!batch) {
        const ChunkSums bias{b[dbias], chunks.values.data, chunks.count, out.cols, b.accumulates(dbias), table};
        return with_sums(c, in_order({std::move(product)}, table), std::span(&bias, 1));
    }
    return in_order({std::move(product), batch_norm::make_apply_backward(c, b, chunks)}, table);
}

/// Weight gradients of one launch.
constexpr std::size_t kMostWgrads = 24;

}  // namespace

const char* refuses_forward(const Context&, const Bound& b) {
    using namespace dense_forward;
    if (b[y].count() == 0) return "there is nothing to do";
    return b[y].dtype == b[x].dtype ? refuses_product(b[x], b[w]) : "the product is not stored as its operands are";
}
const char* refuses_dgrad(const Context&, const Bound& d) {
    if (d[linear_dgrad::dx].count() == 0) return "there is nothing to do";
    if (d[linear_dgrad::dx].cols != d[linear_dgrad::w].cols) return "dx has more columns than the weight";
    return refuses_product(d[linear_dgrad::dz], d[linear_dgrad::w]);
}
const char* refuses_wgrad(const Context&, const Bound& w) {
    if (w[linear_wgrad::dw].count() == 0 || w[linear_wgrad::dz].rows == 0) return "there is nothing to do";
    return refuses_product(w[linear_wgrad::dz], w[linear_wgrad::x]);
}

const char* refuses_pair(const Context& c, const Bound& d, const Bound& b) {
    using namespace dense_backward;
    const Operand &dx = d[linear_dgrad::dx], &above = b[dy];
    if (!reads_product(d, b) || dx.dtype != above.dtype || dx.dtype != d[linear_dgrad::w].dtype)
        return "the product is not the layer's gradient";
    if (dx.cols % 8 != 0 || above.cols % 8 != 0 || !whole_runs(dx) || !whole_runs(b[dz]) || !whole_runs(b[saved]))
        return "rows are not whole runs of 16 bytes";
    return refuses_dgrad(c, d);
}

KernelResult make_forward(Context& c, const Bound& b) {
    using namespace dense_forward;
    const auto& p = b.params<DenseParams>();
    return by_half(b[y].dtype, [&]<class T>(T) -> KernelResult {
        if (p.norm == Norm::batch_train) return make_batch_forward<T>(c, b);
        const Extent extent = forward_extent(c, b);
        const bool whole = whole_columns(b[y]) && (!b[saved].present() || whole_columns(b[saved]));
        return make_one<T, false, ForwardEpilogue<T>>(c, b[x], b[w], extent, plan_one(c, extent),
                                                      {layer_forward<T>(b), b[y].rows, b[y].cols, whole});
    });
}

KernelResult make_dgrad(Context& c, const Bound& d, const Bound* backward) {
    return by_half(d[linear_dgrad::w].dtype, [&]<class T>(T) -> KernelResult {
        if (backward) return make_pair<T>(c, d, *backward);
        if (d[linear_dgrad::dx].dtype == DType::f32) return make_plain_dgrad<T, float>(c, d);
        return make_plain_dgrad<T, T>(c, d);
    });
}

KernelResult make_wgrads(Context& c, std::span<const Bound> wgrads) {
    using namespace linear_wgrad;
    using Epilogue = WeightEpilogue;
    std::vector<Extent> extents;
    std::vector<Factors<Epilogue::Args>> all;
    for (const Bound& b : wgrads) {
        extents.push_back(wgrad_extent(c, b));
        Extent extent = extents.back();
        extent.members = b[dw].k;
        all.push_back({b[dz], b[x], extent, {{b[dw], b.accumulates(dw), whole_columns(b[dw])}, b[dbias], b.accumulates(dbias)}});
    }
    const Plan plan = tile::plan_products(extents, c.multiprocessors, tile::limits_of(c.forms));
    std::vector<DeviceTable> held;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const Operand& out = wgrads[i][dw];
        MILLRACE_LET(squares, leave_squares(c, out, tile::warps_of(plan.shape, extents[i])));
        all[i].args.squares = static_cast<float*>(squares);
        held.push_back(squares);
    }
    return by_half(wgrads.front()[x].dtype, [&]<class T>(T) -> KernelResult {
        Kernels steps;
        for (std::size_t i = 0; i < all.size(); i += kMostWgrads) {
            const auto some = std::span<const Factors<Epilogue::Args>>(all).subspan(i, std::min(kMostWgrads, all.size() - i));
            MILLRACE_SET(steps.emplace_back(), (tile::make_products<T, true, true, Epilogue, kMostWgrads>(c, some, plan)));
        }
        return in_order(std::move(steps), held);
    });
}

/// What a product takes longer where the second cache does not hold all that it moves: operands come at 3.6 TB/s, what is
/// written goes at 4.2, and what an epilogue reads, a panel ahead, comes at 0.55 (H200).
static double memory_time(const Operand& left, const Operand& right, double written, double read) {
    constexpr double kSecondCache = 50e6;
    const double operands = 2.0 * static_cast<double>(left.count() + right.count());
    if (operands + written + read < kSecondCache) return 0;
    return operands / 3.6e6 + written / 4.2e6 + read / 0.55e6;
}

double forward_time(const Context& c, const Bound& b) {
    using namespace dense_forward;
    const bool batch = b.params<DenseParams>().norm == Norm::batch_train;
    const Plan plan = plan_one(c, forward_extent(c, b), batch ? kWithColumns : TileShape::wide);
    const double elements = static_cast<double>(b[y].count()), values = batch || b[saved].present() ? 4 : 2;
    return plan.microseconds + memory_time(b[x], b[w], values * elements, 0) + (batch ? statistics_time(8 * elements) : 0);
}
double dgrad_time(const Context& c, const Bound& d, const Bound* backward) {
    const double elements = static_cast<double>(d[linear_dgrad::dx].count());
    const bool batch = backward && backward->params<DenseParams>().norm == Norm::batch_train;
    const Plan plan = plan_one(c, dgrad_extent(c, d, backward), backward ? kWithColumns : TileShape::wide);
    const double read = backward && (*backward)[dense_backward::saved].present() ? 2 * elements : 0;
    return plan.microseconds + memory_time(d[linear_dgrad::dz], d[linear_dgrad::w], 2 * elements, read) +
           (batch      ? statistics_time(6 * elements)
            : backward ? 2
                       : 0);
}
double wgrads_time(const Context& c, std::span<const Bound> wgrads) {
    std::vector<Extent> extents;
    for (const Bound& b : wgrads) extents.push_back(wgrad_extent(c, b));
    // Both operands have the summed index along their rows, which takes longer than along their columns.
    return 1.28 * tile::plan_products(extents, c.multiprocessors, tile::limits_of(c.forms)).microseconds;
}

}  // namespace millrace::ops::cuda::tiled
