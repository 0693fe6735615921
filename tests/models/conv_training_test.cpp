// Networks of convolutions with several members: each is the run that it would be alone, with its own dropout, loss weights and
// rates.

#include <gtest/gtest.h>

#include <set>

#include "base/philox.h"
#include "data/recordings/resident_recordings.h"
#include "data/resident_samples.h"
#include "models/cnn/cnn.h"
#include "models/leak_cnn/leak_cnn.h"
#include "models/model_rig.h"
#include "models/tiny_images.h"
#include "tensor/dtype.h"

namespace millrace::models {
namespace {

using testing::Rig;

struct ConvWhere {
    const char* name;
    ops::DeviceKind device;
    tape::Precision precision;
};

struct Members {
    std::vector<std::uint64_t> seeds;
    std::vector<float> dropout_scales;
    optim::OptimizerSettings settings;
};

/// What three steps leave of each member: losses, then parameters.
std::vector<std::vector<double>> trained(const ConvWhere& where, Model& model, data::BatchSource& source,
                                         const Members& members) {
    Rig rig;
    rig.device = where.device;
    rig.precision = where.precision;
    rig.members = static_cast<int>(members.seeds.size());
    rig.settings = members.settings;
    const auto started = rig.start(model, source, members.seeds);
    EXPECT_TRUE(started.ok()) << started.error().text();
    if (!started.ok()) return {};
    auto states = rig.store->read_states();
    for (std::size_t k = 0; k < states.size(); ++k) states[k].dropout_scale = members.dropout_scales[k];
    rig.store->write_states(states);
    tape::Program step("step", *rig.store, train::build_training_step(*rig.store, model, source, rig.settings, {7, 1, 0}),
                       *rig.arena);
    EXPECT_TRUE(rig.arena->allocate().ok());
    const auto prepared = step.prepare();
    EXPECT_TRUE(prepared.ok()) << prepared.error().text();
    if (!prepared.ok()) return {};
    std::vector<std::vector<double>> left(members.seeds.size());
    for (int s = 0; s < 3; ++s) {
        step.run();
        states = rig.store->read_states();
        for (std::size_t k = 0; k < states.size(); ++k) left[k].push_back(states[k].loss + states[k].penalty);
    }
    for (std::size_t k = 0; k < left.size(); ++k)
        for (std::size_t id = 0; id < rig.store->parameters().size(); ++id) {
            const auto values = rig.store->read_parameter(static_cast<tape::ParameterId>(id), 0, static_cast<int>(k));
            left[k].insert(left[k].end(), values.begin(), values.end());
        }
    return left;
}

std::shared_ptr<const data::RecordingSet> tones(std::int32_t bands = 16) {
    auto set = std::make_shared<data::RecordingSet>();
    set->windows = 4;
    set->width = bands;
    set->classes = {{"NOLEAK", "LEAK"}, {32, 16}, 1, {2, 2}};
    data::Recordings& train = set->parts[data::index_of(data::Part::train)];
    train.count = 12;
    for (std::int32_t r = 0; r < train.count; ++r) {
        train.labels.push_back(r % 3 == 0 ? 1 : 0);
        for (int i = 0; i < 4 * bands; ++i) {
            const float noise = base::random_normal(5, 0, 0, static_cast<std::uint32_t>(r), static_cast<std::uint64_t>(i));
            train.features.push_back(tensor::to_f16(noise + (r % 3 == 0 && i % bands < 4 ? 2.0f : 0.0f)));
        }
    }
    set->scaling = std::make_shared<const data::Scaling>(data::Scaling{
        std::vector<float>(static_cast<std::size_t>(bands), 0.25f), std::vector<float>(static_cast<std::size_t>(bands), 1.5f)});
    return set;
}

class ConvTraining : public ::testing::TestWithParam<ConvWhere> {
protected:
    void SetUp() override {
        if (const std::string why = testing::missing(GetParam().device); !why.empty()) GTEST_SKIP() << why;
        all_.seeds = {3, 1, 4};
        all_.dropout_scales = {1, 0.5f, 2};
        all_.settings.kind = ops::OptimizerKind::adamw;
        all_.settings.lr = {1e-2, 3e-3, 2e-2};
    }
    [[nodiscard]] Members alone(std::size_t k) const {
        Members one{{all_.seeds[k]}, {all_.dropout_scales[k]}, all_.settings};
        one.settings.lr = all_.settings.lr.of(k);
        return one;
    }
    Members all_;
};

TEST_P(ConvTraining, DetectorsTrainedTogetherEqualThoseTrainedAlone) {
    for (const LossKind loss : {LossKind::weighted, LossKind::focal}) {
        LeakCnnConfig config;
        config.bands = 16;
        config.channels = {4, 5, 8};
        config.hidden = 9;
        config.loss = loss;
        config.classes = tones()->classes;
        config.boost = {1, 2.5, 0.5};
        config.gamma = {2, 1, 0.5};
        config.alpha = {0.75, 0.5, 0.25};
        config.auxiliary = {0.5, 0.1, 0.9};
        data::ResidentRecordings source(tones(), {1, 3});
        LeakCnn model(config);
        const auto together = trained(GetParam(), model, source, all_);
        ASSERT_EQ(together.size(), 3u);
        for (std::size_t k = 0; k < 3; ++k) {
            LeakCnnConfig own = config;
            own.boost = {config.boost[k]};
            own.gamma = {config.gamma[k]};
            own.alpha = {config.alpha[k]};
            own.auxiliary = {config.auxiliary[k]};
            data::ResidentRecordings again(tones(), {1, 3});
            LeakCnn one(own);
            EXPECT_EQ(trained(GetParam(), one, again, alone(k))[0], together[k]) << "member " << k;
        }
    }
}

TEST_P(ConvTraining, ImageNetworksTrainedTogetherEqualThoseTrainedAlone) {
    const auto images = testing::tiny_set(100, 20);
    CnnConfig config;
    config.task = task_of({}, data::ResidentSamples(images).fields()).value();
    config.channels = {3, 6};
    config.hidden = 11;
    data::ResidentSamples source(images);
    Cnn model(config);
    const auto together = trained(GetParam(), model, source, all_);
    ASSERT_EQ(together.size(), 3u);
    for (std::size_t k = 0; k < 3; ++k) {
        data::ResidentSamples again(images);
        Cnn one(config);
        EXPECT_EQ(trained(GetParam(), one, again, alone(k))[0], together[k]) << "member " << k;
    }
    EXPECT_NE(together[0], together[1]);
}

/// Gradients of a step of a detector whose channels have kernels of their own.
testing::Tensors gradients_of_lines(float dropout, const std::vector<std::string>& off, std::set<std::string>& taken) {
    LeakCnnConfig config;
    config.dropout = dropout;
    config.classes = tones()->classes;
    data::ResidentRecordings source(tones(config.bands));
    LeakCnn model(config);
    Rig rig;
    rig.device = ops::DeviceKind::cuda;
    rig.precision = tape::Precision::bf16;
    rig.rewrites_off = off;
    const auto started = rig.start(model, source, {3});
    EXPECT_TRUE(started.ok()) << (started.ok() ? "" : started.error().text());
    tape::Program step("step", *rig.store, train::build_training_step(*rig.store, model, source, rig.settings, {7, 1, 0}),
                       *rig.arena);
    EXPECT_TRUE(rig.arena->allocate().ok() && step.prepare().ok());
    step.run();
    for (const ops::Record& record : step.records()) taken.insert(record.op->name);
    return testing::first_gradients(*rig.store);
}

/// Lines round before they drop and once more behind it, other kernels round once. Such a difference, 2^-9 of most elements, puts
/// about one of the 7 x 256 values in front of the hidden layer's relu on the other side of its kink, and each of them is 1 / 900
/// of the squared gradient, in rows that count twice 1 / 220: five make 0.15. Without dropout both ways round alike.
TEST(ConvLines, OnAgainstOff) {
    if (const std::string why = testing::missing(ops::DeviceKind::cuda); !why.empty()) GTEST_SKIP() << why;
    for (const float dropout : {0.0f, 0.25f}) {
        SCOPED_TRACE(dropout);
        std::set<std::string> taken;
        const testing::Tensors on = gradients_of_lines(dropout, {}, taken);
        EXPECT_TRUE(taken.contains("line_forward") && taken.contains("line_backward"));
        EXPECT_FALSE(taken.contains("conv_forward") || taken.contains("conv_backward"));
        for (const std::string name : {"line_forward", "line_backward"}) {
            std::set<std::string> without;
            const double tolerance = dropout > 0 && name == "line_forward" ? 0.15 : 0.05;
            EXPECT_EQ(testing::tensors_apart(on, gradients_of_lines(dropout, {name}, without), tolerance, 0.5), "") << name;
            EXPECT_FALSE(without.contains(name));
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Places, ConvTraining,
                         ::testing::Values(ConvWhere{"ref", ops::DeviceKind::ref, tape::Precision::f64},
                                           ConvWhere{"cpu", ops::DeviceKind::cpu, tape::Precision::f32},
                                           ConvWhere{"cuda", ops::DeviceKind::cuda, tape::Precision::f32},
                                           ConvWhere{"cuda_bf16", ops::DeviceKind::cuda, tape::Precision::bf16},
                                           ConvWhere{"cuda_f16", ops::DeviceKind::cuda, tape::Precision::f16}),
                         [](const auto& where) { return where.param.name; });

}  // namespace
}  // namespace millrace::models
