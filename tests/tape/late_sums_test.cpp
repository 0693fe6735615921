// Sums over rows, whose second stage may wait on CUDA (ops/cuda/late_sums.h): who reads them gets them, however often a section
// runs.

#include <optional>

#include "ops/dense/dense.h"
#include "tape/tape_rig.h"

namespace millrace::tape {
namespace {

const Place kCudaPlace{"cuda", ops::DeviceKind::cuda, Precision::f32};

class LateSums : public ::testing::TestWithParam<Place> {
protected:
    void SetUp() override {
        if (GetParam().device == ops::DeviceKind::cuda)
            if (const auto there = ops::cuda_available(); !there.ok()) GTEST_SKIP() << there.error().text();
        rig.emplace(GetParam());
        const auto add = [&](const char* name, int rows) { return rig->store->add_data(name, rig->real(), rows, kColumns); };
        in = add("in", kRows);
        first = add("first", 1);
        second = add("second", 1);
        seen = add("seen", 1);
        flag = rig->store->add_data("flag", tensor::DType::i32, 1, 1);
        rig->allocate();
        builder.emplace(*rig->store, BuildOptions{.training = false});
    }
    void sum(const tensor::View& out, bool accumulate) {
        ops::Record record{&ops::column_sum::kDef, ops::ColumnSumParams{}, {in, out}, 0, "sum"};
        if (accumulate) record.accumulate = 1u << ops::column_sum::out;
        builder->append(std::move(record));
    }
    void run() {
        rig->prepare(std::move(*builder));
        std::vector<double> values(std::size_t{kRows} * kColumns);
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i / kColumns + i % kColumns);
        rig->program->write(in, values);
        rig->program->write(flag, {1});
        rig->program->run();
    }
    /// So many times the sums.
    [[nodiscard]] std::vector<double> times(int count) const {
        std::vector<double> expected;
        for (int c = 0; c < kColumns; ++c) expected.push_back(count * (kRows * (kRows - 1) / 2.0 + kRows * c));
        return expected;
    }

    static constexpr int kRows = 300, kColumns = 40;
    std::optional<TapeRig> rig;
    std::optional<Builder> builder;
    tensor::View in, first, second, seen, flag;
};

TEST_P(LateSums, AreThereForTheNextReader) {
    sum(first, false);
    sum(second, false);
    builder->append(copy_record(first, seen));
    sum(first, true);
    run();
    EXPECT_EQ(rig->program->read(seen), times(1));
    EXPECT_EQ(rig->program->read(first), times(2));
    EXPECT_EQ(rig->program->read(second), times(1));
}

TEST_P(LateSums, AddUpInARepeatedSection) {
    sum(first, false);
    builder->close_section();
    builder->append(copy_record(first, seen));
    sum(first, true);
    sum(second, false);
    builder->close_section(3);
    run();
    EXPECT_EQ(rig->program->read(seen), times(3));
    EXPECT_EQ(rig->program->read(first), times(4));
    EXPECT_EQ(rig->program->read(second), times(1));
}

TEST_P(LateSums, AreThereInARegionAndBehindIt) {
    sum(first, false);
    builder->only_if(flag);
    builder->append(copy_record(first, seen));
    sum(first, true);
    builder->only_if({});
    builder->append(copy_record(first, second));
    run();
    EXPECT_EQ(rig->program->read(seen), times(1));
    EXPECT_EQ(rig->program->read(second), times(2));
}

INSTANTIATE_TEST_SUITE_P(Places, LateSums, ::testing::Values(kRefPlace, kCpuPlace, kCudaPlace),
                         [](const auto& p) { return p.param.name; });

}  // namespace
}  // namespace millrace::tape
