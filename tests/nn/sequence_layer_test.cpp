// Layers over short sequences as one kernel forward: which records it takes, and that it finds what they find.

#include "ops/sequence/sequence.h"

#include <gtest/gtest.h>

#include "nn/sequence_rig.h"
#include "ops/dense/dense.h"

namespace millrace::nn {
namespace {

struct Forward : SequenceShape {
    bool training = true;
};

/// Two layers, and the program that takes rows through them.
struct ForwardRig : SequenceRig {
    explicit ForwardRig(const Forward& given, ops::DeviceKind device, const std::vector<std::string>& off = {})
        : SequenceRig(given, 2, device, off), training(given.training) {
        input = store->add_data("input", tape::real_of(shape.precision), shape.rows(), shape.cols());
        begin();
    }
    tape::Builder build() {
        tape::BuildOptions options;
        options.training = training;
        tape::Builder builder(*store, options);
        last = through_layers(builder, {for_all(input), false}).view;
        builder.keep(last);
        builder.close_section();
        return builder;
    }
    /// What comes out of the second layer; `joined` counts layers that are one kernel.
    std::vector<float> rows(int& joined, std::uint32_t replayed_step = 0) {
        tape::Arena arena(*backend);
        tape::Program program("layers", *store, build(), arena);
        if (!run(program, arena, {input}, replayed_step)) return {};
        joined = joined_by(program, "sequence_forward");
        const std::vector<double> values = program.read(last);
        return {values.begin(), values.end()};
    }

    bool training;
    tensor::View input, last;
};

int layers_in(const SequenceShape& shape, bool training = true) {
    ForwardRig rig({shape, training}, ops::DeviceKind::cpu);
    const tape::Builder builder = rig.build();
    const auto all = stand_ins(builder.records());
    int count = 0;
    for (std::size_t r = 0; r < all.size(); ++r) count += ops::is_sequence_layer(std::span(all).subspan(r)) ? 1 : 0;
    return count;
}

TEST(SequenceLayer, IsEachLayerOfItsShape) {
    for (const bool training : {true, false}) {
        EXPECT_EQ(layers_in({}, training), 2);
        EXPECT_EQ(layers_in({.members = 2}, training), 2);
        EXPECT_EQ(layers_in({.groups = 3}, training), 2);
        EXPECT_EQ(layers_in({.positions = 64, .options = {128, 4, 128, true, 0, false, {}}}, training), 2);
        EXPECT_EQ(layers_in({.batch = 1, .positions = 1}, training), 2);
        EXPECT_EQ(layers_in({.members = 2, .options = dropping(128)}, training), 2);
        EXPECT_EQ(layers_in(in_f16(SequenceShape{}), training), 2);
    }
}

TEST(SequenceLayer, IsNoLayerOfAnotherShape) {
    EXPECT_EQ(layers_in({.precision = tape::Precision::f32}), 0);
    EXPECT_EQ(layers_in({.members = 2, .groups = 2}), 0);
    EXPECT_EQ(layers_in({.positions = 65}), 0);
    EXPECT_EQ(layers_in({.prefix = 1}), 0);
    EXPECT_EQ(layers_in({.options = {128, 4, 256, false, 0, false, {}}}), 0);  // sees all positions
    EXPECT_EQ(layers_in({.options = {128, 4, 256, true, 0, true, {}}}), 0);    // norms first
    EXPECT_EQ(layers_in({.options = {128, 8, 256, true, 0, false, {}}}), 0);   // narrow heads
    EXPECT_EQ(layers_in({.options = {64, 2, 256, true, 0, false, {}}}), 0);
    EXPECT_EQ(layers_in({.options = {128, 4, 512, true, 0, false, {}}}), 0);
}

TEST(SequenceLayer, EveryLinkCounts) {
    ForwardRig rig({}, ops::DeviceKind::cpu);
    const tape::Builder builder = rig.build();
    const auto all = stand_ins(builder.records());
    ASSERT_TRUE(ops::is_sequence_layer(all));
    EXPECT_FALSE(ops::is_sequence_layer(std::span(all).first(6)));
    const auto moved = [&](std::size_t record, int slot, int bytes) {
        std::vector<ops::Bound> broken = all;
        auto& operand = broken[record].operands[static_cast<std::size_t>(slot)];
        operand.data = static_cast<std::byte*>(operand.data) + bytes;
        return ops::is_sequence_layer(broken);
    };
    for (std::size_t r = 1; r < ops::SequenceLayer::kRecords; ++r) EXPECT_FALSE(moved(r, 0, 16)) << "record " << r;
    for (const std::size_t norm : {3u, 6u}) EXPECT_FALSE(moved(norm, 1, 16)) << "residual of record " << norm;
    for (const std::size_t linear : {0u, 2u, 4u, 5u}) {
        EXPECT_TRUE(moved(linear, ops::dense_forward::w, 16));
        EXPECT_FALSE(moved(linear, ops::dense_forward::w, 2)) << "weights of record " << linear;
        EXPECT_FALSE(moved(linear, ops::dense_forward::bias, 4)) << "bias of record " << linear;
    }
}

/// The kernel drops behind out_proj and linear2, by the states of one place.
TEST(SequenceLayer, DropsWhereItsKernelDoes) {
    namespace dense = ops::dense_forward;
    ForwardRig rig({{.options = dropping(256)}}, ops::DeviceKind::cpu);
    const tape::Builder builder = rig.build();
    ASSERT_TRUE(ops::is_sequence_layer(stand_ins(builder.records())));
    for (const std::size_t linear : {2u, 5u}) {
        std::vector<ops::Record> records = builder.records();
        auto params = records[linear].params_as<ops::DenseParams>();
        EXPECT_FLOAT_EQ(params.dropout, 0.3f);
        params.dropout = 0;
        records[linear].params = params;
        EXPECT_FALSE(ops::is_sequence_layer(stand_ins(records))) << "without dropout in record " << linear;
        records = builder.records();
        records[linear].slots[dense::state].offset += 256;
        EXPECT_FALSE(ops::is_sequence_layer(stand_ins(records))) << "other states in record " << linear;
    }
    for (const std::size_t linear : {0u, 4u}) {
        std::vector<ops::Record> records = builder.records();
        auto params = records[linear].params_as<ops::DenseParams>();
        params.dropout = 0.3f;
        records[linear].params = params;
        records[linear].slots[dense::state] = records[2].slots[dense::state];
        EXPECT_FALSE(ops::is_sequence_layer(stand_ins(records))) << "dropout in record " << linear;
    }
}

/// A record behind the layer that reads what the kernel keeps to itself.
TEST(SequenceLayer, LeavesRowsThatAnotherRecordReads) {
    ForwardRig rig({}, ops::DeviceKind::cpu);
    const tape::Builder builder = rig.build();
    EXPECT_EQ(taken_by(ops::match_sequence_layer, builder.records()), 2);
    for (const std::size_t linear : {2u, 5u}) {
        std::vector<ops::Record> records = builder.records();
        ops::Record reader = records.back();
        reader.slots[0] = records[linear].slots[ops::dense_forward::y];
        records.push_back(reader);
        EXPECT_EQ(taken_by(ops::match_sequence_layer, records), 1) << "record " << linear;
    }
}

class SequenceLayerRuns : public ::testing::TestWithParam<Forward> {};

TEST_P(SequenceLayerRuns, AsItsRecordsOneByOne) {
    if (const std::string why = testing::missing(ops::DeviceKind::cuda); !why.empty()) GTEST_SKIP() << why;
    int with = 0, without = 0;
    const std::vector<float> found = ForwardRig(GetParam(), ops::DeviceKind::cuda).rows(with);
    const std::vector<float> wanted = ForwardRig(GetParam(), ops::DeviceKind::cuda, {"sequence_forward"}).rows(without);
    EXPECT_EQ(with, 2);
    EXPECT_EQ(without, 0);
    ASSERT_EQ(found.size(), wanted.size());
    EXPECT_LT(testing::relative_distance(found, wanted), GetParam().tolerance(0.01));
    for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], wanted[i], GetParam().tolerance(0.1)) << i;
}

