// Steps that do not store the gradients of large weights against the same steps with stored ones, on CUDA in 16 bits.

#include <fmt/format.h>

#include <cmath>

#include "base/philox.h"
#include "models/baselines/baseline.h"
#include "models/model_rig.h"
#include "tensor/element.h"

namespace millrace::models {
namespace {

using Arena = tape::Store::Arena;
constexpr std::int32_t kWideClasses = 10;

/// Each has four rounds of tiles for an H200's multiprocessors; the second layer's weights are too small.
struct WideShape {
    int members;
    std::int32_t features, width, rows;
    tape::Precision precision = tape::Precision::bf16;
};

class WideRun {
public:
    WideRun(const WideShape& shape, const optim::OptimizerSettings& settings, bool stores) : shape_(shape) {
        BaselineConfig config;
        config.widths = {shape.width, 16};
        config.task.input.width = shape.features;
        config.task.outputs = kWideClasses;
        model_ = std::make_unique<Baseline>(config);
        source_ = std::make_unique<testing::FedSource>(shape.features, kWideClasses, std::vector<std::int32_t>{shape.rows});
        rig.device = ops::DeviceKind::cuda;
        rig.precision = shape.precision;
        rig.deterministic = false;
        rig.members = shape.members;
        rig.settings = settings;
        if (stores) rig.rewrites_off = {"wgrad_update"};
        std::vector<std::uint64_t> seeds;
        for (int k = 0; k < shape.members; ++k) seeds.push_back(5 + static_cast<std::uint64_t>(k));
        const auto started = rig.start(*model_, *source_, seeds);
        EXPECT_TRUE(started.ok()) << (started.ok() ? "" : started.error().text());
        step = std::make_unique<tape::Program>(
            "step", *rig.store, train::build_training_step(*rig.store, *model_, *source_, rig.settings, {shape.rows, 1, 0}),
            *rig.arena);
        EXPECT_TRUE(rig.arena->allocate().ok());
        const auto prepared = step->prepare();
        EXPECT_TRUE(prepared.ok()) << (prepared.ok() ? "" : prepared.error().text());
        start_ = testing::trained_tensors(*rig.store, Arena::value);
    }
    [[nodiscard]] bool rewritten() const {
        return std::ranges::any_of(step->records(),
                                   [](const ops::Record& record) { return std::string(record.op->name) == "wgrad_update"; });
    }
    /// Inputs around `mean`; `bad` takes the place of one value.
    void train(std::uint32_t stream, float bad = 0, float mean = 0, float spread = 1) {
        std::vector<float> x(static_cast<std::size_t>(shape_.rows) * static_cast<std::size_t>(shape_.features));
        std::vector<std::int32_t> labels(static_cast<std::size_t>(shape_.rows));
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = mean + spread * base::random_normal(3, stream, 0, 1, i);
        for (std::size_t i = 0; i < labels.size(); ++i)
            labels[i] = static_cast<std::int32_t>(base::random_bits(3, stream, 0, 2, i) % kWideClasses);
        if (bad != 0) x[x.size() / 2] = bad;
        source_->feed(*rig.store, 0, x, labels);
        step->launch();
        rig.backend->synchronize();
        const auto checked = rig.backend->check();
        EXPECT_TRUE(checked.ok()) << (checked.ok() ? "" : checked.error().text());
    }
    testing::Tensors tensors(Arena arena) { return testing::trained_tensors(*rig.store, arena); }
    /// How far the weights are from where they began.
    testing::Tensors moved() {
        testing::Tensors now = tensors(Arena::value);
        for (auto& [name, values] : now)
            for (std::size_t i = 0; i < values.size(); ++i) values[i] -= start_.at(name)[i];
        return now;
    }
    /// Everything that a dropped step must not change, with names.
    std::vector<std::pair<std::string, std::vector<float>>> kept() {
        std::vector<std::pair<std::string, std::vector<float>>> all;
        for (const Arena arena : {Arena::value, Arena::first_moment, Arena::second_moment})
            for (auto& named : tensors(arena)) all.emplace_back(named);
        return all;
    }
    /// Of the first member.
    [[nodiscard]] bool is_matrix(const std::string& name) const {
        return std::ranges::any_of(rig.store->parameters(), [&](const tape::Parameter& p) {
            return !p.vector && std::ranges::find(p.names, name) != p.names.end();
        });
    }
    void check_copies() {
        const auto count = static_cast<std::size_t>(rig.store->copy16().count());
        std::vector<std::uint16_t> copies(count);
        std::vector<float> values(count);
        rig.store->read(rig.store->copy16(), copies.data(), 2 * count);
        rig.store->read(rig.store->parameter_arena(), values.data(), 4 * count);
        const auto rounded = shape_.precision == tape::Precision::f16 ? tensor::to_f16 : tensor::to_bf16;
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(copies[i], rounded(values[i])) << i;
    }

