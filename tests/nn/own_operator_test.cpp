// The operator of examples/own-operator, through the tape: finite differences on the reference, the CPU against it.

#include "bench.h"
#include "nn/losses.h"
#include "ops/check.h"
#include "own-operator/clamp.h"

namespace millrace::nn {
namespace {

TEST(OwnOperator, GradientsEqualCentralDifferences) {
    Bench bench;
    const tensor::View x = bench.store->add_data("x", tensor::DType::f64, 7, 5),
                       wanted = bench.store->add_data("t", tensor::DType::f64, 7, 5);
    DenseOptions options;
    options.in = options.out = 5;
    Dense layer(*bench.store, {"layer"}, {}, options);
    bench.build([&](tape::Builder& builder) {
        mse(builder, own::clamp(builder, layer.forward(builder, {x, false}), {-0.5f, 0.25f}, "clamp"), wanted);
    });
    bench.fill(x, 1);
    bench.fill(wanted, 2);
    bench.check_parameters();
}

TEST(OwnOperator, CpuAgreesWithTheReferenceAndCudaIsRefusedByName) {
    constexpr int kRows = 301, kCols = 67;
    std::vector<double> found[2];
    for (const ops::DeviceKind kind : {ops::DeviceKind::ref, ops::DeviceKind::cpu}) {
        auto backend = ops::make_backend(kind, {.threads = 2}).value();
        tape::StoreOptions options;
        options.precision = kind == ops::DeviceKind::ref ? tape::Precision::f64 : tape::Precision::f32;
        tape::Store store(*backend, options);
        const tensor::View x = store.add_data("x", tape::real_of(options.precision), kRows, kCols);
        ASSERT_TRUE(store.allocate().ok());
        tape::BuildOptions build;
        build.training = false;
        tape::Builder builder(store, build);
        const tape::Value y = own::clamp(builder, {x, false}, {-0.5f, 0.25f}, "clamp");
        builder.keep(y.view);
        tape::Arena arena(*backend);
        tape::Program program("clamp", store, std::move(builder), arena);
        ASSERT_TRUE(arena.allocate().ok());
        ASSERT_TRUE(program.prepare().ok());
        std::vector<double> values(static_cast<std::size_t>(kRows) * kCols);
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(base::random_normal(1, 0, 0, 3, i));
        program.write(x, values);
        program.run();
        found[kind == ops::DeviceKind::cpu] = program.read(y.view);
    }
    EXPECT_EQ(found[0], found[1]);
    EXPECT_EQ(ops::missing_operator(own::clamp_forward::kDef, ops::DeviceKind::cuda).message,
              "operator clamp_forward has no cuda backend");
}

TEST(OwnOperator, RecordsThatBreakItsRuleAreRefused) {
    namespace at = own::clamp_forward;
    const auto view = [](tensor::BufferId id, int cols) { return tape::contiguous_view(id, tensor::DType::f32, 1, 1, 7, cols); };
    const auto text = [](const ops::Record& record) { return ops::check_record(record).error().text(); };
    EXPECT_EQ(text({&at::kDef, own::ClampParams{}, {view(0, 5), view(1, 5)}, 0, "clamp"}), "");
    EXPECT_EQ(text({&at::kDef, own::ClampParams{}, {view(0, 5), view(1, 6)}, 0, "clamp"}),
              "clamp: clamp_forward.y must be f32 [1, 1, 7, 5], got f32 [1, 1, 7, 6]; its slots: x f32 [1, 1, 7, 5], y f32 [1, "
              "1, 7, 6]");
    EXPECT_NE(text({&at::kDef, own::ClampParams{1, -1}, {view(0, 5), view(1, 5)}, 0, "clamp"}).find("low must not be above high"),
              std::string::npos);
}

}  // namespace
}  // namespace millrace::nn
