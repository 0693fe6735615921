// Layers over short sequences as one kernel forward: which records it takes, and that it finds what they find.

#include "ops/sequence/sequence.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "models/model_rig.h"
#include "nn/transformer.h"
#include "ops/dense/dense.h"

namespace millrace::nn {
namespace {

struct SequenceShape {
    int members = 1, groups = 1;
    std::int32_t batch = 3, positions = 37, prefix = 0;
    TransformerOptions options{128, 4, 256, true, 0, false, {}};
    bool training = true;
};

/// Two layers, and the program that takes rows through them.
struct SequenceRig {
    SequenceRig(const SequenceShape& shape, ops::DeviceKind device, const std::vector<std::string>& off = {})
        : s(shape), backend(ops::make_backend(device, {.rewrites_off = off}).value()) {
        tape::StoreOptions options;
        options.precision = tape::Precision::bf16;
        options.members = s.members;
        store = std::make_unique<tape::Store>(*backend, options);
        for (int d = 0; d < 2; ++d) {
            std::vector<std::string> names;
            for (int g = 0; g < s.groups; ++g) names.push_back("layers." + std::to_string(d) + "." + std::to_string(g));
            layers.emplace_back(*store, names, s.options);
        }
        input = store->add_data("input", tensor::DType::bf16, s.batch * s.positions, s.groups * s.options.width);
        ids = store->add_data("ids", tensor::DType::i32, s.batch, s.positions - s.prefix);
        lengths = store->add_data("lengths", tensor::DType::i32, s.batch, 1);
        EXPECT_TRUE(store->allocate().ok());
        std::vector<std::uint64_t> seeds;
        for (int k = 0; k < s.members; ++k) seeds.push_back(static_cast<std::uint64_t>(40 + k));
        store->initialize(seeds);
    }
    [[nodiscard]] tensor::View for_all(tensor::View view) const {
        view.k = s.members;
        return view;
    }
    tape::Builder build() {
        tape::BuildOptions options;
        options.training = s.training;
        tape::Builder builder(*store, options);
        tape::Value x{for_all(input), false};
        for (const TransformerLayer& layer : layers) x = layer.forward(builder, x, {for_all(ids), for_all(lengths), s.prefix});
        last = x.view;
        builder.keep(last);
        builder.close_section();
        return builder;
    }
    /// What comes out of the second layer; `joined` counts layers that are one kernel.
    std::vector<float> run(int& joined) {
        tape::Arena arena(*backend);
        tape::Program program("layers", *store, build(), arena);
        EXPECT_TRUE(arena.allocate().ok());
        const auto prepared = program.prepare();
        EXPECT_TRUE(prepared.ok()) << (prepared.ok() ? "" : prepared.error().text());
        if (!prepared.ok()) return {};
        std::vector<double> values(static_cast<std::size_t>(input.count()));
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = base::random_normal(1, 0, 0, 1, i);
        program.write(input, values);
        const double counts[] = {64, 17, 0, 1, 63};
        std::vector<double> given;
        for (std::int32_t b = 0; b < s.batch; ++b) given.push_back(std::min<double>(counts[b % 5], s.positions));
        program.write(lengths, given);
        program.run();
        backend->synchronize();
        EXPECT_TRUE(backend->check().ok());
        joined = static_cast<int>(std::count_if(program.groups().begin(), program.groups().end(), [](const ops::Group& group) {
            return group.rewrite != nullptr && std::string(group.rewrite->name) == "sequence_forward";
        }));
        const std::vector<double> rows = program.read(last);
        return {rows.begin(), rows.end()};
    }

