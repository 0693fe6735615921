// Layers with batch statistics: joined records against separate ones.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/philox.h"
#include "models/model_rig.h"
#include "nn/dense.h"
#include "nn/losses.h"
#include "ops/dense/dense.h"
#include "ops/fused.h"
#include "tape/program.h"

namespace millrace::nn {
namespace {

/// Chunks of rows of which the last one is not full. From 257 rows on CUDA has no single kernel, and tiles only for whole runs.
struct BatchShape {
    ops::DeviceKind device = ops::DeviceKind::cpu;
    tape::Precision precision = tape::Precision::f32;
    std::int32_t rows = 150, in = 12, wide = 70;
    [[nodiscard]] std::string name() const {
        return std::string(ops::name_of(device)) + "_" + tape::name_of(precision) + "_B" + std::to_string(rows) + "In" +
               std::to_string(in);
    }
};

/// A step of two layers with statistics and dropout and one without, two groups side by side, two members. Relu would make much
/// of a little rounding.
struct BatchStep {
    explicit BatchStep(const BatchShape& shape, const std::vector<std::string>& off, bool keep_moments = false)
        : backend(ops::make_backend(shape.device, {.threads = 1, .rewrites_off = off}).value()),
          store(*backend, {.members = 2, .precision = shape.precision}) {
        const tensor::DType real = tape::real_of(shape.precision);
        const tensor::View x = store.add_data("x", real, shape.rows, shape.in), wanted = store.add_data("t", real, shape.rows, 6);
        DenseOptions options{
            .in = shape.in, .out = shape.wide, .batch_norm = true, .activation = ops::Activation::gelu, .dropout = 0.2f};
        options.shared_input = true;
        const Dense wide(store, {"a.0", "a.1"}, {"an.0", "an.1"}, options);
        options.in = shape.wide;
        options.out = 9;
        options.shared_input = false;
        const Dense narrow(store, {"b.0", "b.1"}, {"bn.0", "bn.1"}, options);
        const Dense head(store, {"head"}, {}, linear(18, 6));
        EXPECT_TRUE(store.allocate().ok());
        store.initialize({3, 4});
        tape::Builder builder(store, {});
        tensor::View both = x, targets = wanted;
        both.k = targets.k = 2;
        mse(builder, head.forward(builder, narrow.forward(builder, wide.forward(builder, {both, false}))), targets);
        builder.backward();
        couplings = builder.row_couplings();
        for (const ops::Record& record : builder.records())
            if (keep_moments && record.op == &ops::batch_moments::kDef) builder.keep(record.slots[ops::batch_moments::moments]);
        program.emplace("step", store, std::move(builder), arena);
        EXPECT_TRUE(arena.allocate().ok() && program->prepare().ok());
        fill(x, 3);
        fill(wanted, 4);
        program->run();
        backend->synchronize();
        EXPECT_TRUE(backend->check().ok());
    }
    void fill(const tensor::View& data, std::uint32_t stream) const {
        std::vector<double> values;
        for (std::size_t i = 0; i < static_cast<std::size_t>(data.count()); ++i)
            values.push_back(static_cast<float>(base::random_normal(1, 0, 0, stream, i)));
        program->write(data, values);
    }
    /// Of records as they run.
    [[nodiscard]] std::ptrdiff_t count(const ops::OpDef& op) const {
        std::ptrdiff_t sum = 0;
        for (const ops::Record& record : program->records())
            sum += std::ranges::count(ops::parts_of(record), &op, [](const ops::Record* part) { return part->op; });
        return sum;
    }
    std::unique_ptr<ops::Backend> backend;
    tape::Store store;
    tape::Arena arena{*backend};
    std::vector<std::string> couplings;
    std::optional<tape::Program> program;
};

/// ||a - b|| / ||b||, 0 where both are zero.
double distance(const std::vector<double>& a, const std::vector<double>& b) {
    double apart = 0, norm = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        apart += (a[i] - b[i]) * (a[i] - b[i]);
        norm += b[i] * b[i];
    }
    return apart == 0 ? 0 : std::sqrt(apart / norm);
}

class BatchStatistics : public ::testing::TestWithParam<BatchShape> {};

TEST_P(BatchStatistics, JoinedRecordsEqualSeparateOnesUpToRounding) {
    if (const std::string why = testing::missing(GetParam().device); !why.empty()) GTEST_SKIP() << why;
    const BatchStep on(GetParam(), {}), off(GetParam(), {"batch_statistics"});
    EXPECT_EQ(on.count(ops::batch_apply::kDef) + on.count(ops::batch_apply_backward::kDef), 0);
    EXPECT_EQ(on.count(ops::dense_forward::kDef), 3);
    for (const ops::OpDef* op : {&ops::batch_moments::kDef, &ops::batch_apply::kDef, &ops::batch_moments_backward::kDef,
                                 &ops::batch_apply_backward::kDef})
        EXPECT_EQ(off.count(*op), 2) << op->name;
    EXPECT_EQ(off.count(ops::dense_forward::kDef), 3);
    // In bf16 the records of two layers store a product and its gradient that the joined ones keep: four roundings of 2^-9.
    const double tolerance = GetParam().precision == tape::Precision::bf16 ? 4 * 0x1p-9 : 2e-5;
    for (std::size_t id = 0; id < on.store.parameters().size(); ++id) {
        const tape::Parameter& parameter = on.store.parameters()[id];
        const auto number = static_cast<tape::ParameterId>(id);
        // Running statistics moved; what is trained has gradients.
        const tensor::View view = parameter.fixed ? on.store.parameter(number) : on.store.gradient(number);
        EXPECT_LE(distance(on.program->read(view), off.program->read(view)), tolerance) << parameter.names[0];
    }
    if (GetParam().device == ops::DeviceKind::cpu) {  // kernels of CUDA have scratch
        EXPECT_LT(on.program->plan().bytes, off.program->plan().bytes) << "the product and its moments have no memory";
    }
}

TEST(BatchRecords, RowsOfALayerAreCoupled) {
    EXPECT_EQ(BatchStep({}, {}).couplings.size(), 2u) << "a batch must not be split unasked";
}

TEST(BatchRecords, StayApartWhereTheirMomentsAreReadByOthers) {
    const BatchStep kept({}, {}, true);
    EXPECT_EQ(kept.count(ops::batch_apply::kDef), 2);
    EXPECT_EQ(kept.count(ops::batch_apply_backward::kDef), 0) << "nothing else reads their sums";
}

constexpr auto kGpu = ops::DeviceKind::cuda;
INSTANTIATE_TEST_SUITE_P(All, BatchStatistics,
                         ::testing::Values(BatchShape{}, BatchShape{kGpu}, BatchShape{kGpu, tape::Precision::f32, 300},
                                           BatchShape{kGpu, tape::Precision::bf16}, BatchShape{kGpu, tape::Precision::bf16, 300},
                                           BatchShape{kGpu, tape::Precision::bf16, 300, 16, 72}),
                         [](const auto& test) { return test.param.name(); });

}  // namespace
}  // namespace millrace::nn
