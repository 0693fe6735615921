// The reference operators against values and gradients that PyTorch computed in float64 (tests/goldens/ops.py).

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "io/safetensors.h"
#include "models/collective/ops/diversity.h"
#include "ops/dense/dense.h"
#include "ops/loss/loss.h"
#include "ops/norm/layernorm.h"
#include "ops/pointwise/pointwise.h"
#include "places.h"
#include "ref_program.h"

namespace millrace::ops::cases {
namespace {

constexpr double kGoldenTolerance = 2e-6;  // of the tensor's largest value: the file holds float32

const io::SafetensorsFile& goldens() {
    static const auto file =
        io::SafetensorsFile::open((millrace::testing::source_root() / "tests/goldens/ops.safetensors").string());
    return file.value();
}

const io::TensorView& stored(const std::string& name) {
    const io::TensorView* found = goldens().find(name);
    MILLRACE_ASSERT(found != nullptr, name);
    return *found;
}

std::vector<double> reals(const std::string& name) {
    const auto& tensor = stored(name);
    std::vector<float> narrow(tensor.bytes / sizeof(float));
    std::memcpy(narrow.data(), tensor.data, tensor.bytes);
    return {narrow.begin(), narrow.end()};
}

std::vector<std::int32_t> integers(const std::string& name) {
    const auto& tensor = stored(name);
    std::vector<std::int32_t> values(tensor.bytes / sizeof(std::int32_t));
    std::memcpy(values.data(), tensor.data, tensor.bytes);
    return values;
}

/// Program and golden case side by side.
struct Golden {
    explicit Golden(std::string title) : name(std::move(title)) {
        const auto& shape = stored(name + "/x").shape;
        groups = shape.size() == 3 ? static_cast<int>(shape[0]) : 1;
        rows = shape.size() >= 2 ? static_cast<int>(shape[shape.size() - 2]) : 1;
        cols = static_cast<int>(shape.back());
    }
    RefProgram::Id matrix(const char* tensor) { return p.tensor(1, groups, rows, cols, reals(name + "/" + tensor)); }
    RefProgram::Id vector(const char* tensor) {
        auto values = reals(name + "/" + tensor);
        const int width = static_cast<int>(values.size());
        return p.tensor(1, 1, 1, width, std::move(values));
    }
    RefProgram::Id empty() { return p.tensor(1, groups, rows, cols); }
    RefProgram::Id empty(int r, int c) { return p.tensor(1, 1, r, c); }

    void expect(RefProgram::Id id, const char* tensor) { expect(p.values(id), tensor); }
    void expect(const std::vector<double>& got, const char* tensor) {
        const auto want = reals(name + "/" + tensor);
        ASSERT_EQ(got.size(), want.size()) << name << "/" << tensor;
        double scale = 1;
        for (const double v : want) scale = std::max(scale, std::fabs(v));
        for (std::size_t i = 0; i < want.size(); ++i)
            EXPECT_NEAR(got[i], want[i], kGoldenTolerance * scale) << name << "/" << tensor << " [" << i << "]";
    }

