// Sequences through transformer layers: a tiny encoder and a tiny decoder against what PyTorch gave (tests/goldens/README.md),
// and greedy decoding of what a decoder has learned.

#include "nn/transformer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "models/golden.h"
#include "models/model_rig.h"
#include "nn/losses.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/pointwise.h"
#include "ops/text/text.h"
#include "optim/update.h"
#include "tape/program.h"

namespace millrace::nn {
namespace {

using millrace::testing::Golden;
using millrace::testing::relative_distance;
using millrace::testing::slice;

struct Shape {
    bool decoder = false;
    std::int32_t vocabulary = 0, tokens = 0, prefix = 0, width = 0, heads = 0, inner = 0, layers = 0, cells = 0, batch = 0;
    [[nodiscard]] std::int32_t positions() const { return prefix + tokens; }
};

Shape shape_of(const Golden& golden) {
    const auto given = golden.meta("model");
    return {given["kind"] == "decoder",
            given["vocabulary"],
            given["tokens"],
            given["prefix"],
            given["width"],
            given["heads"],
            given["inner"],
            given["layers"],
            given["cells"],
            golden.meta("batch")};
}

/// Encoder: embedding, layers, norm, mean, linear with tanh. Decoder: linear to the prefix, embedding, causal layers, norm,
/// linear.
struct TransformerNetwork {
    TransformerNetwork(tape::Store& store, const Shape& shape) : s(shape) {
        const auto linear = [](std::int32_t inputs, std::int32_t outputs, ops::Activation activation) {
            DenseOptions options;
            options.in = inputs;
            options.out = outputs;
            options.activation = activation;
            return options;
        };
        if (s.decoder) start = Dense(store, {"start"}, {}, linear(s.cells, s.prefix * s.width, ops::Activation::none));
        embed = TokenEmbedding(store, "embed", s.vocabulary, s.positions(), s.width);
        for (int i = 0; i < s.layers; ++i)
            layers.emplace_back(store, "layers." + std::to_string(i),
                                TransformerOptions{s.width, s.heads, s.inner, s.decoder, 0});
        norm = LayerNorm(store, "norm", s.width);
        out = Dense(
            store, {"out"}, {},
            s.decoder ? linear(s.width, s.vocabulary, ops::Activation::none) : linear(s.width, s.cells, ops::Activation::tanh));
    }
    tape::Value forward(tape::Builder& builder, const Sequences& sequences, const tensor::View& cells) const {
        const tape::Value before = s.decoder ? start.forward(builder, {cells, false}) : tape::Value{};
        tape::Value x = embed.forward(builder, sequences, before);
        for (const TransformerLayer& layer : layers) x = layer.forward(builder, x, sequences);
        x = norm.forward(builder, x);
        return out.forward(builder, s.decoder ? x : masked_mean(builder, x, sequences, "mean"));
    }

    Shape s;
    Dense start, out;
    TokenEmbedding embed;
    std::vector<TransformerLayer> layers;
    LayerNorm norm;
};

struct Where {
    const char* name;
    ops::DeviceKind device;
    tape::Precision precision;
    double output, loss, gradients, weights;
};

/// A network with its store, a training program and one that decodes.
struct TextRig {
    base::Status start(const Shape& given, const Where& where, const optim::OptimizerSettings& optimizer) {
        shape = given;
        settings = optimizer;
        MILLRACE_LET(made, ops::make_backend(where.device, {}));
        backend = std::move(made);
        tape::StoreOptions options;
        options.precision = where.precision;
        options.ring_capacity = 16;
        optim::request_arenas(settings, options);
        store = std::make_unique<tape::Store>(*backend, options);
        network = std::make_unique<TransformerNetwork>(*store, shape);
        const tensor::DType real = tape::real_of(where.precision), stat = tape::stat_of(where.precision);
        sequences = {store->add_data("ids", tensor::DType::i32, shape.batch, shape.tokens),
                     store->add_data("lengths", tensor::DType::i32, shape.batch, 1), shape.prefix};
        cells = store->add_data("cells", real, shape.batch, shape.cells);
        tally = store->add_data("tally", stat, 1, ops::kTallyColumns);
        kept = store->add_data("kept", stat, shape.decoder ? sequences.rows() : shape.batch,
                               shape.decoder ? shape.vocabulary : shape.cells);
        MILLRACE_TRY(store->allocate());
        store->initialize({11});
        auto states = store->read_states();
        optim::apply(settings, states);
        store->write_states(states);
        arena = std::make_unique<tape::Arena>(*backend);
        build_training();
        if (shape.decoder) build_decoding();
        MILLRACE_TRY(arena->allocate());
        MILLRACE_TRY(training->prepare());
        return decoding ? decoding->prepare() : base::ok();
    }
    void build_training() {
        tape::BuildOptions options;
        options.defer_weight_gradients = backend->kind() == ops::DeviceKind::cuda;
        tape::Builder builder(*store, options);
        optim::append_step_begin(builder);
        builder.close_section();
        const tape::Value result = network->forward(builder, sequences, cells);
        ops::Record copy{&ops::copy::kDef, ops::CopyParams{}, {}, 0, "kept"};
        copy.slots[ops::copy::in] = result.view;
        copy.slots[ops::copy::out] = kept;
        builder.append(std::move(copy));
        if (shape.decoder)
            token_cross_entropy(builder, result, sequences, shape.prefix - 1, {.as_loss = true, .tally = tally});
        else
            mse(builder, result, cells);
        builder.backward();
        builder.close_section();
        optim::append_update(builder, settings);
        builder.close_section();
        training = std::make_unique<tape::Program>("training", *store, std::move(builder), *arena);
    }
    void build_decoding() {
        tape::BuildOptions options;
        options.training = false;
        tape::Builder builder(*store, options);
        token_choose(builder, network->forward(builder, sequences, cells), sequences, shape.prefix - 1, kEnd);
        builder.close_section();
        decoding = std::make_unique<tape::Program>("decoding", *store, std::move(builder), *arena);
    }
    void feed(const std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& lengths, const std::vector<float>& values) {
        training->write(sequences.ids, {ids.begin(), ids.end()});
        training->write(sequences.lengths, {lengths.begin(), lengths.end()});
        training->write(cells, {values.begin(), values.end()});
    }
    [[nodiscard]] double loss() {
        const ops::MemberState state = store->read_states()[0];
        EXPECT_EQ(state.nonfinite, 0u);
        return state.loss / state.rows;
    }

