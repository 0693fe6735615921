// Language models: parity with PyTorch over ten steps (tests/goldens/README.md), causality, parameter counts, chosen and frozen
// nodes, members.

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "models/golden.h"
#include "models/language_rig.h"

namespace millrace::models {
namespace {

using testing::Golden;
using testing::LanguageRig;
using testing::relative_distance;
using testing::slice;

struct Device {
    const char* name;
    ops::DeviceKind device;
    tape::Precision precision;
    double loss, gradients, weights;
};
constexpr Device kOnRef{"ref", ops::DeviceKind::ref, tape::Precision::f64, 2e-6, 2e-6, 2e-6};
constexpr Device kOnCpu{"cpu", ops::DeviceKind::cpu, tape::Precision::f32, 2e-5, 2e-4, 1e-3};
constexpr Device kOnCuda{"cuda", ops::DeviceKind::cuda, tape::Precision::f32, 2e-5, 2e-4, 1e-3};

std::unique_ptr<LanguageModel> model_of(const nlohmann::json& given) {
    LanguageConfig language{given["vocabulary"], given["length"], given["width"], given["heads"], given["inner"]};
    const auto branching = given["branching"].get<std::vector<std::int64_t>>();
    if (branching.empty()) return std::make_unique<Transformer>(language, given["depth"].get<std::int32_t>());
    K1Config config;
    config.language = language;
    config.tree = Tree::regular(branching);
    config.topology = given["topology"] == "level" ? Topology::level : Topology::tree;
    config.count = given["k"];
    config.zero_grad = true;
    return std::make_unique<K1>(config);
}

std::vector<float> without_key_biases(std::vector<float> values, const std::string& name, std::int32_t width) {
    if (name.ends_with("in_proj.bias")) values.erase(values.begin() + width, values.begin() + 2 * width);
    return values;
}

class LanguageParity : public ::testing::TestWithParam<Device> {
protected:
    void SetUp() override {
        if (const std::string why = testing::missing(GetParam().device); !why.empty()) GTEST_SKIP() << why;
    }
    template <class Visit>
    void for_each_tensor(Visit visit) {
        const auto& parameters = rig.store->parameters();
        for (std::size_t id = 0; id < parameters.size(); ++id)
            for (std::size_t g = 0; g < parameters[id].names.size() && !parameters[id].fixed; ++g)
                visit(static_cast<tape::ParameterId>(id), static_cast<int>(g), parameters[id].names[g]);
    }
    void expect(const Golden& golden, const std::string& prefix, tape::Store::Arena arena, double tolerance) {
        const std::int32_t width = rig.model->language().width;
        for_each_tensor([&](tape::ParameterId id, int g, const std::string& name) {
            ASSERT_TRUE(golden.has(prefix + name)) << prefix << name;
            EXPECT_LT(relative_distance(without_key_biases(rig.store->read_parameter(id, g, 0, arena), name, width),
                                        without_key_biases(golden.floats(prefix + name), name, width)),
                      tolerance)
                << prefix << name;
        });
    }
    void run(const std::string& name) {
        const Golden golden(name);
        const Device& where = GetParam();
        rig.device = where.device;
        rig.precision = where.precision;
        const auto given = golden.meta("optimizer");
        rig.settings.kind = ops::OptimizerKind::adamw;
        rig.settings.lr = {given["lr"].get<double>()};
        rig.settings.weight_decay = {given["weight_decay"].get<double>()};
        rig.settings.clip_norm = {golden.meta("clip").get<double>()};
        const auto batch = golden.meta("batch").get<std::int32_t>();
        const auto begun = rig.begin(model_of(golden.meta("model")), batch, {3});
        ASSERT_TRUE(begun.ok()) << begun.error().text();
        EXPECT_EQ(rig.store->trainable_count(), golden.meta("parameters").get<std::int64_t>());
        for_each_tensor([&](tape::ParameterId id, int g, const std::string& tensor) {
            rig.store->write_parameter(id, g, 0, golden.floats("init." + tensor));
        });
        rig.store->refresh_copies();
        const auto count = static_cast<std::size_t>(batch), length = static_cast<std::size_t>(rig.model->language().length);
        for (std::size_t step = 0; step < 10; ++step) {
            rig.windows->feed(*rig.store, slice(golden.integers("windows"), step, count * (length + 1)),
                              slice(golden.integers("lengths"), step, count));
            rig.training->run();
            const ops::MemberState state = rig.store->read_states()[0];
            EXPECT_NEAR(state.loss / state.rows, double{golden.floats("loss")[step]}, where.loss) << "step " << step;
            if (golden.has("chosen")) expect_choice(golden, step);
            if (step == 0) expect(golden, "grad.", tape::Store::Arena::gradient, where.gradients);
            if (step == 0) expect(golden, "after1.", tape::Store::Arena::value, where.weights);
        }
        expect(golden, "after10.", tape::Store::Arena::value, where.weights);
    }
    void expect_choice(const Golden& golden, std::size_t step) {
        const std::vector<ops::GroupState> table = rig.store->read_groups();
        const auto nodes = static_cast<std::size_t>(golden.shape("chosen")[1]);
        const auto wanted = slice(golden.integers("chosen"), step, nodes);
        const auto norms = slice(golden.floats("norms"), step, nodes);
        for (std::size_t g = 0; g < rig.store->groups().size(); ++g) {
            const std::string& group = rig.store->groups()[g].name;
            if (!group.starts_with("node.")) continue;
            const auto node = static_cast<std::size_t>(std::stoi(group.substr(5)));
            EXPECT_EQ(table[g].gradient_gain, wanted[node]) << "step " << step << ", node " << node;
            EXPECT_NEAR(table[g].norm, norms[node], 1e-3 * norms[node]) << "step " << step << ", node " << node;
        }
    }
    LanguageRig rig;
};

TEST_P(LanguageParity, LayersInSeries) { run("language_series"); }
TEST_P(LanguageParity, Tree) { run("language_tree"); }
TEST_P(LanguageParity, Levels) { run("language_level"); }
INSTANTIATE_TEST_SUITE_P(Everywhere, LanguageParity, ::testing::Values(kOnRef, kOnCpu, kOnCuda),
                         [](const auto& one) { return std::string(one.param.name); });

std::unique_ptr<K1> tree_of(const std::vector<std::int64_t>& branching, ops::ChoosePolicy policy, std::int32_t count = 2,
                            float dropout = 0) {
    K1Config config;
    config.language = {23, 7, 16, 2, 24, dropout};
    config.tree = Tree::regular(branching);
    config.policy = {policy};
    config.count = count;
    return std::make_unique<K1>(config);
}

TEST(LanguageCounts, AreThoseOfTheReference) {
    const LanguageConfig usual;
    K1Config small, large;
    large.tree = Tree::regular({4, 3, 2});
    EXPECT_EQ(count_parameters(std::make_unique<Transformer>(usual, 4)).value(), 3108368);
    EXPECT_EQ(count_parameters(std::make_unique<K1>(small)).value(), 4300688);
    EXPECT_EQ(count_parameters(std::make_unique<K1>(large)).value(), 8010128);
}

TEST(TreeShape, CountsDepthFirstAndSharesEvenly) {
    const Tree tree = Tree::regular({2, 3});
    EXPECT_EQ(tree.parent, (std::vector<std::int32_t>{-1, 0, 1, 1, 1, 0, 5, 5, 5}));
    EXPECT_EQ(tree.levels(), (std::vector<std::vector<std::int32_t>>{{0}, {1, 5}, {2, 3, 4, 6, 7, 8}}));
    Tree uneven;
    uneven.parent = {-1, 0, 0, 1, 1};  // node 2 is a leaf of the first level
    const std::vector<double> shares = uneven.shares();
    EXPECT_EQ(shares, (std::vector<double>{0, 0, 0.5, 0.25, 0.25}));
    uneven.weight = {1, 3, 1, 0.5, 1.5};
    EXPECT_EQ(uneven.shares(), (std::vector<double>{0, 0, 0.25, 0.1875, 0.5625}));
}

/// A token at position p must not change what is predicted before it.
TEST(Causality, NoPositionSeesALaterToken) {
    for (const bool tree : {false, true}) {
        LanguageRig rig;
        rig.device = ops::DeviceKind::cpu;
        rig.precision = tape::Precision::f32;
        std::unique_ptr<LanguageModel> model;
        if (tree)
            model = tree_of({2, 2}, ops::ChoosePolicy::dense);
        else
            model = std::make_unique<Transformer>(LanguageConfig{23, 7, 16, 2, 24}, 2);
        rig.model = std::move(model);
        rig.windows = std::make_unique<testing::FedWindows>(1, 7, 23);
        ASSERT_TRUE(rig.start(*rig.model, *rig.windows, {5}).ok());
        tape::BuildOptions options;
        options.training = false;
        tape::Builder builder(*rig.store, options);
        const auto read = rig.windows->gather(builder, data::Part::test, 1, std::vector<data::Wanted>{{"tokens"}, {"length"}});
        // The vocabulary works on every position by itself.
        const tensor::View before_head = rig.model->hidden(builder, nn::Sequences{read[0].columns(0, 7), read[1]}).view;
        builder.keep(before_head);
        builder.close_section();
        tape::Program program("evaluation", *rig.store, std::move(builder), *rig.arena);
        ASSERT_TRUE(rig.arena->allocate().ok() && program.prepare().ok());
        const auto predicted = [&](const std::vector<std::int32_t>& tokens) {
            rig.windows->feed(*rig.store, tokens, {7});
            program.run();
            return program.read(before_head);
        };
        const std::vector<std::int32_t> tokens{3, 1, 4, 1, 5, 9, 2, 6};
        const auto before = predicted(tokens);
        for (std::size_t p = 1; p < 7; ++p) {
            std::vector<std::int32_t> other = tokens;
            other[p] = (other[p] + 11) % 23;
            const auto after = predicted(other);
            for (std::size_t i = 0; i < p * 16; ++i) ASSERT_EQ(before[i], after[i]) << "position " << i / 16 << " saw " << p;
            EXPECT_NE(slice(before, p, 16), slice(after, p, 16)) << "position " << p << " does not see itself";
        }
    }
}

class Chosen : public ::testing::TestWithParam<ops::DeviceKind> {
protected:
    void SetUp() override {
        if (const std::string why = testing::missing(GetParam()); !why.empty()) GTEST_SKIP() << why;
    }
};

/// Every tensor of a node that a step did not choose keeps its bits, every chosen one moves; counts follow.
TEST_P(Chosen, OnlyChosenNodesMove) {
    using ops::ChoosePolicy;
    for (const ChoosePolicy policy : {ChoosePolicy::topk, ChoosePolicy::random_k, ChoosePolicy::dense, ChoosePolicy::path,
                                      ChoosePolicy::path_cooldown, ChoosePolicy::path_balance, ChoosePolicy::path_dynamic}) {
        LanguageRig rig;
        rig.device = GetParam();
        rig.precision = tape::Precision::f32;
        rig.settings.kind = ops::OptimizerKind::adamw;
        rig.settings.weight_decay = {0.01};
        ASSERT_TRUE(rig.begin(tree_of({2, 2}, policy, 3), 4, {5}).ok());
        std::vector<std::uint32_t> updates(7);
        for (std::uint32_t step = 0; step < 6; ++step) {
            const auto before = testing::trained_tensors(*rig.store, tape::Store::Arena::value);
            rig.feed_random(step);
            rig.training->run();
            const auto after = testing::trained_tensors(*rig.store, tape::Store::Arena::value);
            const std::vector<ops::GroupState> table = rig.store->read_groups();
            std::size_t chosen = 0;
            for (std::size_t g = 0; g < table.size(); ++g) {
                const std::string& group = rig.store->groups()[g].name;
                if (!group.starts_with("node.")) continue;
                const auto node = static_cast<std::size_t>(std::stoi(group.substr(5)));
                const std::string prefix = fmt::format("nodes.{}.", node);
                chosen += table[g].gain != 0 ? 1 : 0;
                updates[node] += table[g].gain != 0 ? 1 : 0;
                EXPECT_EQ(table[g].applied, updates[node]);
                for (const auto& [name, values] : before)
                    if (name.starts_with(prefix)) {
                        if (table[g].gain != 0)
                            EXPECT_NE(after.at(name), values) << name;
                        else
                            EXPECT_EQ(after.at(name), values) << name;
                    }
            }
            EXPECT_EQ(chosen, policy == ChoosePolicy::dense ? 7u : 3u) << "policy " << static_cast<int>(policy);
            EXPECT_NE(after.at("head.weight"), before.at("head.weight"));
        }
    }
}
/// Weights of a level's nodes are one tensor of several groups, each with its own flag.
TEST_P(Chosen, NormLeavesOutTheGradientsOfNodesThatDoNotTrain) {
    for (const tape::Precision precision : {tape::Precision::f32, tape::Precision::bf16}) {
        if (precision == tape::Precision::bf16 && GetParam() != ops::DeviceKind::cuda) continue;
        LanguageRig rig;
        rig.device = GetParam();
        rig.precision = precision;
        rig.deterministic = false;  // kernels then leave sums of squares for the norm
        rig.members = 3;
        ASSERT_TRUE(rig.begin(tree_of({3, 2}, ops::ChoosePolicy::dense, 3), 4, {5, 6, 7}).ok());
        rig.store->set_trainable(0, K1::group_of(1), false);  // the first of its level, the second of three
        rig.store->set_trainable(1, K1::group_of(4), false);
        rig.feed_random(0);
        rig.training->run();
        EXPECT_EQ(testing::norms_apart(*rig.store), "") << "a frozen node has no moments and no part in the norm";
        const auto moments = testing::trained_tensors(*rig.store, tape::Store::Arena::first_moment);
        EXPECT_EQ(moments.at("nodes.1.linear1.weight"), std::vector<float>(moments.at("nodes.1.linear1.weight").size()));
        EXPECT_NE(moments.at("nodes.4.linear1.weight"), std::vector<float>(moments.at("nodes.4.linear1.weight").size()));
    }
}
INSTANTIATE_TEST_SUITE_P(Everywhere, Chosen, ::testing::Values(ops::DeviceKind::cpu, ops::DeviceKind::cuda),
                         [](const auto& one) { return std::string(ops::name_of(one.param)); });

/// Three members, each with its own rate, decay, clip and dropout, against three runs.
TEST(LanguageMembers, EqualSeparateRuns) {
    const auto make = [](bool tree) -> std::unique_ptr<LanguageModel> {
        if (tree) return tree_of({2, 2}, ops::ChoosePolicy::topk, 2, 0.2f);
        return std::make_unique<Transformer>(LanguageConfig{23, 7, 16, 2, 24, 0.2f}, 2);
    };
    const std::vector<double> rates{1e-3, 3e-3, 1e-2}, decays{0, 0.01, 0.1}, clips{0.5, 1, 2};
    const std::vector<std::uint64_t> seeds{5, 6, 7};
    for (const bool tree : {false, true}) {
        const auto run = [&](std::vector<std::size_t> members) {
            auto rig = std::make_unique<LanguageRig>();
            rig->device = ops::DeviceKind::cpu;
            rig->precision = tape::Precision::f32;
            rig->members = static_cast<int>(members.size());
            rig->settings.kind = ops::OptimizerKind::adamw;
            std::vector<double> lr, decay, clip;
            std::vector<std::uint64_t> own;
            for (const std::size_t m : members) {
                lr.push_back(rates[m]);
                decay.push_back(decays[m]);
                clip.push_back(clips[m]);
                own.push_back(seeds[m]);
            }
            rig->settings.lr = lr;
            rig->settings.weight_decay = decay;
            rig->settings.clip_norm = clip;
            const auto begun = rig->begin(make(tree), 4, own);
            EXPECT_TRUE(begun.ok()) << begun.error().text();
            for (std::uint32_t step = 0; step < 5; ++step) {
                rig->feed_random(step);
                rig->training->run();
            }
            return testing::trained_tensors(*rig->store, tape::Store::Arena::value);
        };
        const auto together = run({0, 1, 2});
        for (std::size_t m = 0; m < 3; ++m)
            for (const auto& [name, values] : run({m}))
                EXPECT_EQ(together.at(m == 0 ? name : fmt::format("{}@{}", name, m)), values) << name << " of member " << m;
    }
}

}  // namespace
}  // namespace millrace::models
