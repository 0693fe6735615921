// Recurrent layers over time: gradients through tape::Scan against finite differences.

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "nn/bench.h"
#include "nn/gru.h"
#include "nn/losses.h"
#include "nn/pointwise.h"
#include "ops/dense/dense.h"
#include "tape/scan.h"

namespace millrace::nn {
namespace {

constexpr std::int32_t kSteps = 5, kBatch = 2, kIn = 3, kHidden = 4, kOut = 2;
using Chunks = std::vector<std::pair<std::int32_t, std::int32_t>>;

/// A recurrent layer written with the layers at hand: h' = tanh(W_o (W_x x + W_h h)), of which a head reads every step.
struct Elman {
    explicit Elman(tape::Store& store)
        : embed(store, {"embed"}, {}, plain(kIn, kIn)),
          from_x(store, {"from_x"}, {}, plain(kIn, kHidden)),
          from_h(store, {"from_h"}, {}, plain(kHidden, kHidden)),
          state(store, {"state"}, {}, plain(kHidden, kHidden, ops::Activation::tanh)),
          inner(store, {"inner"}, {}, plain(kHidden, kHidden, ops::Activation::gelu)),
          head(store, {"head"}, {}, plain(kHidden, kOut)) {
        x = store.add_data("x", tensor::DType::f64, kSteps * kBatch, kIn);
        goals = store.add_data("goals", tensor::DType::f64, kSteps * kBatch, kOut);
    }
    void build(tape::Builder& builder, const tape::ScanOptions& options) const {
        const tape::Value sequence = embed.forward(builder, {x, false});
        const tape::Value outputs = builder.activation(kSteps * kBatch, kOut, "outputs", true);
        const auto scan = std::make_shared<tape::Scan>(builder, options);
        const auto h = scan->state(kBatch, kHidden, "h");
        scan->run([&](std::int32_t t) {
            const tape::Value here = sequence.row_window(t * kBatch, kBatch);
            const tape::Value sum = add(builder, from_x.forward(builder, here), from_h.forward(builder, h.before(t)), "sum");
            const tape::Value next = state.forward(builder, sum, {h.after(t), {}});
            head.forward(builder, inner.forward(builder, next), {outputs.row_window(t * kBatch, kBatch), {}});
        });
        mse(builder, outputs, goals);
    }
    Dense embed, from_x, from_h, state, inner, head;
    tensor::View x, goals;
};

class ScanLayers : public ::testing::TestWithParam<std::pair<Chunks, bool>> {};

TEST_P(ScanLayers, OfARecurrentLayerIsThatOfFiniteDifferences) {
    tape::ScanOptions options;
    options.steps = kSteps;
    options.chunks = GetParam().first;
    options.recompute_values = GetParam().second;
    Bench bench;
    const Elman network(*bench.store);
    bench.build([&](tape::Builder& builder) { network.build(builder, options); });
    bench.fill(network.x, 1);
    bench.fill(network.goals, 2);
    bench.check_parameters();

    const std::size_t chunks = std::max<std::size_t>(options.chunks.size(), 1);
    for (const char* layer : {"from_x", "from_h", "state", "inner", "head"})
        for (const ops::OpDef* op : {&ops::linear_wgrad::kDef, &ops::column_sum::kDef})
            EXPECT_EQ(
                static_cast<std::size_t>(std::count_if(bench.records.begin(), bench.records.end(),
                                                       [&](const ops::Record& r) { return r.op == op && r.layer == layer; })),
                chunks)
                << layer << ": one product and one sum over the rows of a chunk";
}

INSTANTIATE_TEST_SUITE_P(All, ScanLayers,
                         ::testing::Values(std::pair(Chunks{}, false), std::pair(Chunks{}, true),
                                           std::pair(Chunks{{0, 2}, {2, 4}, {4, 5}}, false),
                                           std::pair(Chunks{{0, 2}, {2, 4}, {4, 5}}, true)),
                         [](const auto& p) {
                             return (p.param.first.empty() ? std::string("whole") : "chunks") +
                                    (p.param.second ? "_again" : "_kept");
                         });

/// Two GRU layers over time, of which a head reads every step and another the last state.
struct GruNetwork {
    explicit GruNetwork(tape::Store& store)
        : embed(store, {"embed"}, {}, plain(kIn, kIn)),
          first(store, "first", kIn, kHidden),
          second(store, "second", kHidden, kHidden),
          head(store, {"head"}, {}, plain(kHidden, kOut)),
          last(store, {"last"}, {}, plain(kHidden, kOut)) {
        x = store.add_data("x", tensor::DType::f64, kSteps * kBatch, kIn);
        goals = store.add_data("goals", tensor::DType::f64, (kSteps + 1) * kBatch, kOut);
        mask = store.add_data("mask", tensor::DType::f64, kBatch, 1);
    }
    void build(tape::Builder& builder, const tape::ScanOptions& options) const {
        const tape::Value sequence = embed.forward(builder, {x, false});
        const tape::Value outputs = builder.activation((kSteps + 1) * kBatch, kOut, "outputs", true);
        const auto scan = std::make_shared<tape::Scan>(builder, options);
        const auto below = scan->state(kBatch, kHidden, "below"), above = scan->state(kBatch, kHidden, "above");
        const tensor::View scratch = first.scratch(builder, kBatch);
        scan->run([&](std::int32_t t) {
            tape::Value h = first.forward(builder, sequence.row_window(t * kBatch, kBatch), below, t, scratch);
            h = second.forward(builder, h, above, t, scratch, t == 2 ? GruMask{mask, {}} : GruMask{});
            head.forward(builder, h, {outputs.row_window(t * kBatch, kBatch), {}});
        });
        last.forward(builder, above.after(kSteps - 1), {outputs.row_window(kSteps * kBatch, kBatch), {}});
        mse(builder, outputs, goals);
    }
    Dense embed;
    GruCell first, second;
    Dense head, last;
    tensor::View x, goals, mask;
};

TEST(ScanGradient, OfGruLayersIsThatOfFiniteDifferences) {
    for (const Chunks& chunks : {Chunks{}, Chunks{{0, 2}, {2, 4}, {4, 5}}})
        for (const bool wide : {false, true})
            for (const bool values : {false, true}) {
                SCOPED_TRACE(::testing::Message() << chunks.size() << " chunks, recompute " << wide << values);
                tape::ScanOptions options;
                options.steps = kSteps;
                options.chunks = chunks;
                options.recompute_wide = wide;
                options.recompute_values = values;
                Bench bench;
                const GruNetwork network(*bench.store);
                bench.build([&](tape::Builder& builder) { network.build(builder, options); });
                bench.fill(network.x, 1);
                bench.fill(network.goals, 2);
                bench.program->write(network.mask, {0, 1});
                bench.check_parameters();
            }
}

TEST(Scan, EvaluationKeepsTwoStatesAndNoSteps) {
    tape::ScanOptions options;
    options.steps = kSteps;
    Bench bench;
    const Elman network(*bench.store);
    bench.build([&](tape::Builder& builder) { network.build(builder, options); }, false);
    for (const ops::Record& record : bench.records)
        for (int slot = 0; slot < record.op->slot_count(); ++slot) {
            const tensor::View& view = record.slots[static_cast<std::size_t>(slot)];
            if (view.buffer < tape::kLocalBase || !record.layer.starts_with("step ") || view.cols != kHidden) continue;
            EXPECT_LE(view.stride_k, 2 * kBatch * kHidden) << record.layer;
        }
}

TEST(ScanDeathTest, InsideAnother) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    Bench bench;
    ASSERT_TRUE(bench.store->allocate().ok());
    tape::Builder builder(*bench.store, {});
    const auto outer = std::make_shared<tape::Scan>(builder, tape::ScanOptions{});
    const auto inner = std::make_shared<tape::Scan>(builder, tape::ScanOptions{});
    EXPECT_DEATH(outer->run([&](std::int32_t) { inner->run([](std::int32_t) {}); }), "a scan inside a scan");
}

}  // namespace
}  // namespace millrace::nn
