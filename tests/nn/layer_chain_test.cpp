// The way back through layers over short sequences as one kernel: which records it takes, and that it finds what they find.

#include "ops/sequence/sequence.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "nn/losses.h"
#include "nn/pointwise.h"
#include "nn/sequence_rig.h"
#include "ops/dense/dense.h"
#include "ops/norm/layernorm.h"

namespace millrace::nn {
namespace {

struct Layers : SequenceShape {
    std::int32_t depth = 2;
    bool around = false;  ///< what goes into the layers is also added to what comes out
};
Layers with_inner(std::int32_t inner, std::int32_t positions) {
    return {{.positions = positions, .options = {128, 4, inner, true, 0, false, {}}}};
}

/// A linear layer, `depth` layers and a squared error: one training program.
struct ChainRig : SequenceRig {
    ChainRig(const Layers& given, ops::DeviceKind device, const std::vector<std::string>& off = {})
        : SequenceRig(given, given.depth, device, off), around(given.around) {
        first = Dense(*store, {"first"}, {}, linear(kInputs, shape.cols()));
        input = store->add_data("input", tape::real_of(shape.precision), shape.rows(), kInputs);
        target = store->add_data("target", tape::real_of(shape.precision), shape.rows(), shape.cols());
        begin();
    }
    tape::Builder build() {
        tape::BuildOptions options;
        options.defer_weight_gradients = true;
        tape::Builder builder(*store, options);
        const tape::Value in = first.forward(builder, {for_all(input), false}), out = through_layers(builder, in);
        mse(builder, around ? add(builder, in, out, "around") : out, for_all(target));
        builder.backward();
        return builder;
    }
    /// Runs the program and gives the gradients; `joined` counts layers that are one kernel.
    testing::Tensors gradients(int& joined, std::uint32_t replayed_step = 0) {
        tape::Arena arena(*backend);
        tape::Program program("layers", *store, build(), arena);
        if (!run(program, arena, {input, target}, replayed_step)) return {};
        joined = joined_by(program, "sequence_backward");
        return testing::trained_tensors(*store, tape::Store::Arena::gradient);
    }