    std::string name;
    int groups = 1, rows = 1, cols = 1;
    RefProgram p;
};

TEST(OperatorGoldens, Activations) {
    const std::pair<const char*, Activation> activations[] = {
        {"relu", Activation::relu}, {"gelu", Activation::gelu}, {"tanh", Activation::tanh}, {"sigmoid", Activation::sigmoid}};
    for (const auto& [title, activation] : activations)
        for (const char* size : {"/7x13", "/edges"}) {
            Golden g(std::string(title) + size);
            const PointwiseParams params{activation, 0, 0};
            const auto x = g.matrix("x"), y = g.empty(), dy = g.matrix("dy"), dx = g.empty();
            g.p.add(&pointwise_forward::kDef, params, {{pointwise_forward::x, x}, {pointwise_forward::y, y}});
            g.p.add(&pointwise_backward::kDef, params,
                    {{pointwise_backward::dy, dy}, {pointwise_backward::x, x}, {pointwise_backward::dx, dx}});
            g.p.run();
            g.expect(y, "y");
            g.expect(dx, "dx");
        }
}

TEST(OperatorGoldens, LayerNorm) {
    namespace f = layernorm_forward;
    namespace b = layernorm_backward;
    for (const char* size : {"7x13", "5x1", "3x64", "1x37"}) {
        Golden g(std::string("layer_norm/") + size);
        const auto x = g.matrix("x"), gamma = g.vector("weight"), beta = g.vector("bias"), y = g.empty(), dy = g.matrix("dy"),
                   dx = g.empty();
        const auto mean = g.empty(g.rows, 1), inv_std = g.empty(g.rows, 1), dgamma = g.empty(1, g.cols),
                   dbeta = g.empty(1, g.cols);
        g.p.add(&layernorm_forward::kDef, LayerNormParams{},
                {{f::x, x}, {f::gamma, gamma}, {f::beta, beta}, {f::mean, mean}, {f::inv_std, inv_std}, {f::y, y}});
        g.p.add(&layernorm_backward::kDef, LayerNormParams{},
                {{b::dy, dy},
                 {b::x, x},
                 {b::gamma, gamma},
                 {b::mean, mean},
                 {b::inv_std, inv_std},
                 {b::dx, dx},
                 {b::dgamma, dgamma},
                 {b::dbeta, dbeta}});
        g.p.run();
        g.expect(y, "y");
        g.expect(dx, "dx");
        g.expect(dgamma, "dweight");
        g.expect(dbeta, "dbias");
    }
}

// BatchNorm is the tail of dense_forward: with the identity as weight, z is x.
TEST(OperatorGoldens, BatchNorm) {
    namespace f = dense_forward;
    namespace b = dense_backward;
    for (const char* size : {"9x5", "3x17", "31x1"})
        for (const bool training : {true, false}) {
            Golden g(std::string(training ? "batch_norm_train/" : "batch_norm_eval/") + size);
            std::vector<double> identity(static_cast<std::size_t>(g.cols * g.cols), 0.0);
            for (int i = 0; i < g.cols; ++i) identity[static_cast<std::size_t>(i * g.cols + i)] = 1;
            const DenseParams params{training ? Norm::batch_train : Norm::batch_eval, Activation::none, 0, 1e-5f, 0.1f, 0};
            const auto x = g.matrix("x"), w = g.p.tensor(1, 1, g.cols, g.cols, identity), gamma = g.vector("weight"),
                       beta = g.vector("bias");
            const auto mean = g.vector("running_mean"), var = g.vector("running_var"), y = g.empty(), saved = g.empty();
            const auto inv_std = g.empty(1, g.cols), dy = g.matrix("dy"), dz = g.empty(), dgamma = g.empty(1, g.cols),
                       dbeta = g.empty(1, g.cols);
            g.p.add(&dense_forward::kDef, params,
                    {{f::x, x},
                     {f::w, w},
                     {f::gamma, gamma},
                     {f::beta, beta},
                     {f::running_mean, mean},
                     {f::running_var, var},
                     {f::saved, saved},
                     {f::inv_std, inv_std},
                     {f::y, y}});
            if (training)
                g.p.add(&dense_backward::kDef, params,
                        {{b::dy, dy},
                         {b::saved, saved},
                         {b::gamma, gamma},
                         {b::beta, beta},
                         {b::inv_std, inv_std},
                         {b::dz, dz},
                         {b::dgamma, dgamma},
                         {b::dbeta, dbeta}});
            g.p.run();
            g.expect(y, "y");
            if (!training) continue;
            g.expect(dz, "dx");
            g.expect(dgamma, "dweight");
            g.expect(dbeta, "dbias");
            g.expect(mean, "running_mean_after");
            g.expect(var, "running_var_after");
        }
}

TEST(OperatorGoldens, Linear) {
    namespace f = dense_forward;
    namespace b = dense_backward;
    for (const char* size : {"7x13x5", "1x3x11", "17x1x1"}) {
        Golden g(std::string("linear/") + size);
        const int out = static_cast<int>(stored(g.name + "/bias").shape[0]);
        const auto x = g.matrix("x"), w = g.p.tensor(1, 1, out, g.cols, reals(g.name + "/weight")), bias = g.vector("bias");
        const auto y = g.empty(g.rows, out), dy = g.p.tensor(1, 1, g.rows, out, reals(g.name + "/dy")), dz = g.empty(g.rows, out);
        const auto dbias = g.empty(1, out), dx = g.empty(), dw = g.empty(out, g.cols);
        g.p.add(&dense_forward::kDef, DenseParams{}, {{f::x, x}, {f::w, w}, {f::bias, bias}, {f::y, y}});
        g.p.add(&dense_backward::kDef, DenseParams{}, {{b::dy, dy}, {b::dz, dz}, {b::dbias, dbias}});
        g.p.add(&linear_dgrad::kDef, LinearGradParams{}, {{linear_dgrad::dz, dz}, {linear_dgrad::w, w}, {linear_dgrad::dx, dx}});
        g.p.add(&linear_wgrad::kDef, LinearGradParams{}, {{linear_wgrad::dz, dz}, {linear_wgrad::x, x}, {linear_wgrad::dw, dw}});
        g.p.run();
        g.expect(y, "y");
        g.expect(dx, "dx");
        g.expect(dw, "dweight");
        g.expect(dbias, "dbias");
    }
}

TEST(OperatorGoldens, CrossEntropy) {
    namespace at = cross_entropy;
    for (const char* size : {"7x10", "1x3", "5x13large"}) {
        Golden g(std::string("cross_entropy/") + size);
        const auto logits = g.matrix("x"), labels = g.p.indices(1, g.rows, integers(g.name + "/labels")), dlogits = g.empty();
        const auto state = g.p.states(std::vector<MemberState>(1));
        g.p.add(&cross_entropy::kDef, LossParams{1},
                {{at::logits, logits}, {at::labels, labels}, {at::state, state}, {at::dlogits, dlogits}});
        g.p.run();
        g.expect(std::vector<double>{g.p.state(state).loss / g.rows}, "y");
        g.expect(dlogits, "dx");
    }
}

TEST(OperatorGoldens, MeanSquaredError) {
    namespace at = mse;
    for (const char* size : {"7x3", "1x1", "13x11"}) {
        Golden g(std::string("mse/") + size);
        const auto x = g.matrix("x"), target = g.matrix("target"), dx = g.empty(),
                   state = g.p.states(std::vector<MemberState>(1));
        g.p.add(&mse::kDef, LossParams{1},
                {{at::prediction, x}, {at::target, target}, {at::state, state}, {at::dprediction, dx}});
        g.p.run();
        g.expect(std::vector<double>{g.p.state(state).loss / g.rows}, "y");
        g.expect(dx, "dx");
    }
}

TEST(OperatorGoldens, CosineDiversity) {
    namespace at = cosine_diversity;
    for (const char* size : {"3x7x5", "2x1x3", "6x11x16"}) {
        Golden g(std::string("diversity/") + size);
        const auto o = g.matrix("x"), dout = g.empty(), state = g.p.states(std::vector<MemberState>(1));
        g.p.add(&cosine_diversity::kDef, DiversityParams{1, 0.5, 1}, {{at::o, o}, {at::state, state}, {at::dout, dout}});
        g.p.run();
        g.expect(std::vector<double>{g.p.state(state).penalty}, "y");
        g.expect(dout, "dx");
    }
}

}  // namespace
}  // namespace millrace::ops::cases