    static constexpr std::int32_t kEnd = 1;
    Shape shape;
    optim::OptimizerSettings settings;
    std::unique_ptr<ops::Backend> backend;
    std::unique_ptr<tape::Store> store;
    std::unique_ptr<TransformerNetwork> network;
    std::unique_ptr<tape::Arena> arena;
    std::unique_ptr<tape::Program> training, decoding;
    Sequences sequences;
    tensor::View cells, tally, kept;
};

optim::OptimizerSettings optimizer_of(const nlohmann::json& given) {
    optim::OptimizerSettings settings;
    settings.kind = given["kind"] == "sgd" ? ops::OptimizerKind::sgd : ops::OptimizerKind::adamw;
    settings.lr = {given["lr"].get<double>()};
    settings.weight_decay = {given["weight_decay"].get<double>()};
    settings.momentum = given.value("momentum", 0.0);
    return settings;
}

/// The biases of the keys add the same to all scores of a position: their gradient is rounding noise, which Adam blows up.
std::vector<float> without_keys(std::vector<float> values, const std::string& name, std::int32_t width) {
    if (name.ends_with("in_proj.bias")) values.erase(values.begin() + width, values.begin() + 2 * width);
    return values;
}

class TextParity : public ::testing::TestWithParam<Where> {
protected:
    void SetUp() override {
        if (const std::string why = millrace::testing::missing(GetParam().device); !why.empty()) GTEST_SKIP() << why;
    }
    void expect_parameters(const std::string& prefix, tape::Store::Arena which, double tolerance) {
        for (std::size_t id = 0; id < rig.store->parameters().size(); ++id) {
            const std::string& name = rig.store->parameters()[id].names[0];
            ASSERT_TRUE(golden->has(prefix + name)) << prefix << name;
            const auto found = rig.store->read_parameter(static_cast<tape::ParameterId>(id), 0, 0, which);
            EXPECT_LT(relative_distance(without_keys(found, name, rig.shape.width),
                                        without_keys(golden->floats(prefix + name), name, rig.shape.width)),
                      tolerance)
                << prefix << name;
        }
    }
    void run(const std::string& name) {
        const Where& where = GetParam();
        golden = std::make_unique<Golden>(name);
        const Shape shape = shape_of(*golden);
        const auto started = rig.start(shape, where, optimizer_of(golden->meta("optimizer")));
        ASSERT_TRUE(started.ok()) << started.error().text();
        EXPECT_EQ(rig.store->trainable_count(), golden->meta("parameters").get<std::int64_t>());
        for (std::size_t id = 0; id < rig.store->parameters().size(); ++id)
            rig.store->write_parameter(static_cast<tape::ParameterId>(id), 0, 0,
                                       golden->floats("init." + rig.store->parameters()[id].names[0]));
        rig.store->refresh_copies();
        const auto batch = static_cast<std::size_t>(shape.batch), tokens = static_cast<std::size_t>(shape.tokens),
                   cells = static_cast<std::size_t>(shape.cells);
        for (std::size_t step = 0; step < 10; ++step) {
            rig.feed(slice(golden->integers("ids"), step, batch * tokens), slice(golden->integers("lengths"), step, batch),
                     slice(golden->floats("cells"), step, batch * cells));
            rig.training->run();
            EXPECT_NEAR(rig.loss(), double{golden->floats("loss")[step]}, where.loss) << "step " << step;
            if (shape.decoder) expect_tally(step);
            if (step == 0) {
                expect_output();
                expect_parameters("grad.", tape::Store::Arena::gradient, where.gradients);
                expect_parameters("after1.", tape::Store::Arena::value, where.weights);
            }
        }
        expect_parameters("after10.", tape::Store::Arena::value, where.weights);
    }
    void expect_output() {
        const std::vector<double> found = rig.training->read(rig.kept);
        const std::vector<float> wanted = golden->floats(rig.shape.decoder ? "logits" : "output");
        ASSERT_EQ(found.size(), wanted.size());
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            if (rig.shape.decoder && wanted[i] == 0) continue;  // a position that predicts no token
            EXPECT_NEAR(found[i], double{wanted[i]}, GetParam().output) << i;
        }
    }
    void expect_tally(std::size_t step) {
        const std::vector<double> found = rig.training->read(rig.tally);
        const std::vector<float> wanted = slice(golden->floats("tally"), step, ops::kTallyColumns);
        EXPECT_EQ(found[ops::tally::tokens], double{wanted[ops::tally::tokens]});
        EXPECT_NEAR(found[ops::tally::loss], double{wanted[ops::tally::loss]}, GetParam().loss * found[ops::tally::tokens]);
        if (tape::has_copies(GetParam().precision)) return;
        EXPECT_EQ(found[ops::tally::right], double{wanted[ops::tally::right]});
        EXPECT_EQ(found[ops::tally::whole], double{wanted[ops::tally::whole]});
    }

