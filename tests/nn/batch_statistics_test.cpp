// Layers with batch statistics: joined records against separate ones, on the CPU.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/philox.h"
#include "nn/dense.h"
#include "nn/losses.h"
#include "ops/dense/dense.h"
#include "tape/program.h"

namespace millrace::nn {
namespace {

constexpr std::int32_t kBatchRows = 150;  // three chunks of rows, the last one is not full

/// A step of two layers with statistics and dropout and one without, two groups side by side, two members.
struct BatchStep {
    explicit BatchStep(const std::vector<std::string>& off, bool keep_inner = false)
        : backend(ops::make_backend(ops::DeviceKind::cpu, {.threads = 1, .rewrites_off = off}).value()),
          store(*backend, {.members = 2}) {
        const tensor::View x = store.add_data("x", tensor::DType::f32, kBatchRows, 12),
                           wanted = store.add_data("t", tensor::DType::f32, kBatchRows, 6);
        DenseOptions options{.in = 12, .out = 70, .batch_norm = true, .activation = ops::Activation::gelu, .dropout = 0.2f};
        options.shared_input = true;
        const Dense wide(store, {"a.0", "a.1"}, {"an.0", "an.1"}, options);
        options.in = 70;
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
        if (keep_inner)
            for (const ops::Record& record : builder.records())
                if (record.op == &ops::batch_moments::kDef) builder.keep(record.slots[ops::batch_moments::moments]);
        program.emplace("step", store, std::move(builder), arena);
        EXPECT_TRUE(arena.allocate().ok() && program->prepare().ok());
        for (const tensor::View& data : {x, wanted}) {
            std::vector<double> values;
            for (std::size_t i = 0; i < static_cast<std::size_t>(data.count()); ++i)
                values.push_back(static_cast<float>(base::random_normal(1, 0, 0, data.cols == 12 ? 3 : 4, i)));
            program->write(data, values);
        }
        program->run();
    }
    [[nodiscard]] std::ptrdiff_t count(const ops::OpDef& op) const {
        return std::ranges::count(program->records(), &op, &ops::Record::op);
    }
    std::unique_ptr<ops::Backend> backend;
    tape::Store store;
    tape::Arena arena{*backend};
    std::vector<std::string> couplings;
    std::optional<tape::Program> program;
};

void expect_all_near(const std::vector<double>& a, const std::vector<double>& b, const std::string& name) {
    double largest = 0, apart = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        largest = std::max(largest, std::abs(a[i]));
        apart = std::max(apart, std::abs(a[i] - b[i]));
    }
    EXPECT_LE(apart, 1e-5 * largest) << name;
}

TEST(BatchStatistics, JoinedRecordsEqualSeparateOnesUpToRounding) {
    BatchStep on({}), off({"batch_statistics"});
    EXPECT_EQ(on.count(ops::batch_apply::kDef) + on.count(ops::batch_apply_backward::kDef), 0);
    EXPECT_EQ(on.count(ops::dense_forward::kDef), 3);
    EXPECT_EQ(on.count(ops::dense_backward::kDef), 3);
    EXPECT_EQ(off.count(ops::dense_forward::kDef), 3);
    EXPECT_EQ(off.count(ops::batch_moments::kDef), 2);
    EXPECT_EQ(off.count(ops::batch_apply::kDef), 2);
    EXPECT_EQ(off.count(ops::batch_moments_backward::kDef), 2);
    EXPECT_EQ(off.count(ops::batch_apply_backward::kDef), 2);
    for (std::size_t id = 0; id < on.store.parameters().size(); ++id) {
        const tape::Parameter& parameter = on.store.parameters()[id];
        const auto number = static_cast<tape::ParameterId>(id);
        // Running statistics moved; what is trained has gradients.
        const tensor::View view = parameter.fixed ? on.store.parameter(number) : on.store.gradient(number);
        expect_all_near(on.program->read(view), off.program->read(view), parameter.names[0]);
    }
    EXPECT_LT(on.program->plan().bytes, off.program->plan().bytes) << "the product and its moments have no memory";
}

TEST(BatchStatistics, RowsOfALayerAreCoupled) {
    EXPECT_EQ(BatchStep({}).couplings.size(), 2u) << "a batch must not be split unasked";
}

TEST(BatchStatistics, RecordsWhoseMomentsAreReadByOthersStayApart) {
    const BatchStep kept({}, true);
    EXPECT_EQ(kept.count(ops::batch_apply::kDef), 2);
    EXPECT_EQ(kept.count(ops::batch_apply_backward::kDef), 0) << "nothing else reads their sums";
}

}  // namespace
}  // namespace millrace::nn
