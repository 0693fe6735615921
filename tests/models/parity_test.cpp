// Trains the golden models ten steps and compares with what PyTorch gave (tests/goldens/README.md).

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "models/baselines/baseline.h"
#include "models/collective/collective.h"
#include "models/golden.h"
#include "models/leak_cnn/leak_cnn.h"
#include "models/model_rig.h"
#include "ops/optimizer/optimizer.h"

namespace millrace::models {
namespace {

using nlohmann::json;
using testing::FedSource;
using testing::Golden;
using testing::Rig;
using testing::slice;
using testing::WithKeptLogits;

struct Tolerances {
    double logits, loss, gradients, weights;
};

struct ParityWhere {
    const char* name;
    ops::DeviceKind device;
    tape::Precision precision;
    Tolerances within;
};

UnitShape unit_shape(const json& widths) {
    UnitShape shape{widths.get<std::vector<std::int32_t>>(), 0};
    shape.output = shape.hidden.back();
    shape.hidden.pop_back();
    return shape;
}

std::unique_ptr<Model> model_of(const Golden& golden) {
    const json given = golden.meta("model");
    if (given.contains("baseline")) {
        BaselineConfig config;
        config.widths = given["baseline"].get<std::vector<std::int32_t>>();
        config.residual = given["residual"];
        config.task.input.width = given["inputs"];
        config.task.outputs = given["classes"];
        config.dropout = 0;
        return std::make_unique<Baseline>(config);
    }
    if (given.contains("channels")) {
        LeakCnnConfig config;
        config.channels = given["channels"].get<std::vector<std::int32_t>>();
        config.hidden = given["hidden"];
        config.bands = given["inputs"];
        config.classes.names.resize(given["classes"].get<std::size_t>());
        config.classes.positive = given["positive"];
        config.loss = given["loss"] == "focal" ? LossKind::focal : LossKind::weighted;
        config.dropout = 0;
        return std::make_unique<LeakCnn>(config);
    }
    CollectiveConfig config;
    config.revision = given["revision"] == "r2" ? Revision::r2 : Revision::r1;
    config.task.input.width = given["inputs"];
    config.task.outputs = given["classes"];
    config.experts = given["experts"];
    config.analysts = given["analysts"];
    config.expert = unit_shape(given["expert"]);
    config.analyst = unit_shape(given["analyst"]);
    config.code = given.value("code", 0);
    config.unit_dropout = config.encoder_dropout = config.head_dropout = 0;
    if (const json terms = golden.meta("diversity"); !terms.is_null()) {
        config.diversity_experts = config.diversity_analysts = true;
        config.diversity_weight = terms["weight"];
        config.diversity_temperature = terms["temperature"];
    }
    return std::make_unique<Collective>(config);
}

optim::OptimizerSettings settings_of(const Golden& golden) {
    const json given = golden.meta("optimizer");
    optim::OptimizerSettings settings;
    const std::string kind = given["kind"];
    settings.kind = kind == "sgd"     ? ops::OptimizerKind::sgd
                    : kind == "adamw" ? ops::OptimizerKind::adamw
                                      : ops::OptimizerKind::adam;
    settings.lr = {given["lr"].get<double>()};
    settings.weight_decay = {given["weight_decay"].get<double>()};
    settings.momentum = given.value("momentum", 0.9);
    settings.clip_norm = golden.meta("clip").get<double>();
    settings.accumulation = golden.meta("accumulate").get<std::int32_t>();
    return settings;
}

class Parity : public ::testing::TestWithParam<std::tuple<ParityWhere, std::string>> {
protected:
    void SetUp() override {
        if (const std::string why = testing::missing(where().device); !why.empty()) GTEST_SKIP() << why;
    }
    [[nodiscard]] const ParityWhere& where() const { return std::get<0>(GetParam()); }

