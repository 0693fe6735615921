// Two layer norms in series as one kernel: which records it takes, and that it leaves the bits that they leave one by one.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/philox.h"
#include "models/model_rig.h"
#include "nn/dense.h"
#include "nn/layer_norm.h"
#include "nn/losses.h"
#include "ops/norm/layernorm.h"

namespace millrace::nn {
namespace {

struct Norms {
    std::int32_t width = 256, rows = 37;
    int members = 1, groups = 1;
    tape::Precision precision = tape::Precision::bf16;
    bool shared = false;  ///< both have the same parameters
    bool joins = true;
};
std::string text_of(const Norms& n) {
    return fmt::format("K{}G{}B{}C{}_{}{}", n.members, n.groups, n.rows, n.width, tape::name_of(n.precision),
                       n.shared ? "_shared" : "");
}

struct Outcome {
    testing::Tensors gradients;
    std::vector<double> y;
    int joined = 0;
};

/// Two linear layers, the norm of their sum, the norm of that and a squared error.
struct NormsRig {
    NormsRig(const Norms& given, ops::DeviceKind device, const std::vector<std::string>& off = {})
        : norms(given), backend(ops::make_backend(device, {.rewrites_off = off}).value()) {
        tape::StoreOptions options;
        options.precision = norms.precision;
        options.members = norms.members;
        store = std::make_unique<tape::Store>(*backend, options);
        const std::int32_t cols = norms.groups * norms.width;
        const auto names = [&](const std::string& name) {
            std::vector<std::string> all;
            for (int g = 0; g < norms.groups; ++g) all.push_back(name + "." + std::to_string(g));
            return all;
        };
        left = Dense(*store, {"left"}, {}, linear(kInputs, cols));
        right = Dense(*store, {"right"}, {}, linear(kInputs, cols));
        inner = LayerNorm(*store, names("inner"), norms.width);
        last = norms.shared ? inner : LayerNorm(*store, names("last"), norms.width);
        input = store->add_data("input", tape::real_of(norms.precision), norms.rows, kInputs);
        target = store->add_data("target", tape::real_of(norms.precision), norms.rows, cols);
        EXPECT_TRUE(store->allocate().ok());
        std::vector<std::uint64_t> seeds;
        for (int k = 0; k < norms.members; ++k) seeds.push_back(static_cast<std::uint64_t>(40 + k));
        store->initialize(seeds);
        auto states = store->read_states();
        if (norms.precision == tape::Precision::f16)
            for (ops::MemberState& state : states) state.loss_scale = 4096;
        store->write_states(states);
    }
    [[nodiscard]] tensor::View for_all(tensor::View view) const {
        view.k = norms.members;
        return view;
    }
    tape::Builder build() {
        tape::Builder builder(*store, {});
        const tape::Value in{for_all(input), false};
        const tape::Value normed = inner.forward(builder, left.forward(builder, in), right.forward(builder, in));
        const tape::Value out = last.forward(builder, normed);
        y = out.view;
        builder.keep(y);
        mse(builder, out, for_all(target));
        builder.backward();
        return builder;
    }
    Outcome run() {
        const auto& parameters = store->parameters();
        for (std::size_t id = 0; id < parameters.size(); ++id)  // scales of norms begin at one and shifts at zero
            for (int k = 0; k < norms.members; ++k)
                for (std::size_t g = 0; g < parameters[id].names.size(); ++g) {
                    const auto parameter = static_cast<tape::ParameterId>(id);
                    auto values = store->read_parameter(parameter, static_cast<int>(g), k, tape::Store::Arena::value);
                    for (std::size_t i = 0; i < values.size(); ++i)
                        values[i] += 0.2f * base::random_normal(1, static_cast<std::uint32_t>(k), 0,
                                                                static_cast<std::uint32_t>(10 * id + g), i);
                    store->write_parameter(parameter, static_cast<int>(g), k, values);
                }
        store->refresh_copies();
        tape::Arena arena(*backend);
        tape::Program program("norms", *store, build(), arena);
        EXPECT_TRUE(arena.allocate().ok() && program.prepare().ok());
        std::uint32_t stream = 0;
        for (const tensor::View& view : {input, target}) {
            std::vector<double> values(static_cast<std::size_t>(view.count()));
            ++stream;
            for (std::size_t i = 0; i < values.size(); ++i) values[i] = base::random_normal(1, 0, 0, stream, i);
            program.write(view, values);
        }
        program.run();
        backend->synchronize();
        EXPECT_TRUE(backend->check().ok());
        Outcome outcome{testing::trained_tensors(*store, tape::Store::Arena::gradient), program.read(y)};
        for (const ops::Record& record : program.records())
            outcome.joined += std::string(record.op->name).starts_with("norms_") ? 1 : 0;
        return outcome;
    }