    SequenceShape s;
    std::unique_ptr<ops::Backend> backend;
    std::unique_ptr<tape::Store> store;
    std::vector<TransformerLayer> layers;
    tensor::View input, ids, lengths, last;
};

/// The records with addresses that stand for their buffers, as a program has them when rewrites are looked for.
std::vector<ops::Bound> stand_ins(const std::vector<ops::Record>& records) {
    std::vector<ops::Bound> all(records.size());
    for (std::size_t r = 0; r < records.size(); ++r) {
        all[r].record = &records[r];
        for (std::size_t slot = 0; slot < ops::kMaxSlots; ++slot) {
            const tensor::View& v = records[r].slots[slot];
            if (!v.present()) continue;
            const std::uintptr_t address =
                ((static_cast<std::uintptr_t>(v.buffer) + 1) << 40) + static_cast<std::uintptr_t>(v.offset) * size_of(v.dtype);
            // NOLINTNEXTLINE(performance-no-int-to-ptr): it is compared, never followed
            all[r].operands[slot] = {
                reinterpret_cast<void*>(address), v.dtype, v.k, v.g, v.rows, v.cols, v.stride_k, v.stride_g, v.stride_row};
        }
    }
    return all;
}

int layers_in(const SequenceShape& shape) {
    SequenceRig rig(shape, ops::DeviceKind::cpu);
    const tape::Builder builder = rig.build();
    const auto all = stand_ins(builder.records());
    int count = 0;
    for (std::size_t r = 0; r < all.size(); ++r) count += ops::is_sequence_layer(std::span(all).subspan(r)) ? 1 : 0;
    return count;
}

TEST(SequenceLayer, IsEachLayerOfItsShape) {
    for (const bool training : {true, false}) {
        EXPECT_EQ(layers_in({.training = training}), 2);
        EXPECT_EQ(layers_in({.members = 2, .training = training}), 2);
        EXPECT_EQ(layers_in({.groups = 3, .training = training}), 2);
        EXPECT_EQ(layers_in({.positions = 64, .options = {128, 4, 128, true, 0, false, {}}, .training = training}), 2);
        EXPECT_EQ(layers_in({.batch = 1, .positions = 1, .training = training}), 2);
    }
}

TEST(SequenceLayer, IsNoLayerOfAnotherShape) {
    EXPECT_EQ(layers_in({.members = 2, .groups = 2}), 0);
    EXPECT_EQ(layers_in({.positions = 65}), 0);
    EXPECT_EQ(layers_in({.prefix = 1}), 0);
    EXPECT_EQ(layers_in({.options = {128, 4, 256, false, 0, false, {}}}), 0);    // sees all positions
    EXPECT_EQ(layers_in({.options = {128, 4, 256, true, 0.1f, false, {}}}), 0);  // dropout
    EXPECT_EQ(layers_in({.options = {128, 4, 256, true, 0, true, {}}}), 0);      // norms first
    EXPECT_EQ(layers_in({.options = {128, 8, 256, true, 0, false, {}}}), 0);     // narrow heads
    EXPECT_EQ(layers_in({.options = {64, 2, 256, true, 0, false, {}}}), 0);
    EXPECT_EQ(layers_in({.options = {128, 4, 512, true, 0, false, {}}}), 0);
}

TEST(SequenceLayer, EveryLinkCounts) {
    SequenceRig rig({}, ops::DeviceKind::cpu);
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

class SequenceLayerRuns : public ::testing::TestWithParam<SequenceShape> {};

TEST_P(SequenceLayerRuns, AsItsRecordsOneByOne) {
    if (const std::string why = testing::missing(ops::DeviceKind::cuda); !why.empty()) GTEST_SKIP() << why;
    int with = 0, without = 0;
    const std::vector<float> found = SequenceRig(GetParam(), ops::DeviceKind::cuda).run(with);
    const std::vector<float> wanted = SequenceRig(GetParam(), ops::DeviceKind::cuda, {"sequence_forward"}).run(without);
    EXPECT_EQ(with, 2);
    EXPECT_EQ(without, 0);
    ASSERT_EQ(found.size(), wanted.size());
    EXPECT_LT(testing::relative_distance(found, wanted), 0.01);
    for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], wanted[i], 0.1) << i;
}

// Three sequences are shared by four blocks each, 150 are not.
INSTANTIATE_TEST_SUITE_P(
    All, SequenceLayerRuns,
    ::testing::Values(SequenceShape{}, SequenceShape{.members = 2}, SequenceShape{.groups = 3},
                      SequenceShape{.batch = 150, .positions = 64}, SequenceShape{.members = 2, .batch = 150, .training = false},
                      SequenceShape{.groups = 3, .batch = 70, .positions = 63},
                      SequenceShape{.positions = 16, .options = {128, 4, 128, true, 0, false, {}}},
                      SequenceShape{
                          .batch = 300, .positions = 1, .options = {128, 4, 128, true, 0, false, {}}, .training = false}),
    [](const auto& given) {
        const SequenceShape& s = given.param;
        return "K" + std::to_string(s.members) + "G" + std::to_string(s.groups) + "B" + std::to_string(s.batch) + "N" +
               std::to_string(s.positions);
    });

}  // namespace
}  // namespace millrace::nn
