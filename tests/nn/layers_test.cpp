// The layers' wiring: small programs whose gradients are compared with finite differences on the reference backend.

#include <gtest/gtest.h>

#include "nn/bench.h"
#include "nn/dense.h"
#include "nn/layer_norm.h"
#include "nn/losses.h"
#include "nn/pointwise.h"
#include "ops/dense/dense.h"
#include "ops/pointwise/pointwise.h"

namespace millrace::nn {
namespace {

TEST(Layers, NormActivationsAndResidualHaveRightGradients) {
    for (ops::Activation activation :
         {ops::Activation::relu, ops::Activation::gelu, ops::Activation::tanh, ops::Activation::sigmoid}) {
        Bench bench;
        const tensor::View x = bench.store->add_data("x", tensor::DType::f64, 7, 5),
                           wanted = bench.store->add_data("t", tensor::DType::f64, 7, 3);
        Dense first(*bench.store, {"first"}, {}, plain(5, 4, activation));
        LayerNorm norm(*bench.store, "norm", 4);
        Dense second(*bench.store, {"second"}, {}, plain(4, 4));
        Dense last(*bench.store, {"last"}, {}, plain(4, 3));
        bench.build([&](tape::Builder& builder) {
            const tape::Value a = first.forward(builder, {x, false});
            const tape::Value b = norm.forward(builder, a);
            const tape::Value c = pointwise(builder, second.forward(builder, b), {activation, 0.25f}, "point");
            mse(builder, last.forward(builder, add(builder, c, a, "sum")), wanted);
        });
        bench.fill(x, 1);
        bench.fill(wanted, 2);
        SCOPED_TRACE(static_cast<int>(activation));
        bench.check_parameters();
    }
}

TEST(Layers, ParameterUsedTwiceAddsItsGradients) {
    Bench bench;
    const tensor::View x = bench.store->add_data("x", tensor::DType::f64, 5, 3),
                       wanted = bench.store->add_data("t", tensor::DType::f64, 5, 3);
    Dense layer(*bench.store, {"layer"}, {}, plain(3, 3, ops::Activation::tanh));
    bench.build([&](tape::Builder& builder) {
        mse(builder, layer.forward(builder, layer.forward(builder, {x, false})), wanted);
    });
    bench.fill(x, 1);
    bench.fill(wanted, 2);
    bench.check_parameters();
}

TEST(Layers, WindowOfTheInputIsTheOnlyPartWithAGradient) {
    // [data | code]: the code comes from a layer below, the data needs no gradient.
    Bench bench;
    const tensor::View x = bench.store->add_data("x", tensor::DType::f64, 6, 4),
                       wanted = bench.store->add_data("t", tensor::DType::f64, 6, 4);
    Dense code(*bench.store, {"code"}, {}, plain(4, 3));
    DenseOptions wide = plain(7, 2, ops::Activation::tanh);
    wide.shared_input = true;
    wide.batch_norm = true;
    Dense readers(*bench.store, {"a", "b"}, {"an", "bn"}, wide);
    DenseOptions narrow = plain(2, 2);
    Dense outs(*bench.store, {"oa", "ob"}, {}, narrow);
    bench.build([&](tape::Builder& builder) {
        const tape::Value seen = builder.activation(6, 7, "seen", true);
        ops::Record record{&ops::copy::kDef, ops::CopyParams{}, {}, 0, "data"};
        record.slots[ops::copy::in] = x;
        record.slots[ops::copy::out] = seen.view.columns(0, 4);
        builder.append(record);
        code.forward(builder, {seen.view.columns(0, 4), false}, {seen.columns(4, 3), {}});
        mse(builder, outs.forward(builder, readers.forward(builder, seen, {{}, Columns{4, 3}})), wanted);
    });
    bench.fill(x, 1);
    bench.fill(wanted, 2);
    bench.check_parameters();
    for (const ops::Record& record : bench.records) {
        if (record.op == &ops::linear_dgrad::kDef && record.layer.starts_with("a")) {
            EXPECT_EQ(record.slots[ops::linear_dgrad::dx].cols, 3);
        }
    }
}

TEST(Dense, SharedInputIsOneProductAndEqualsSeparateLayers) {
    Bench bench(2);
    const tensor::View x = bench.store->add_data("x", tensor::DType::f64, 5, 4);
    auto shared = plain(4, 3, ops::Activation::relu);
    shared.shared_input = true;
    Dense both(*bench.store, {"a", "b"}, {}, shared);
    tensor::View joined;
    bench.build(
        [&](tape::Builder& builder) {
            tensor::View for_all = x;
            for_all.k = 2;
            joined = both.forward(builder, {for_all, false}).view;
        },
        false);
    ASSERT_EQ(bench.records.size(), 1u);
    EXPECT_EQ(bench.records[0].slots[ops::dense_forward::w].rows, 6);
    bench.fill(x, 1);
    bench.program->run();
    const auto inputs = bench.program->read(x), outputs = bench.program->read(joined);
    for (int member = 0; member < 2; ++member)
        for (int group = 0; group < 2; ++group) {
            const auto weight = bench.store->read_parameter(0, group, member);
            for (std::size_t row = 0; row < 5; ++row)
                for (std::size_t out = 0; out < 3; ++out) {
                    double sum = 0;
                    for (std::size_t in = 0; in < 4; ++in) sum += inputs[row * 4 + in] * double{weight[out * 4 + in]};
                    const std::size_t at =
                        (static_cast<std::size_t>(member) * 5 + row) * 6 + static_cast<std::size_t>(group) * 3 + out;
                    EXPECT_NEAR(outputs[at], std::max(sum, 0.0), 1e-12);
                }
        }
}

TEST(Dense, EvaluationHasNoRandomnessAndTheSameOperatorNumbers) {
    std::vector<std::uint32_t> numbers[2];
    for (bool training : {false, true}) {
        Bench bench;
        const tensor::View x = bench.store->add_data("x", tensor::DType::f64, 5, 4),
                           labels = bench.store->add_data("l", tensor::DType::i32, 5, 1);
        auto options = plain(4, 3, ops::Activation::relu);
        options.dropout = 0.5f;
        options.batch_norm = true;
        Dense first(*bench.store, {"a"}, {"n"}, options);
        Dense second(*bench.store, {"b"}, {}, plain(3, 2));
        bench.build(
            [&](tape::Builder& builder) {
                cross_entropy(builder, pointwise(builder, second.forward(builder, first.forward(builder, {x, false})), {}, "p"),
                              labels);
            },
            training);
        for (const ops::Record& record : bench.records) {
            const auto* params = std::any_cast<ops::DenseParams>(&record.params);
            if (params == nullptr || record.op->phase != ops::Phase::forward) continue;
            if (params->op_number > 0) numbers[training].push_back(params->op_number);
            if (!training) {
                EXPECT_EQ(params->dropout, 0);
                EXPECT_NE(params->norm, ops::Norm::batch_train);
                EXPECT_FALSE(record.slots[ops::dense_forward::saved].present());
                EXPECT_FALSE(record.slots[ops::dense_forward::state].present());
            }
        }
    }
    EXPECT_EQ(numbers[0], numbers[1]);
}

TEST(Dense, InputGradientComesRightBeforeTheLayerBelow) {
    Bench bench;
    const tensor::View x = bench.store->add_data("x", tensor::DType::f64, 5, 4),
                       labels = bench.store->add_data("l", tensor::DType::i32, 5, 1);
    auto options = plain(4, 4, ops::Activation::relu);
    options.batch_norm = true;
    Dense first(*bench.store, {"a"}, {"an"}, options), second(*bench.store, {"b"}, {"bn"}, options);
    bench.build([&](tape::Builder& builder) {
        cross_entropy(builder, second.forward(builder, first.forward(builder, {x, false})), labels);
    });
    for (std::size_t i = 0; i + 1 < bench.records.size(); ++i) {
        if (bench.records[i].op == &ops::linear_dgrad::kDef) {
            EXPECT_EQ(bench.records[i + 1].op, &ops::batch_moments_backward::kDef);
        }
    }
}

}  // namespace
}  // namespace millrace::nn