    static constexpr std::int32_t kInputs = 8;
    bool around;
    Dense first;
    tensor::View input, target;
};

std::int32_t chains_in(const std::vector<ops::Bound>& all) {
    std::int32_t count = 0;
    for (std::size_t r = 0; r < all.size(); ++r)
        if (ops::is_layer_chain(std::span(all).subspan(r))) ++count;
    return count;
}
std::size_t first_chain(const std::vector<ops::Bound>& all) {
    std::size_t begin = 0;
    while (begin < all.size() && !ops::is_layer_chain(std::span(all).subspan(begin))) ++begin;
    return begin;
}
std::int32_t chains_of(const Layers& layers) {
    ChainRig rig(layers, ops::DeviceKind::cpu);
    const tape::Builder builder = rig.build();
    return chains_in(stand_ins(builder.records()));
}

TEST(LayerChain, IsEachLayerOfItsShape) {
    EXPECT_EQ(chains_of({}), 2);
    EXPECT_EQ(chains_of({{.members = 2}}), 2);
    EXPECT_EQ(chains_of({{.groups = 3}}), 2);
    EXPECT_EQ(chains_of(with_inner(128, 64)), 2);
    EXPECT_EQ(chains_of({{.positions = 16}, 2}), 2);
    EXPECT_EQ(chains_of({{.options = dropping(256)}, 2}), 2);
    EXPECT_EQ(chains_of({{.groups = 3, .options = dropping(128)}}), 2);
    EXPECT_EQ(chains_of(in_f16(Layers{})), 2);
}

TEST(LayerChain, IsNoLayerOfAnotherShape) {
    const auto with_options = [](const TransformerOptions& options) { return Layers{{.options = options}}; };
    EXPECT_EQ(chains_of({{.precision = tape::Precision::f32}}), 0);
    EXPECT_EQ(chains_of({{.members = 2, .groups = 2}}), 0);
    EXPECT_EQ(chains_of({{.positions = 65}}), 0);
    EXPECT_EQ(chains_of({{.positions = 15}}), 0);
    EXPECT_EQ(chains_of({{.prefix = 1}}), 0);
    EXPECT_EQ(chains_of(with_options({128, 4, 256, false, 0, false, {}})), 0);  // sees all positions
    EXPECT_EQ(chains_of(with_options({128, 4, 256, true, 0, true, {}})), 0);    // norms first
    EXPECT_EQ(chains_of(with_options({128, 8, 256, true, 0, false, {}})), 0);   // narrow heads
    EXPECT_EQ(chains_of(with_options({64, 2, 256, true, 0, false, {}})), 0);
    EXPECT_EQ(chains_of(with_options({128, 4, 512, true, 0, false, {}})), 0);
}

/// What reads a layer's input behind it has written the input's gradient, which the layer adds to.
TEST(LayerChain, AddsToAGradientThatIsThere) {
    for (const bool around : {false, true}) {
        ChainRig rig({{}, 2, around}, ops::DeviceKind::cpu);
        const tape::Builder builder = rig.build();
        const auto all = stand_ins(builder.records());
        std::vector<bool> adds;
        for (std::size_t r = 0; r < all.size(); ++r)
            if (ops::is_layer_chain(std::span(all).subspan(r)))
                adds.push_back(ops::LayerChain(std::span(all).subspan(r)).norm1.accumulates(ops::layernorm_backward::dresidual));
        EXPECT_EQ(adds, (std::vector<bool>{false, around}));
    }
}

/// A record behind the layer that reads a gradient which the kernel keeps to itself.
class LayerChainOf : public ::testing::TestWithParam<bool> {
protected:
    ChainRig rig{{{.options = GetParam() ? dropping(256) : SequenceShape{}.options}, 1}, ops::DeviceKind::cpu};
};
INSTANTIATE_TEST_SUITE_P(Layers, LayerChainOf, ::testing::Bool(),
                         [](const auto& given) { return given.param ? "WithDropout" : "WithoutDropout"; });

TEST_P(LayerChainOf, LeavesAGradientThatAnotherRecordReads) {
    const tape::Builder builder = rig.build();
    const std::vector<ops::Record> records = builder.records();
    const std::size_t begin = first_chain(stand_ins(records));
    ASSERT_LT(begin, records.size());
    EXPECT_EQ(taken_by(ops::match_layer_chain, records), 1);
    const auto with_reader = [&](std::size_t record, int slot) {
        std::vector<ops::Record> more = records;
        ops::Record reader = more.back();
        reader.slots[0] = more[begin + record].slots[static_cast<std::size_t>(slot)];
        more.push_back(reader);
        return taken_by(ops::match_layer_chain, more);
    };
    for (const std::size_t product : {2u, 4u, 7u}) EXPECT_EQ(with_reader(product, ops::linear_dgrad::dx), 0) << product;
    for (const std::size_t linear : {1u, 6u}) {  // dz is stored; in front of dropout dy is not
        EXPECT_EQ(with_reader(linear, ops::dense_backward::dy), GetParam() ? 0 : 1) << linear;
        EXPECT_EQ(with_reader(linear, ops::dense_backward::dz), 1) << linear;
    }
}

TEST_P(LayerChainOf, EveryLinkCounts) {
    const tape::Builder builder = rig.build();
    const auto all = stand_ins(builder.records());
    const std::size_t begin = first_chain(all);
    ASSERT_LT(begin, all.size());
    for (std::size_t r = begin + 1; r < begin + ops::LayerChain::kRecords; ++r) {  // what each record reads first comes from afar
        std::vector<ops::Bound> broken = all;
        broken[r].operands[0].data = static_cast<std::byte*>(broken[r].operands[0].data) + 16;
        EXPECT_FALSE(ops::is_layer_chain(std::span(broken).subspan(begin))) << "record " << r - begin;
    }
    for (const std::size_t r : {0u, 2u, 4u, 5u, 7u, 10u}) {
        std::vector<ops::Record> records = builder.records();
        records[begin + r].accumulate ^= 1u << (r % 5 == 0 && r < 10 ? +ops::layernorm_backward::dx : +ops::linear_dgrad::dx);
        EXPECT_EQ(chains_in(stand_ins(records)), 0) << "record " << r;
    }
    for (const std::size_t r : {1u, 6u}) {  // one with and one without dropout
        std::vector<ops::Record> records = builder.records();
        auto params = records[begin + r].params_as<ops::DenseParams>();
        params.dropout = GetParam() ? 0 : 0.3f;
        records[begin + r].params = params;
        EXPECT_EQ(chains_in(stand_ins(records)), 0) << "record " << r;
    }
}

class LayerChainRuns : public ::testing::TestWithParam<Layers> {};

TEST_P(LayerChainRuns, AsItsRecordsOneByOne) {
    if (const std::string why = testing::missing(ops::DeviceKind::cuda); !why.empty()) GTEST_SKIP() << why;
    int with = 0, without = 0;
    const testing::Tensors found = ChainRig(GetParam(), ops::DeviceKind::cuda).gradients(with);
    const testing::Tensors wanted = ChainRig(GetParam(), ops::DeviceKind::cuda, {"sequence_backward"}).gradients(without);
    EXPECT_EQ(with, 2);
    EXPECT_EQ(without, 0);
    EXPECT_EQ(testing::tensors_apart(found, wanted, GetParam().tolerance(0.03)), "");
}

/// The numbers of a step come from memory, so that a replay has those of its own step.
TEST(LayerChainReplay, DropsByTheStepItRuns) {
    if (const std::string why = testing::missing(ops::DeviceKind::cuda); !why.empty()) GTEST_SKIP() << why;
    for (const tape::Precision precision : {tape::Precision::bf16, tape::Precision::f16})
        for (const std::int32_t batch : {3, 71}) {
            const Layers given{{.members = 2, .batch = batch, .options = dropping(256), .precision = precision}};
            int joined = 0;
            const auto first = ChainRig(given, ops::DeviceKind::cuda).gradients(joined);
            const auto replayed = ChainRig(given, ops::DeviceKind::cuda).gradients(joined, 2);
            EXPECT_EQ(joined, 2);
            ChainRig second(given, ops::DeviceKind::cuda);
            second.set_step(2);
            EXPECT_EQ(replayed, second.gradients(joined));
            EXPECT_NE(replayed, first);
        }
}

// Few sequences of more than 32 positions are shared by two blocks each, 70 are not.
INSTANTIATE_TEST_SUITE_P(All, LayerChainRuns,
                         ::testing::Values(Layers{}, Layers{{.members = 2}}, Layers{{.groups = 3}},
                                           Layers{{.batch = 70, .positions = 64}}, Layers{{.groups = 3, .batch = 30}},
                                           with_inner(128, 16), with_inner(128, 64), Layers{{.batch = 5, .positions = 63}, 2},
                                           Layers{{.positions = 64}, 2, true}, Layers{{.batch = 70, .positions = 50}, 2, true},
                                           Layers{{.options = dropping(256)}},
                                           Layers{{.members = 2, .batch = 5, .positions = 33, .options = dropping(128)}},
                                           Layers{{.groups = 3, .positions = 16, .options = dropping(256)}},
                                           Layers{{.batch = 71, .positions = 64, .options = dropping(256)}},
                                           Layers{{.members = 2, .batch = 37, .positions = 31, .options = dropping(256)}, 2},
                                           Layers{{.groups = 3, .batch = 31, .positions = 63, .options = dropping(128)}, 2, true},
                                           in_f16(Layers{}), in_f16(Layers{{.batch = 70, .positions = 64}}),
                                           in_f16(Layers{{.positions = 64}, 2, true}),
                                           in_f16(Layers{{.members = 2, .batch = 5, .positions = 33, .options = dropping(128)}}),
                                           in_f16(Layers{{.batch = 71, .positions = 64, .options = dropping(256)}}),
                                           in_f16(Layers{{.groups = 3, .batch = 31, .options = dropping(256)}, 2})),
                         [](const auto& given) { return given.param.name() + (given.param.around ? "Around" : ""); });

}  // namespace
}  // namespace millrace::nn
