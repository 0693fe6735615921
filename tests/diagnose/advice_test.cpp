#include "diagnose/findings/findings.h"

#include <gtest/gtest.h>

#include <string>

namespace millrace::diagnose {
namespace {

constexpr const char* kSite = "/home/u/torch-2/lib/python3.12/site-packages/";

Stack under(std::initializer_list<const char*> files) {
    Stack stack;
    for (const char* file : files) stack.push_back({kSite + std::string(file), 10, "f", false});
    stack.push_back({"/home/u/torch/train.py", 3, "main", false});
    return stack;
}

/// Of a program that launches so often under each stack.
Framework framework_with(const std::vector<std::pair<Stack, int>>& launches) {
    Timeline timeline;
    timeline.names = {""};
    timeline.stacks = {{}};
    for (const auto& [stack, times] : launches) {
        timeline.stacks.push_back(stack);
        for (int i = 0; i < times; ++i) {
            Call call;
            call.process = call.thread = 7;
            call.stack = static_cast<std::uint32_t>(timeline.stacks.size() - 1);
            timeline.calls.push_back(call);
        }
    }
    return framework_of(timeline, {7, 0, 7, {7}});
}

TEST(Advice, FrameworksAreToldByWhatLaunches) {
    EXPECT_EQ(framework_with({{under({"torch/nn/modules/linear.py"}), 3}}), Framework::kPyTorch);
    EXPECT_EQ(framework_with({{under({"jax/_src/pjit.py"}), 3}}), Framework::kJax) << "in an environment called torch-2";
    EXPECT_EQ(framework_with({{under({"jax/_src/pjit.py"}), 3}, {under({"torch/utils/data/dataloader.py"}), 9}}),
              Framework::kJax);
    EXPECT_EQ(framework_with({{under({"jax/_src/pjit.py"}), 9}, {under({"torch/nn/modules/linear.py"}), 3}}), Framework::kJax);
    EXPECT_EQ(framework_with({{under({"torch/nn/functional.py", "lightning/pytorch/loops/fit_loop.py"}), 3}}),
              Framework::kLightning);
    EXPECT_EQ(framework_with({{under({"torch/nn/functional.py", "transformers/models/llama/modeling_llama.py"}), 3}}),
              Framework::kPyTorch);
    EXPECT_EQ(framework_with({{under({"torch/nn/functional.py", "transformers/trainer.py"}), 3}}), Framework::kTrainer);
    EXPECT_EQ(framework_with({{under({"tensorflow/python/eager/execute.py", "keras/src/trainer.py"}), 3}}),
              Framework::kTensorFlow);
    EXPECT_EQ(framework_with({{under({}), 3}}), Framework::kCuda) << "a user's folder called torch";
    EXPECT_EQ(framework_with({{{{"/home/u/jax/train.py", 3, "main", false}}, 3}}), Framework::kCuda);
    EXPECT_EQ(framework_with({}), Framework::kCuda);
}

TEST(Advice, WithoutFramesNamesOfKernelsTell) {
    Timeline timeline;
    timeline.names = {"", "void at::native::vectorized_elementwise_kernel"};
    timeline.stacks = {{}};
    EXPECT_EQ(framework_of(timeline, {}), Framework::kPyTorch);
    timeline.names = {"", "loop_add_fusion"};
    EXPECT_EQ(framework_of(timeline, {}), Framework::kCuda);
    timeline.source = Source::kKineto;
    EXPECT_EQ(framework_of(timeline, {}), Framework::kPyTorch);
}

TEST(Advice, EachFrameworkGetsItsOwnWordsForEverything) {
    for (int topic = 0; topic <= static_cast<int>(Topic::kEvaluation); ++topic)
        for (std::size_t framework = 0; framework < kFrameworks; ++framework) {
            const char* text = advice_for(static_cast<Topic>(topic), static_cast<Framework>(framework));
            ASSERT_NE(text, nullptr) << topic;
            const std::string words = text;
            const auto mine = static_cast<Framework>(framework);
            const bool torch = mine == Framework::kPyTorch || mine == Framework::kLightning || mine == Framework::kTrainer;
            const auto has = [&](const char* part) { return words.find(part) != std::string::npos; };
            EXPECT_TRUE(torch || (!has("torch") && !has("num_workers"))) << words;
            EXPECT_TRUE(mine == Framework::kCuda || (!has("cudaM") && !has("cudaH"))) << words;
            EXPECT_TRUE(mine == Framework::kJax || !has("jax")) << words;
            EXPECT_TRUE(mine == Framework::kTensorFlow || !has("tf.")) << words;
            EXPECT_TRUE(mine == Framework::kTrainer || !has("TrainingArguments")) << words;
        }
}

TEST(Advice, ABusyWorkerIsNotToldToPrefetchMore) {
    for (std::size_t framework = 0; framework < kFrameworks; ++framework)
        for (const Topic topic : {Topic::kFewWorkers, Topic::kPacking, Topic::kNoWorkers})
            EXPECT_EQ(std::string(advice_for(topic, static_cast<Framework>(framework))).find("prefetch_factor"),
                      std::string::npos);
}

}  // namespace
}  // namespace millrace::diagnose
