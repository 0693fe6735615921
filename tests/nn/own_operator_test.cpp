// The operator of examples/own-operator, through the tape: finite differences on the reference, the CPU against it.

#include <algorithm>
#include <optional>

#include "bench.h"
#include "nn/losses.h"
#include "ops/check.h"
#include "ops/fused.h"
#include "ops/pointwise/pointwise.h"
#include "own-operator/clamp.h"
#include "tape/record.h"

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

/// Two clamps with another record between them, on the CPU.
struct TwoClamps {
    explicit TwoClamps(const std::vector<std::string>& off, bool keep_first = false)
        : backend(ops::make_backend(ops::DeviceKind::cpu, {.threads = 1, .rewrites_off = off}).value()), store(*backend, {}) {
        const tensor::View x = store.add_data("x", tensor::DType::f32, 5, 3),
                           other = store.add_data("other", tensor::DType::f32, 5, 3);
        if (!store.allocate().ok()) return;
        tape::BuildOptions build;
        build.training = false;
        tape::Builder builder(store, build);
        const tape::Value first = own::clamp(builder, {x, false}, {-0.75f, 0.5f}, "first");
        builder.append(tape::record_of(&ops::copy::kDef, ops::CopyParams{}, "between", {x, other}));
        last = own::clamp(builder, first, {-0.5f, 0.75f}, "second").view;
        builder.keep(last);
        if (keep_first) builder.keep(first.view);
        program.emplace("clamps", store, std::move(builder), arena);
        EXPECT_TRUE(arena.allocate().ok() && program->prepare().ok());
        std::vector<double> values;
        for (std::size_t i = 0; i < 15; ++i) values.push_back(static_cast<float>(base::random_normal(1, 0, 0, 3, i)));
        program->write(x, values);
        program->run();
    }
    std::unique_ptr<ops::Backend> backend;
    tape::Store store;
    tape::Arena arena{*backend};
    tensor::View last;
    std::optional<tape::Program> program;
};

TEST(OwnOperator, ARewriteFromOutsideOfTheTreeIsTakenAndCanBeSwitchedOff) {
    TwoClamps on({}), off({"clamp_clamp"}), none({"all"});
    EXPECT_EQ(on.program->records().size(), 2u);
    EXPECT_NE(on.program->listing().find("clamp_clamp joins 2"), std::string::npos) << on.program->listing();
    EXPECT_EQ(off.program->records().size(), 3u);
    EXPECT_EQ(off.program->listing().find("joins"), std::string::npos) << off.program->listing();
    EXPECT_EQ(on.program->read(on.last), off.program->read(off.last));
    EXPECT_EQ(none.program->read(none.last), off.program->read(off.last));
    EXPECT_LT(on.program->plan().bytes, off.program->plan().bytes) << "what nobody reads any more has no memory";
    EXPECT_FALSE(on.program->run_checked().has_value());
    const auto names = ops::rewrite_names();
    EXPECT_NE(std::ranges::find(names, "clamp_clamp"), names.end());
}

TEST(OwnOperator, ARewriteIsNotTakenWhereItsInnerValueIsReadByOthers) {
    EXPECT_EQ(TwoClamps({}, true).program->records().size(), 3u) << "the first clamp's output is kept";
}

}  // namespace
}  // namespace millrace::nn