    /// Calls f(id, group, name) for every tensor of the model.
    template <class F>
    void for_each_tensor(F f) {
        const auto& parameters = rig_.store->parameters();
        for (std::size_t id = 0; id < parameters.size(); ++id)
            for (int group = 0; group < parameters[id].matrices; ++group)
                f(static_cast<tape::ParameterId>(id), group, parameters[id].names[static_cast<std::size_t>(group)]);
    }
    void load(const std::string& prefix) {
        for_each_tensor([&](tape::ParameterId id, int group, const std::string& name) {
            rig_.store->write_parameter(id, group, 0, golden_.floats(prefix + "." + name));
        });
        rig_.store->refresh_copies();
    }
    void compare_weights(const std::string& prefix, const std::set<std::string>& exempt) {
        for_each_tensor([&](tape::ParameterId id, int group, const std::string& name) {
            if (exempt.contains(name)) return;
            const double distance =
                testing::relative_distance(rig_.store->read_parameter(id, group, 0), golden_.floats(prefix + "." + name));
            EXPECT_LE(distance, where().within.weights) << prefix << "." << name;
        });
    }
    void compare_gradients(const std::set<std::string>& exempt) {
        testing::Tensors all_found, all_wanted;
        for_each_tensor([&](tape::ParameterId id, int group, const std::string& name) {
            if (exempt.contains(name) || rig_.store->parameters()[static_cast<std::size_t>(id)].fixed) return;
            const auto found = rig_.store->read_parameter(id, group, 0, tape::Store::Arena::gradient);
            const std::vector<float> wanted = golden_.floats("grad." + name);
            all_found[name] = found;
            all_wanted[name] = wanted;
        });
        // In bf16 a ReLU flips here and there, which is much for a layer of four features.
        const double factor = where().precision == tape::Precision::bf16 ? 2.5 : 1;
        EXPECT_EQ(testing::tensors_apart(all_found, all_wanted, factor * where().within.gradients), "");
    }
    void compare_logits(const std::vector<double>& found, const std::string& name) {
        const std::vector<float> wanted = golden_.floats(name);
        ASSERT_EQ(found.size(), wanted.size());
        double worst = 0;
        for (std::size_t i = 0; i < wanted.size(); ++i) worst = std::max(worst, std::abs(found[i] - wanted[i]));
        EXPECT_LE(worst, where().within.logits) << name;
    }

    /// The micro-batches of step `s`, into the feeds of the same number.
    void feed_step(const FedSource& source, std::size_t s, std::size_t micros) {
        const auto rows = static_cast<std::size_t>(golden_.shape("x")[1]),
                   features = static_cast<std::size_t>(golden_.shape("x")[2]);
        for (std::size_t m = 0; m < micros; ++m)
            source.feed(*rig_.store, m, slice(golden_.floats("x"), s * micros + m, rows * features),
                        slice(golden_.integers("labels"), s * micros + m, rows));
    }