    testing::Rig rig;
    std::unique_ptr<tape::Program> step;

private:
    WideShape shape_;
    std::unique_ptr<Baseline> model_;
    std::unique_ptr<testing::FedSource> source_;
    testing::Tensors start_;
};

void expect_counts_of(WideRun& found, WideRun& wanted) {
    const auto states = found.rig.store->read_states(), others = wanted.rig.store->read_states();
    for (std::size_t k = 0; k < states.size(); ++k) {
        SCOPED_TRACE(k);
        EXPECT_EQ(states[k].step, others[k].step);
        EXPECT_EQ(states[k].applied, others[k].applied);
        EXPECT_EQ(states[k].skipped, others[k].skipped);
        EXPECT_EQ(states[k].nonfinite, others[k].nonfinite);
        EXPECT_EQ(states[k].position, others[k].position);
        const std::size_t row = states[k].step % found.rig.store->options().ring_capacity * states.size() + k;
        const ops::MetricsRow &report = found.rig.store->ring_rows()[row], &other = wanted.rig.store->ring_rows()[row];
        EXPECT_EQ(report.sequence, other.sequence);
        EXPECT_EQ(report.step, states[k].step);
        EXPECT_EQ(report.skipped, states[k].skipped);
        EXPECT_EQ(report.nonfinite, states[k].nonfinite);
    }
    const auto groups = found.rig.store->read_groups(), other_groups = wanted.rig.store->read_groups();
    for (std::size_t i = 0; i < groups.size(); ++i) {
        EXPECT_EQ(groups[i].applied, other_groups[i].applied);
        EXPECT_EQ(groups[i].last_applied, other_groups[i].last_applied);
    }
}

/// Whether the GPU can do without stored gradients; one with warpgroup products has to.
bool stores_none(WideRun& run) {
    const std::string gpu = run.rig.backend->description();
    const bool rewritten = run.rewritten();
    EXPECT_TRUE(rewritten || (gpu.find("H100") == std::string::npos && gpu.find("H200") == std::string::npos)) << gpu;
    return rewritten;
}

class WgradUpdate : public ::testing::TestWithParam<WideShape> {
protected:
    void SetUp() override {
        if (const std::string why = testing::missing(ops::DeviceKind::cuda); !why.empty()) GTEST_SKIP() << why;
    }
};

TEST_P(WgradUpdate, FollowsStoredGradients) {
    struct Way {
        const char* name;
        ops::OptimizerKind kind;
        double momentum, decay, clip;
    };
    for (const Way& way :
         {Way{"adam", ops::OptimizerKind::adam, 0, 0.1, 0}, Way{"adamw", ops::OptimizerKind::adamw, 0, 0.1, 0.05},
          Way{"momentum", ops::OptimizerKind::sgd, 0.9, 0.01, 0.05}, Way{"sgd", ops::OptimizerKind::sgd, 0, 0, 0}}) {
        SCOPED_TRACE(way.name);
        optim::OptimizerSettings settings;
        settings.kind = way.kind;
        // A clipped step of descent by 1e-2 would move weights of 1 by their last bits.
        settings.lr = way.kind == ops::OptimizerKind::sgd ? 0.1 : 1e-2;
        settings.momentum = way.momentum;
        settings.weight_decay = way.decay;
        settings.decay_biases = false;
        settings.clip_norm = way.clip;
        WideRun inside(GetParam(), settings, false), stored(GetParam(), settings, true);
        if (!stores_none(inside)) GTEST_SKIP() << "this GPU stores all gradients";
        EXPECT_FALSE(stored.rewritten());
        for (WideRun* run : {&inside, &stored}) run->train(0);
        const auto states = inside.rig.store->read_states(), others = stored.rig.store->read_states();
        for (std::size_t k = 0; k < states.size(); ++k) {
            EXPECT_NEAR(states[k].grad_norm, others[k].grad_norm, 1e-4 * others[k].grad_norm) << k;
            EXPECT_NEAR(states[k].clip_scale, others[k].clip_scale, 1e-4 * others[k].clip_scale) << k;
            const bool clips = states[k].clip_scale * states[k].loss_scale < 1;  // it takes the scale back, too
            EXPECT_EQ(clips, way.clip > 0) << k;
        }
        // Biases in front of a norm have a gradient of rounding alone, so small tensors are held to the scale of all.
        if (way.kind != ops::OptimizerKind::sgd) {
            EXPECT_EQ(testing::tensors_apart(inside.tensors(Arena::first_moment), stored.tensors(Arena::first_moment), 1e-3, 0.5),
                      "");
            EXPECT_EQ(
                testing::tensors_apart(inside.tensors(Arena::second_moment), stored.tensors(Arena::second_moment), 2e-3, 0.5),
                "");
        }
        // Adam's first step moves by the sign alone, so rounding shows in weights with a vanishing gradient.
        EXPECT_EQ(testing::tensors_apart(inside.moved(), stored.moved(), way.kind == ops::OptimizerKind::sgd ? 1e-3 : 0.02, 0.5),
                  "");
        expect_counts_of(inside, stored);
        inside.check_copies();
        for (WideRun* run : {&inside, &stored}) {
            ASSERT_TRUE(run->step->capture().ok());
            for (std::uint32_t stream = 1; stream < 4; ++stream) run->train(stream);
        }
        expect_counts_of(inside, stored);
        inside.check_copies();
        EXPECT_EQ(testing::tensors_apart(inside.moved(), stored.moved(), 0.2, 0.5), "");
    }
}

TEST_P(WgradUpdate, NormOfInputsThatVaryLittleAroundTheirMean) {
    // Behind a norm the gradients of a column sum up to zero, so that large terms of both signs make up a small sum of squares:
    // here about a hundredth. Tensor cores truncate when they add, 2^-24 of a sum in each of up to 256 rounds, so 100 * 256 *
    // 2^-24 of the squares and half of that of the norm, 0.8e-3. An H200 gives 0.3e-3.
    // Smaller ones are computed from differences, whose terms do not cancel. Below 1 two neighbours of bf16 are 0.004 apart, so
    // that few inputs differ at all when they vary by a thousandth.
    for (const float spread : {0.1f, 0.03f, 0.01f, 0.001f}) {
        SCOPED_TRACE(spread);
        WideRun inside(GetParam(), {}, false), stored(GetParam(), {}, true);
        if (!stores_none(inside)) GTEST_SKIP() << "this GPU stores all gradients";
        for (WideRun* run : {&inside, &stored}) run->train(0, 0, 1, spread);
        const auto states = inside.rig.store->read_states(), others = stored.rig.store->read_states();
        for (std::size_t k = 0; k < states.size(); ++k)
            EXPECT_NEAR(states[k].grad_norm, others[k].grad_norm, 0.8e-3 * others[k].grad_norm) << k;
    }
}

TEST_P(WgradUpdate, DroppedStepsAndFrozenGroupsKeepTheirBits) {
    optim::OptimizerSettings settings;
    settings.weight_decay = 0.1;
    settings.decay_biases = false;
    WideRun run(GetParam(), settings, false), other(GetParam(), settings, true);
    if (!stores_none(run)) GTEST_SKIP() << "this GPU stores all gradients";
    for (WideRun* each : {&run, &other}) each->train(0);
    const auto before = run.kept();
    for (WideRun* each : {&run, &other}) each->train(1, std::nanf(""));
    EXPECT_EQ(run.kept(), before);
    EXPECT_EQ(run.rig.store->read_states()[0].skipped, 1u);
    expect_counts_of(run, other);
    for (WideRun* each : {&run, &other}) {
        each->rig.store->set_trainable(0, tape::kWeights, false);
        each->train(2);
    }
    expect_counts_of(run, other);
    const auto frozen = run.rig.store->read_states()[0], same = other.rig.store->read_states()[0];
    EXPECT_NEAR(frozen.grad_norm, same.grad_norm, 1e-2 * same.grad_norm) << "the norm of vectors alone";
    const auto after = run.kept();
    for (std::size_t i = 0; i < after.size(); ++i) {
        if (run.is_matrix(after[i].first)) {
            EXPECT_EQ(after[i].second, before[i].second) << after[i].first;
        } else if (run.is_matrix(after[i].first.substr(0, after[i].first.find('@')))) {
            EXPECT_NE(after[i].second, before[i].second) << after[i].first;
        }
    }
    run.check_copies();
}

INSTANTIATE_TEST_SUITE_P(Shapes, WgradUpdate,
                         ::testing::Values(WideShape{1, 4096, 2112, 16}, WideShape{3, 1592, 1528, 37},
                                           WideShape{20, 784, 512, 128}, WideShape{36, 520, 328, 100},
                                           WideShape{64, 784, 256, 127}, WideShape{1, 4096, 2112, 16, tape::Precision::f16},
                                           WideShape{36, 520, 328, 100, tape::Precision::f16}),
                         [](const auto& tested) {
                             const WideShape& s = tested.param;
                             return fmt::format("k{}_{}x{}_b{}{}", s.members, s.width, s.features, s.rows,
                                                s.precision == tape::Precision::f16 ? "_f16" : "");
                         });

}  // namespace
}  // namespace millrace::models
