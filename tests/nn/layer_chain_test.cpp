// The way back through layers over short sequences as one kernel: which records it takes, and that it finds what they find.

#include "ops/sequence/chain.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "models/model_rig.h"
#include "nn/losses.h"
#include "nn/transformer.h"

namespace millrace::nn {
namespace {

struct Layers {
    int members = 1, groups = 1;
    std::int32_t batch = 3, positions = 37, depth = 2;
    std::int32_t prefix = 0;
    TransformerOptions options{128, 4, 256, true, 0, false, {}};
    bool accumulate = false;  ///< parameters' gradients add to what is there
};

/// A linear layer, `depth` layers and a squared error: one training program.
struct ChainRig {
    ChainRig(const Layers& shape, ops::DeviceKind device, const std::vector<std::string>& off = {})
        : layers(shape), backend(ops::make_backend(device, {.rewrites_off = off}).value()) {
        tape::StoreOptions options;
        options.precision = tape::Precision::bf16;
        options.members = shape.members;
        store = std::make_unique<tape::Store>(*backend, options);
        const std::int32_t rows = shape.batch * shape.positions, cols = shape.groups * shape.options.width;
        first = Dense(*store, {"first"}, {}, linear(kInputs, cols));
        for (std::int32_t d = 0; d < shape.depth; ++d) {
            std::vector<std::string> names;
            for (int g = 0; g < shape.groups; ++g) names.push_back("layers." + std::to_string(d) + "." + std::to_string(g));
            stack.emplace_back(*store, names, shape.options);
        }
        input = store->add_data("input", tensor::DType::bf16, rows, kInputs);
        target = store->add_data("target", tensor::DType::bf16, rows, cols);
        ids = store->add_data("ids", tensor::DType::i32, shape.batch, shape.positions - shape.prefix);
        lengths = store->add_data("lengths", tensor::DType::i32, shape.batch, 1);
        EXPECT_TRUE(store->allocate().ok());
        std::vector<std::uint64_t> seeds;
        for (int k = 0; k < shape.members; ++k) seeds.push_back(static_cast<std::uint64_t>(40 + k));
        store->initialize(seeds);
    }
    [[nodiscard]] tensor::View for_all(tensor::View view) const {
        view.k = layers.members;
        return view;
    }
    tape::Builder build() {
        tape::BuildOptions options;
        options.defer_weight_gradients = true;
        options.accumulate = layers.accumulate;
        tape::Builder builder(*store, options);
        const Sequences sequences{for_all(ids), for_all(lengths), layers.prefix};
        tape::Value x = first.forward(builder, {for_all(input), false});
        for (const TransformerLayer& layer : stack) x = layer.forward(builder, x, sequences);
        mse(builder, x, for_all(target));
        builder.backward();
        return builder;
    }
    /// Runs the program and gives the gradients.
    testing::Tensors run(std::set<std::string>& rewrites) {
        tape::Arena arena(*backend);
        tape::Program program("layers", *store, build(), arena);
        EXPECT_TRUE(arena.allocate().ok());
        const auto prepared = program.prepare();
        EXPECT_TRUE(prepared.ok()) << (prepared.ok() ? "" : prepared.error().text());
        if (!prepared.ok()) return {};
        const auto fill = [&](const tensor::View& view, std::uint32_t stream) {
            std::vector<double> values(static_cast<std::size_t>(view.count()));
            for (std::size_t i = 0; i < values.size(); ++i) values[i] = base::random_normal(1, 0, 0, stream, i);
            program.write(view, values);
        };
        fill(input, 1);
        fill(target, 2);
        const double counts[] = {64, 17, 0, 1, 63};
        std::vector<double> given;
        for (std::int32_t b = 0; b < layers.batch; ++b) given.push_back(std::min<double>(counts[b % 5], layers.positions));
        program.write(lengths, given);
        program.run();
        backend->synchronize();
        EXPECT_TRUE(backend->check().ok());
        for (const ops::Group& group : program.groups())
            if (group.rewrite != nullptr) rewrites.insert(group.rewrite->name);
        return testing::trained_tensors(*store, tape::Store::Arena::gradient);
    }