    Golden golden_{std::get<1>(GetParam())};
    Rig rig_;
};

TEST_P(Parity, TenStepsGiveTheReferencesNumbers) {
    rig_.device = where().device;
    rig_.precision = where().precision;
    rig_.settings = settings_of(golden_);
    const json shape = golden_.meta("model");
    const std::int32_t features = shape["inputs"], classes = shape["classes"], micros = rig_.settings.accumulation;
    const auto rows = static_cast<std::int32_t>(golden_.shape("x")[1]);
    const bool has_tail = golden_.has("tail.x");
    const std::int32_t tail = has_tail ? static_cast<std::int32_t>(golden_.shape("tail.x")[0]) : 0;
    std::vector<std::int32_t> feeds(static_cast<std::size_t>(micros), rows);
    const std::size_t tail_feed = feeds.size(), eval_feed = tail_feed + 1;
    feeds.push_back(tail > 0 ? tail : 3);
    feeds.push_back(7);
    FedSource source(features, classes, feeds);
    WithKeptLogits model(model_of(golden_));
    auto started = rig_.start(model, source, {1});
    ASSERT_TRUE(started.ok()) << started.error().text();
    EXPECT_EQ(rig_.store->trainable_count(), golden_.meta("parameters").get<std::int64_t>());

    // Two micro-batches have different data, so each has its own section here; repetition is tested elsewhere.
    const train::StepRows step_rows = micros == 1 ? train::StepRows{rows, 1, 0} : train::StepRows{rows, 1, rows};
    tape::Program step("step", *rig_.store, train::build_training_step(*rig_.store, model, source, rig_.settings, step_rows),
                       *rig_.arena);
    tape::Program last("last", *rig_.store,
                       train::build_training_step(*rig_.store, model, source, rig_.settings, {feeds[tail_feed], 1, 0}),
                       *rig_.arena);
    const std::size_t eval_build = model.kept.size();
    tape::Program eval("eval", *rig_.store, train::build_evaluation(*rig_.store, model, source, data::Part::test, 7),
                       *rig_.arena);
    ASSERT_TRUE(rig_.arena->allocate().ok());
    for (tape::Program* program : {&step, &last, &eval}) {
        auto prepared = program->prepare();
        ASSERT_TRUE(prepared.ok()) << prepared.error().text();
    }

    load("init");
    const std::vector<float> losses = golden_.floats("loss");
    const std::set<std::string> zero = golden_.names("zero_gradient");
    std::set<std::string> drifting = golden_.names("drifting");
    drifting.insert(zero.begin(), zero.end());
    for (std::size_t s = 0; s < losses.size(); ++s) {
        const bool is_tail = has_tail && s + 1 == losses.size();
        if (is_tail)
            source.feed(*rig_.store, tail_feed, golden_.floats("tail.x"), golden_.integers("tail.labels"));
        else
            feed_step(source, s, static_cast<std::size_t>(micros));
        (is_tail ? last : step).run();
        const ops::MemberState state = rig_.store->read_states()[0];
        EXPECT_NEAR(state.loss / state.rows + state.penalty, losses[s], where().within.loss) << "step " << s;
        EXPECT_EQ(state.applied, s + 1);
        if (golden_.has("grad_norm")) {
            const float norm = golden_.floats("grad_norm")[s];
            EXPECT_NEAR(state.grad_norm, norm, where().within.gradients * 10 * norm) << "step " << s;
        }
        if (s == 0) {
            if (micros == 1) compare_logits(step.read(model.kept[0]), "logits");
            compare_gradients(zero);
            compare_weights("after1", zero);
        }
    }
    compare_weights("after10", drifting);

    load("after10");
    source.feed(*rig_.store, eval_feed, golden_.floats("eval.x"), std::vector<std::int32_t>(7, 0));
    eval.run();
    compare_logits(eval.read(model.kept[eval_build]), "eval.logits");
}

const ParityWhere kParityRef{"ref", ops::DeviceKind::ref, tape::Precision::f64, {1e-5, 1e-5, 1e-4, 1e-3}};
const ParityWhere kParityCpu{"cpu", ops::DeviceKind::cpu, tape::Precision::f32, {1e-5, 1e-5, 1e-4, 1e-3}};
const ParityWhere kParityCuda{"cuda", ops::DeviceKind::cuda, tape::Precision::f32, {1e-4, 1e-4, 1e-3, 1e-3}};
const ParityWhere kParityCudaBf16{"cuda_bf16", ops::DeviceKind::cuda, tape::Precision::bf16, {0.2, 0.05, 0.2, 0.05}};

INSTANTIATE_TEST_SUITE_P(
    Goldens, Parity,
    ::testing::Combine(::testing::Values(kParityRef, kParityCpu, kParityCuda, kParityCudaBf16),
                       ::testing::Values("collective_r1_adam", "collective_r2_adam", "collective_r1_batch5",
                                         "collective_r1_tail5", "collective_r1_adamw", "collective_r1_adam_decay",
                                         "collective_r1_sgd", "collective_r1_clip", "collective_r1_accumulate2",
                                         "collective_r2_diversity", "shallow_adam", "resnet_adam", "leak_cnn_weighted",
                                         "leak_cnn_focal")),
    [](const auto& param) { return std::string(std::get<0>(param.param).name) + "_" + std::get<1>(param.param); });

}  // namespace
}  // namespace millrace::models