    static constexpr std::int32_t kInputs = 8;
    Norms norms;
    std::unique_ptr<ops::Backend> backend;
    std::unique_ptr<tape::Store> store;
    Dense left, right;
    LayerNorm inner, last;
    tensor::View input, target, y;
};

/// What the rewrites ask for.
TEST(NormPair, NeighboursShareTheRowsBetweenThem) {
    for (const int groups : {1, 3}) {
        NormsRig rig({.members = 2, .groups = groups}, ops::DeviceKind::cpu);
        const tape::Builder builder = rig.build();
        int forward = 0, backward = 0;
        const std::vector<ops::Record>& records = builder.records();
        for (std::size_t r = 1; r < records.size(); ++r) {
            const ops::Bound first = ops::stand_in(records[r - 1]), second = ops::stand_in(records[r]);
            if (records[r].op != records[r - 1].op) continue;
            if (records[r].op == &ops::layernorm_forward::kDef)
                forward += second[ops::layernorm_forward::x] == first[ops::layernorm_forward::y] ? 1 : 0;
            if (records[r].op == &ops::layernorm_backward::kDef)
                backward += second[ops::layernorm_backward::dy] == first[ops::layernorm_backward::dx] ? 1 : 0;
        }
        EXPECT_EQ(forward, 1);
        EXPECT_EQ(backward, 1);
    }
}

class NormPairRuns : public ::testing::TestWithParam<Norms> {};

TEST_P(NormPairRuns, AsTheRecordsOneByOne) {
    if (const std::string why = testing::missing(ops::DeviceKind::cuda); !why.empty()) GTEST_SKIP() << why;
    const Outcome on = NormsRig(GetParam(), ops::DeviceKind::cuda).run();
    const Outcome off = NormsRig(GetParam(), ops::DeviceKind::cuda, {"norms_forward", "norms_backward"}).run();
    EXPECT_EQ(on.joined, GetParam().joins ? 2 : 0);
    EXPECT_EQ(off.joined, 0);
    EXPECT_EQ(on.y, off.y);
    EXPECT_EQ(testing::tensors_apart(on.gradients, off.gradients, 0), "");
    if (GetParam().precision != tape::Precision::f32) return;  // on the CPU there is no other
    const Outcome wanted = NormsRig(GetParam(), ops::DeviceKind::cpu).run();
    EXPECT_EQ(testing::tensors_apart(on.gradients, wanted.gradients, 1e-4), "");
}

// Many rows are several for each warp; narrow rows, long ones and those that do not begin at 16 bytes are not joined.
INSTANTIATE_TEST_SUITE_P(All, NormPairRuns,
                         ::testing::Values(Norms{}, Norms{.rows = 1}, Norms{.rows = 2048}, Norms{.rows = 20011},
                                           Norms{.width = 192, .members = 2}, Norms{.width = 136, .rows = 301, .groups = 3},
                                           Norms{.rows = 301, .shared = true},
                                           Norms{.width = 200, .rows = 301, .precision = tape::Precision::f16},
                                           Norms{.width = 132, .rows = 301, .precision = tape::Precision::f32},
                                           Norms{.rows = 4501, .precision = tape::Precision::f32},
                                           Norms{.width = 128, .joins = false}, Norms{.width = 250, .joins = false},
                                           Norms{.width = 264, .joins = false}),
                         [](const auto& given) { return text_of(given.param); });

}  // namespace
}  // namespace millrace::nn
