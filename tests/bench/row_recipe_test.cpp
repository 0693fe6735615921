#include "bench/row_recipe.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "bench/peers.h"
#include "places.h"

namespace millrace::bench {
namespace {

Workload named(const std::string& name, ops::DeviceKind device = ops::DeviceKind::cpu) {
    return select_workloads(all_workloads(device), {name})->front();
}

Options with(std::vector<std::string> settings) {
    Options options;
    options.seconds = 0.01;
    options.settings = std::move(settings);
    return options;
}

OurTimes timed(const std::string& name, std::vector<std::string> settings) {
    auto times = time_workload(named(name), with(std::move(settings)));
    EXPECT_TRUE(times.ok()) << times.error().text();
    return times.ok() ? std::move(times).value() : OurTimes{};
}

TEST(RowRecipe, KeysThatNoStepFollowsAreRefused) {
    for (const char* setting :
         {"data.path=elsewhere", "data.domains=a,b", "data.tokenizer=sentencepiece", "data.mode=stream", "train.epochs=3",
          "train.steps=9", "train.debug_nonfinite=true", "eval.batch=7", "checkpoint.keep=2", "telemetry.csv=true", "device=cpu",
          "threads=1", "model.name=k1", "model.preset=debug"}) {
        const auto refused = time_workload(named("transformer-base"), with({setting}));
        ASSERT_FALSE(refused.ok()) << setting;
        EXPECT_EQ(refused.error().exit_status, 2);
        EXPECT_NE(refused.error().text().find(setting), std::string::npos) << refused.error().text();
    }
    EXPECT_FALSE(row_recipe(named("collective-debug"), with({"data.augment=true"})).ok());
    EXPECT_FALSE(row_recipe(named("collective-debug"), with({"data.length=8"})).ok()) << "images have no length";
    EXPECT_FALSE(row_recipe(named("energy_flow-debug"), with({"model.text_bridge.width=8"})).ok()) << "no sentences";
}

TEST(RowRecipe, LengthAndVocabularyShapeModelAndData) {
    const OurTimes base = timed("transformer-debug", {"data.length=8", "data.vocabulary=50", "train.batch=3"});
    const OurTimes longer = timed("transformer-debug", {"data.length=16", "data.vocabulary=50", "train.batch=3"});
    const OurTimes wordy = timed("transformer-debug", {"data.length=8", "data.vocabulary=90", "train.batch=3"});
    EXPECT_EQ(longer.parameters - base.parameters, 8 * 32) << "a row of positions for each token more";
    EXPECT_EQ(wordy.parameters - base.parameters, 40 * (32 + 32 + 1)) << "an embedding, a weight and a bias for each word more";
    EXPECT_GE(longer.flops, 2 * base.flops);
    EXPECT_EQ(timed("transformer-debug", {"data.length=1", "data.vocabulary=50", "train.batch=2"}).batch, 2);
}

TEST(RowRecipe, SizeAndColourShapeImages) {
    const auto grey = timed("cnn-debug", {"data.size=8x8", "train.batch=2"}),
               colour = timed("cnn-32x32-b128", {"data.size=8x8", "train.batch=2", "model.channels=8,16", "model.hidden=32"}),
               wide = timed("cnn-debug", {"data.size=12x8", "train.batch=2"});
    EXPECT_EQ(colour.parameters - grey.parameters, 2 * 9 * 8) << "two channels more in the first kernels";
    EXPECT_EQ(wide.parameters - grey.parameters, 2 * 16 * 32) << "a column of two more that the hidden layer reads";
    const auto refused = time_workload(named("cnn-debug"), with({"data.size=8"}));
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().text().find("data.size = \"8\""), std::string::npos) << refused.error().text();
}

TEST(RowRecipe, ABatchBeyondTheUsualDataStillMakesAStep) {
    const auto samples = [](const std::string& name, std::vector<std::string> settings, data::DataKind kind) {
        const auto source = random_data(row_recipe(named(name), with(std::move(settings))).value(), kind);
        EXPECT_TRUE(source.ok()) << source.error().text();
        return source.ok() ? (*source)->samples(data::Part::train) : 0;
    };
    EXPECT_EQ(samples("shallow-debug", {"train.batch=60001"}, data::DataKind::samples), 60001);
    EXPECT_EQ(samples("shallow-debug", {"train.batch=100", "train.accumulate=7"}, data::DataKind::samples), 53900)
        << "whole steps";
    EXPECT_EQ(samples("transformer-debug", {"train.batch=3", "data.length=1000000"}, data::DataKind::text), 3);
    EXPECT_EQ(samples("transformer-debug", {"train.batch=300"}, data::DataKind::text), 31800);
    const auto refused = time_workload(named("transformer-debug"), with({"data.length=1048576", "train.batch=1048576"}));
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().text().find("data.length"), std::string::npos) << refused.error().text();
}

TEST(RowRecipe, StepsCountAllBatchesAndMembers) {
    EXPECT_EQ(timed("shallow-debug", {"train.batch=4", "train.accumulate=3", "members=2"}).batch, 24);
    const auto alone = time_workload(named("collective-debug"), with({"train.batch=1"}));
    ASSERT_FALSE(alone.ok()) << "batch normalization needs two rows";
    EXPECT_NE(alone.error().text().find("train.batch"), std::string::npos) << alone.error().text();
}