    static constexpr std::int32_t kInputs = 8;
    Layers layers;
    std::unique_ptr<ops::Backend> backend;
    std::unique_ptr<tape::Store> store;
    Dense first;
    std::vector<TransformerLayer> stack;
    tensor::View input, target, ids, lengths;
};

/// The records with addresses that stand for their buffers, as a program has them when rewrites are looked for.
std::vector<ops::Bound> bound(const std::vector<ops::Record>& records) {
    std::vector<ops::Bound> all(records.size());
    for (std::size_t r = 0; r < records.size(); ++r) {
        all[r].record = &records[r];
        for (std::size_t s = 0; s < ops::kMaxSlots; ++s) {
            const tensor::View& v = records[r].slots[s];
            if (!v.present()) continue;
            const std::uintptr_t address =
                ((static_cast<std::uintptr_t>(v.buffer) + 1) << 40) + static_cast<std::uintptr_t>(v.offset) * size_of(v.dtype);
            // NOLINTNEXTLINE(performance-no-int-to-ptr): it is compared, never followed
            all[r].operands[s] = {
                reinterpret_cast<void*>(address), v.dtype, v.k, v.g, v.rows, v.cols, v.stride_k, v.stride_g, v.stride_row};
        }
    }
    return all;
}

std::int32_t chains_in(const std::vector<ops::Bound>& all) {
    std::int32_t count = 0;
    for (std::size_t r = 0; r < all.size(); ++r)
        if (ops::is_layer_chain(std::span(all).subspan(r))) ++count;
    return count;
}
std::int32_t chains_of(const Layers& layers) {
    ChainRig rig(layers, ops::DeviceKind::cpu);
    const tape::Builder builder = rig.build();
    return chains_in(bound(builder.records()));
}

TEST(LayerChain, IsEachLayerOfItsShape) {
    EXPECT_EQ(chains_of({}), 2);
    EXPECT_EQ(chains_of({.members = 2}), 2);
    EXPECT_EQ(chains_of({.groups = 3}), 2);
    EXPECT_EQ(chains_of({.positions = 64, .options = {128, 4, 128, true, 0, false, {}}}), 2);
    EXPECT_EQ(chains_of({.positions = 16, .accumulate = true}), 2);
}

TEST(LayerChain, IsNoLayerOfAnotherShape) {
    EXPECT_EQ(chains_of({.members = 2, .groups = 2}), 0);
    EXPECT_EQ(chains_of({.positions = 65}), 0);
    EXPECT_EQ(chains_of({.positions = 15}), 0);
    EXPECT_EQ(chains_of({.prefix = 1}), 0);
    EXPECT_EQ(chains_of({.options = {128, 4, 256, false, 0, false, {}}}), 0);    // sees all positions
    EXPECT_EQ(chains_of({.options = {128, 4, 256, true, 0.1f, false, {}}}), 0);  // dropout
    EXPECT_EQ(chains_of({.options = {128, 4, 256, true, 0, true, {}}}), 0);      // norms first
    EXPECT_EQ(chains_of({.options = {128, 8, 256, true, 0, false, {}}}), 0);     // narrow heads
    EXPECT_EQ(chains_of({.options = {64, 2, 256, true, 0, false, {}}}), 0);
    EXPECT_EQ(chains_of({.options = {128, 4, 512, true, 0, false, {}}}), 0);
}

/// A record behind the layer that reads a gradient which the kernel keeps to itself.
TEST(LayerChain, LeavesAGradientThatAnotherRecordReads) {
    ChainRig rig({.depth = 1}, ops::DeviceKind::cpu);
    const tape::Builder builder = rig.build();
    std::vector<ops::Record> records = builder.records();
    const auto all = bound(records);
    const auto begin = static_cast<std::size_t>(
        std::find_if(all.begin(), all.end(),
                     [&](const ops::Bound& b) { return ops::is_layer_chain(std::span(&b, &all.back() + 1)); }) -
        all.begin());
    ASSERT_LT(begin, all.size());
    for (const std::size_t product : {2u, 4u, 7u}) {
        SCOPED_TRACE(product);
        std::vector<ops::Record> more = records;
        ops::Record reader = more.back();
        reader.slots[0] = more[begin + product].slots[ops::linear_dgrad::dx];
        more.push_back(reader);
        EXPECT_EQ(chains_in(bound(more)), 0);
    }
}

TEST(LayerChain, EveryLinkCounts) {
    ChainRig rig({.depth = 1}, ops::DeviceKind::cpu);
    const tape::Builder builder = rig.build();
    const auto all = bound(builder.records());
    std::size_t begin = 0;
    while (begin < all.size() && !ops::is_layer_chain(std::span(all).subspan(begin))) ++begin;
    ASSERT_LT(begin, all.size());
    for (std::size_t r = begin + 1; r < begin + ops::LayerChain::kRecords; ++r) {  // what each record reads first comes from afar
        std::vector<ops::Bound> broken = all;
        broken[r].operands[0].data = static_cast<std::byte*>(broken[r].operands[0].data) + 16;
        EXPECT_FALSE(ops::is_layer_chain(std::span(broken).subspan(begin))) << "record " << r - begin;
    }
    for (const std::size_t r : {0u, 2u, 4u, 5u, 7u, 10u}) {
        std::vector<ops::Record> records = builder.records();
        records[begin + r].accumulate ^= 1u << (r % 5 == 0 && r < 10 ? +ops::layernorm_backward::dx : +ops::linear_dgrad::dx);
        EXPECT_EQ(chains_in(bound(records)), 0) << "record " << r;
    }
}

class LayerChainRuns : public ::testing::TestWithParam<Layers> {};

TEST_P(LayerChainRuns, AsItsRecordsOneByOne) {
    if (const std::string why = testing::missing(ops::DeviceKind::cuda); !why.empty()) GTEST_SKIP() << why;
    std::set<std::string> with, without;
    const testing::Tensors found = ChainRig(GetParam(), ops::DeviceKind::cuda).run(with);
    const testing::Tensors wanted = ChainRig(GetParam(), ops::DeviceKind::cuda, {"sequence_backward"}).run(without);
    EXPECT_TRUE(with.contains("sequence_backward"));
    EXPECT_FALSE(without.contains("sequence_backward"));
    EXPECT_EQ(testing::tensors_apart(found, wanted, 0.03), "");
}

INSTANTIATE_TEST_SUITE_P(All, LayerChainRuns,
                         ::testing::Values(Layers{}, Layers{.members = 2}, Layers{.groups = 3},
                                           Layers{.batch = 70, .positions = 64}, Layers{.groups = 3, .batch = 30},
                                           Layers{.positions = 16, .options = {128, 4, 128, true, 0, false, {}}},
                                           Layers{.batch = 5, .positions = 63, .accumulate = true}),
                         [](const auto& given) {
                             const Layers& l = given.param;
                             return "K" + std::to_string(l.members) + "G" + std::to_string(l.groups) + "B" +
                                    std::to_string(l.batch) + "N" + std::to_string(l.positions) + (l.accumulate ? "Adding" : "");
                         });

}  // namespace
}  // namespace millrace::nn