    TextRig rig;
    std::unique_ptr<Golden> golden;
};

TEST_P(TextParity, EncoderWithMaskedMean) { run("text_encoder"); }
TEST_P(TextParity, CausalDecoderBehindAPrefix) { run("text_decoder"); }

INSTANTIATE_TEST_SUITE_P(
    All, TextParity,
    ::testing::Values(Where{"ref", ops::DeviceKind::ref, tape::Precision::f64, 1e-6, 1e-6, 1e-6, 1e-6},
                      Where{"cpu", ops::DeviceKind::cpu, tape::Precision::f32, 1e-5, 1e-5, 1e-4, 1e-3},
                      Where{"cuda", ops::DeviceKind::cuda, tape::Precision::f32, 1e-5, 1e-5, 1e-4, 1e-3},
                      Where{"cuda_bf16", ops::DeviceKind::cuda, tape::Precision::bf16, 6e-2, 3e-2, 1e-1, 2e-2},
                      Where{"cuda_f16", ops::DeviceKind::cuda, tape::Precision::f16, 2e-2, 1e-2, 1e-1, 2e-2}),
    [](const auto& given) { return std::string(given.param.name); });

class TextDecoding : public ::testing::TestWithParam<Where> {};

TEST_P(TextDecoding, SaysTheSentencesItHasLearned) {
    if (const std::string why = millrace::testing::missing(GetParam().device); !why.empty()) GTEST_SKIP() << why;
    const Shape shape{true, 11, 7, 4, 32, 4, 48, 2, 6, 3};
    optim::OptimizerSettings settings;
    settings.lr = {3e-3};
    TextRig rig;
    const auto started = rig.start(shape, GetParam(), settings);
    ASSERT_TRUE(started.ok()) << started.error().text();
    // Sequences end with token 1, but for the last, which fills all positions.
    const std::vector<std::int32_t> wanted{5, 2, 2, 9, 1, -1, -1, 5, 2, 7, 1, -1, -1, -1, 3, 3, 4, 10, 8, 6, 2};
    const std::vector<std::int32_t> lengths{5, 4, 7};
    const std::vector<float> cells{1, 0, 0, -1, 0.5f, 0, 0, 1, 0, 0.25f, 0, -1, 0, 0, 1, 0, -0.5f, 0.75f};
    rig.feed(wanted, lengths, cells);
    for (int step = 0; step < 150; ++step) rig.training->run();
    EXPECT_LT(rig.loss(), 0.2);
    const std::vector<double> tally = rig.training->read(rig.tally);
    EXPECT_EQ(tally[ops::tally::right], 16);
    EXPECT_EQ(tally[ops::tally::whole], 3);

    rig.feed(std::vector<std::int32_t>(wanted.size(), -1), {0, 0, 0}, cells);
    for (int step = 0; step < shape.tokens + 2; ++step) rig.decoding->run();  // two more than any sequence needs
    EXPECT_EQ(rig.training->read(rig.sequences.ids), std::vector<double>(wanted.begin(), wanted.end()));
    EXPECT_EQ(rig.training->read(rig.sequences.lengths), std::vector<double>(lengths.begin(), lengths.end()));
}

INSTANTIATE_TEST_SUITE_P(All, TextDecoding,
                         ::testing::Values(Where{"cpu", ops::DeviceKind::cpu, tape::Precision::f32, 0, 0, 0, 0},
                                           Where{"cuda", ops::DeviceKind::cuda, tape::Precision::f32, 0, 0, 0, 0},
                                           Where{"cuda_bf16", ops::DeviceKind::cuda, tape::Precision::bf16, 0, 0, 0, 0},
                                           Where{"cuda_f16", ops::DeviceKind::cuda, tape::Precision::f16, 0, 0, 0, 0}),
                         [](const auto& given) { return std::string(given.param.name); });

}  // namespace
}  // namespace millrace::nn