TEST(RowRecipe, PrecisionIsAKeyToo) {
    Options options = with({"precision=f32"});
    EXPECT_EQ(row_recipe(named("collective-debug"), options)->text("precision"), "f32");
    options.precision = "bf16";
    EXPECT_FALSE(row_recipe(named("collective-debug"), options).ok()) << "said twice";
    const auto refused = time_workload(named("collective-debug"), with({"precision=bf16"}));
    EXPECT_FALSE(refused.ok()) << "a CPU has f32 alone";
}

class PeerCommand : public ::testing::Test {
protected:
    void SetUp() override { setenv("MILLRACE_PEERS", (testing::source_root() / "bench/peers").c_str(), 1); }
    void TearDown() override { unsetenv("MILLRACE_PEERS"); }

    /// The word behind an option; empty when it is not there.
    static std::string value(const std::vector<std::string>& command, const std::string& option) {
        const auto found = std::find(command.begin(), command.end(), option);
        return found == command.end() ? "" : *(found + 1);
    }
};

TEST_F(PeerCommand, HasTheShapeOfTheRow) {
    const auto language = peer_command(named("transformer-base"),
                                       with({"model.width=256", "model.heads=8", "model.inner=1024", "data.length=256",
                                             "data.vocabulary=50304", "model.depth=6", "model.dropout=0.25", "train.batch=8"}),
                                       "bf16");
    ASSERT_TRUE(language.ok()) << language.error().text();
    for (const auto& [option, wanted] : std::vector<std::pair<std::string, std::string>>{{"--width", "256"},
                                                                                         {"--heads", "8"},
                                                                                         {"--inner", "1024"},
                                                                                         {"--length", "256"},
                                                                                         {"--vocabulary", "50304"},
                                                                                         {"--depth", "6"},
                                                                                         {"--dropout", "0.25"},
                                                                                         {"--batch", "8"},
                                                                                         {"--members", "1"},
                                                                                         {"--precision", "bf16"}})
        EXPECT_EQ(value(*language, option), wanted) << option;
    const auto collective =
        peer_command(named("collective-debug-r2"), with({"model.expert_hidden=96,48", "train.batch=512"}), "tf32");
    ASSERT_TRUE(collective.ok()) << collective.error().text();
    EXPECT_EQ(value(*collective, "--expert-hidden"), "96,48");
    EXPECT_EQ(value(*collective, "--revision"), "r2");
    EXPECT_EQ(value(*collective, "--preset"), "debug");
    EXPECT_EQ(value(*collective, "--precision"), "tf32");
    EXPECT_EQ(value(*peer_command(named("collective-debug"), with({"members=4"}), "f32"), "--members"), "4");
    EXPECT_EQ(value(*peer_command(named("collective-debug"), with({}), "f32"), "--precision"), "fp32");
}

TEST_F(PeerCommand, IsRefusedForAKeyThatItCannotFollow) {
    const auto reason = [](const std::string& name, const std::string& setting) {
        const auto command = peer_command(named(name), with({setting}), "f32");
        return command.ok() ? "followed" : command.error().message;
    };
    EXPECT_EQ(reason("k1-base", "model.policy=dense"), "cannot follow model.policy");
    EXPECT_EQ(reason("k1-base", "model.policy=topk"), "followed") << "as it was";
    EXPECT_EQ(reason("collective-debug", "model.vary_experts=true"), "cannot follow model.vary_experts");
    EXPECT_EQ(reason("collective-debug", "optim.name=sgd"), "cannot follow optim.name");
    EXPECT_EQ(reason("collective-debug", "train.accumulate=2"), "cannot follow train.accumulate");
    EXPECT_EQ(reason("energy_flow-tiny", "model.hidden=8"), "cannot follow model.hidden");
    EXPECT_EQ(reason("collective-debug", "train.micro_batch=8"), "followed") << "how we run it is our affair";
    EXPECT_EQ(reason("shallow-debug", "train.batch=8"), "the workload has none");
}

TEST(BenchPoints, LinesAreNamesAndSettings) {
    const auto all = all_workloads(ops::DeviceKind::cpu);
    const auto points = read_points("\n# nothing\n  shallow-debug\ttrain.batch=4   seed=1\ncollective-debug-b32\n", "file", all);
    ASSERT_TRUE(points.ok()) << points.error().text();
    ASSERT_EQ(points->size(), 2u);
    EXPECT_EQ((*points)[0].settings, (std::vector<std::string>{"train.batch=4", "seed=1"}));
    EXPECT_EQ((*points)[1].workload.batch, 32);
    EXPECT_TRUE((*points)[1].settings.empty());
    EXPECT_EQ(read_points("shallow-debug\nnobody\n", "file", all).error().place, "file:2");
    EXPECT_FALSE(read_points("# only this\n", "file", all).ok());
}

}  // namespace
}  // namespace millrace::bench
