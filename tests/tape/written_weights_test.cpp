// A record that is no update writes weights in the middle of a program: whoever reads them behind it sees the new ones, whatever
// a backend copies, packs or fetches early.

#include <gtest/gtest.h>

#include "base/philox.h"
#include "ops/dense/dense.h"
#include "ops/recurrent/gru.h"
#include "tape/record.h"
#include "tape/tape_rig.h"

namespace millrace::tape {
namespace {

constexpr std::int32_t kRows = 96, kWidth = 64;  // whole tiles, so that CUDA packs the weights of the recurrent unit

class WrittenWeights : public ::testing::TestWithParam<Place> {
protected:
    void SetUp() override {
        if (GetParam().device != ops::DeviceKind::cuda) return;
        if (const auto there = ops::cuda_available(); !there.ok()) GTEST_SKIP() << there.error().text();
        if (ops::cuda_lacks_bf16()) GTEST_SKIP() << "the GPU has no bf16";
    }
};

/// A dense layer and a recurrent unit, before and behind the record that replaces their weights.
struct Weights {
    explicit Weights(const Place& place) : rig(place) {
        x = rig.store->add_data("x", rig.real(), kRows, kWidth);
        for (ParameterId& id : ids) {
            id = rig.store->add_matrix({"w" + std::to_string(&id - ids)}, (&id == ids ? 1 : 3) * kWidth, kWidth,
                                       Init::normal(0.1f));
            fresh.push_back(rig.store->add_data("fresh", rig.real(), (&id == ids ? 1 : 3) * kWidth, kWidth));
        }
        bias = rig.store->add_vector({"bias"}, 3 * kWidth, Init::value(0.1f));
        rig.allocate();
    }
    std::vector<tensor::View> append_reads(Builder& builder) {
        const auto out = [&](const char* name) { return builder.activation(kRows, kWidth, name, false).view; };
        const std::vector<tensor::View> made{out("dense"), out("gru")};
        ops::DenseParams params;
        params.activation = ops::Activation::relu;
        builder.append(tape::record_of(&ops::dense_forward::kDef, params, "dense",
                                       {x, rig.store->weight(ids[0]), {}, {}, {}, {}, {}, {}, {}, {}, made[0]}));
        const tensor::View scratch =
            builder.buffer(1, kRows, 6 * kWidth, stat_of(rig.options.precision), Role::scratch, "scratch");
        const tensor::View vector = rig.store->parameter(bias);
        builder.append(tape::record_of(
            &ops::gru_forward::kDef, ops::GruParams{}, "gru",
            {x, made[0], {}, {}, rig.store->weight(ids[1]), rig.store->weight(ids[2]), vector, vector, scratch, {}, made[1]}));
        for (const tensor::View& view : made) builder.keep(view);
        return made;
    }
    void append_writes(Builder& builder) {
        for (std::size_t i = 0; i < fresh.size(); ++i) builder.append(copy_record(fresh[i], rig.store->weight(ids[i])));
    }
    void fill(const tensor::View& view, std::uint32_t stream) {
        std::vector<double> values;
        for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(view.count()); ++i)
            values.push_back(0.1 * base::random_normal(3, stream, 0, 1, i));
        rig.program->write(view, values);
    }

    TapeRig rig;
    tensor::View x;
    ParameterId ids[3] = {}, bias = kNoParameter;
    std::vector<tensor::View> fresh;
};

TEST_P(WrittenWeights, AreSeenByEveryRecordBehind) {
    Weights wanted(GetParam()), found(GetParam());
    const BuildOptions evaluation{.training = false};
    Builder first(*wanted.rig.store, evaluation), second(*found.rig.store, evaluation);
    wanted.append_writes(first);
    const auto of_fresh = wanted.append_reads(first);
    wanted.rig.prepare(std::move(first));
    const auto of_old = found.append_reads(second);
    found.append_writes(second);
    const auto behind = found.append_reads(second);
    found.rig.prepare(std::move(second));
    for (Weights* one : {&wanted, &found}) {
        one->fill(one->x, 1);
        for (std::size_t i = 0; i < one->fresh.size(); ++i) one->fill(one->fresh[i], 2 + static_cast<std::uint32_t>(i));
    }
    wanted.rig.program->run();
    for (int run = 0; run < 20; ++run) {  // early reads are a matter of timing
        for (std::size_t i = 0; i < found.fresh.size(); ++i) found.fill(found.rig.store->weight(found.ids[i]), 9);
        found.rig.program->run();
        for (std::size_t i = 0; i < behind.size(); ++i) {
            ASSERT_EQ(found.rig.program->read(behind[i]), wanted.rig.program->read(of_fresh[i])) << "run " << run;
            ASSERT_NE(found.rig.program->read(of_old[i]), found.rig.program->read(behind[i]));
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Places, WrittenWeights,
                         ::testing::Values(kRefPlace, kCpuPlace, Place{"cuda", ops::DeviceKind::cuda, Precision::bf16}),
                         [](const auto& p) { return p.param.name; });

}  // namespace
}  // namespace millrace::tape