/// The numbers of a step come from memory, so that a replay has those of its own step.
TEST(SequenceLayerReplay, DropsByTheStepItRuns) {
    if (const std::string why = testing::missing(ops::DeviceKind::cuda); !why.empty()) GTEST_SKIP() << why;
    for (const tape::Precision precision : {tape::Precision::bf16, tape::Precision::f16})
        for (const std::int32_t batch : {3, 151}) {
            const Forward given{{.members = 2, .batch = batch, .options = dropping(256), .precision = precision}};
            int joined = 0;
            const auto first = ForwardRig(given, ops::DeviceKind::cuda).rows(joined);
            const auto replayed = ForwardRig(given, ops::DeviceKind::cuda).rows(joined, 2);
            EXPECT_EQ(joined, 2);
            ForwardRig second(given, ops::DeviceKind::cuda);
            second.set_step(2);
            EXPECT_EQ(replayed, second.rows(joined));
            EXPECT_NE(replayed, first);
        }
}

// Three sequences are shared by four blocks each, 150 are not.
INSTANTIATE_TEST_SUITE_P(
    All, SequenceLayerRuns,
    ::testing::Values(Forward{}, Forward{{.members = 2}}, Forward{{.groups = 3}}, Forward{{.batch = 150, .positions = 64}},
                      Forward{{.members = 2, .batch = 150}, false}, Forward{{.groups = 3, .batch = 70, .positions = 63}},
                      Forward{{.positions = 16, .options = {128, 4, 128, true, 0, false, {}}}},
                      Forward{{.batch = 300, .positions = 1, .options = {128, 4, 128, true, 0, false, {}}}, false},
                      Forward{{.options = dropping(256)}}, Forward{{.members = 2, .batch = 5, .options = dropping(128)}},
                      Forward{{.groups = 3, .positions = 9, .options = dropping(256)}},
                      Forward{{.batch = 151, .positions = 64, .options = dropping(256)}},
                      Forward{{.members = 2, .batch = 77, .positions = 63, .options = dropping(128)}},
                      Forward{{.groups = 3, .batch = 71, .positions = 31, .options = dropping(256)}},
                      Forward{{.batch = 301, .positions = 1, .options = dropping(128)}}, in_f16(Forward{}),
                      in_f16(Forward{{.members = 2, .batch = 5, .options = dropping(128)}}),
                      in_f16(Forward{{.batch = 150, .positions = 64}}), in_f16(Forward{{.groups = 3, .batch = 70}, false}),
                      in_f16(Forward{{.batch = 151, .positions = 64, .options = dropping(256)}}),
                      in_f16(Forward{{.members = 2, .batch = 77, .positions = 63, .options = dropping(128)}})),
    [](const auto& given) { return given.param.name(); });

}  // namespace
}  // namespace millrace::nn
