#include "diagnose/step_period.h"

#include <gtest/gtest.h>

namespace millrace::diagnose {
namespace {

using Sequence = std::vector<std::uint64_t>;

void append_repeated(Sequence& to, const Sequence& what, int times = 1) {
    for (int i = 0; i < times; ++i) to.insert(to.end(), what.begin(), what.end());
}

Sequence layered_step(int layers, std::uint64_t last) {
    Sequence step{1, 2};
    append_repeated(step, {10, 11, 12}, layers);
    step.push_back(20);
    append_repeated(step, {30, 31, 32, 33, 34}, layers);
    step.push_back(last);
    return step;
}

constexpr std::uint64_t kUpdate = 40;

std::vector<char> updates_of(const Sequence& sequence) {
    std::vector<char> updates;
    for (const std::uint64_t element : sequence)
        updates.push_back(element == kUpdate ? kUpdates : element < 7 ? kMultiplies : char{0});
    return updates;
}

TEST(StepPeriod, IsNotMisledByWhatEveryTenthStepDoes) {
    const Sequence step = layered_step(6, kUpdate);
    Sequence logged, evaluated;
    for (int i = 0; i < 6; ++i) {
        append_repeated(logged, step, 10);
        append_repeated(logged, {99, 98});
        append_repeated(evaluated, step, 7);
        append_repeated(evaluated, {1, 10, 11, 12, 10, 11, 12, 77}, 9);
    }
    EXPECT_EQ(find_step_period(logged, updates_of(logged))->length, step.size());
    EXPECT_EQ(find_step_period(evaluated, updates_of(evaluated))->length, step.size());
}

TEST(StepPeriod, AnEvaluationOfManyMoreLaunchesThanTrainingDoesNotHideTheStep) {
    // Batches that are nearly as long as the step, or half as long, or anything else.
    const Sequence step{0, 1, 2, 0, 1, 2, 0, 1, 3, 4, 5, 3, 4, 5, 3, 4, kUpdate};
    for (const Sequence& batch :
         {Sequence{0, 1, 2, 0, 1, 2, 0, 1}, Sequence{0, 1, 2, 0, 1, 2, 0, 1, 8}, Sequence{0, 1, 2, 0, 1, 2, 0, 1, 8, 9, 7}}) {
        Sequence sequence;
        for (int i = 0; i < 12; ++i) {
            append_repeated(sequence, step, 10);
            append_repeated(sequence, batch, 250);
        }
        const auto found = find_step_period(sequence, updates_of(sequence));
        ASSERT_TRUE(found) << batch.size();
        EXPECT_EQ(found->length, step.size()) << batch.size();
    }
}

TEST(StepPeriod, ShortStepsAreTheStepThoughTheirUpdatesStandTogether) {
    for (const Sequence& step :
         {Sequence{1, 2, 3, kUpdate}, Sequence{1, 2, 3, 4, 5, kUpdate}, Sequence{1, 2, 3, 4, 5, 6, 7, kUpdate}})
        for (const int evaluating : {3, 20, 1'501}) {
            Sequence sequence;
            for (int i = 0; i < 20; ++i) {
                append_repeated(sequence, step, 7);
                for (int j = 0; j < evaluating; ++j) sequence.push_back(static_cast<std::uint64_t>(70 + j % 3));
            }
            EXPECT_EQ(find_step_period(sequence, updates_of(sequence))->length, step.size()) << step.size() << " " << evaluating;
        }
}

TEST(StepPeriod, LayersThatAreAllAlikeAreNoSteps) {
    for (const int layers : {7, 20, 60}) {
        Sequence step, sequence;
        append_repeated(step, {1, 2, 3}, layers);
        step.push_back(kUpdate);
        for (int i = 0; i < 20; ++i) {
            append_repeated(sequence, step, 6);
            append_repeated(sequence, {1, 2, 3}, 2 * layers);
        }
        EXPECT_EQ(find_step_period(sequence, updates_of(sequence))->length, step.size()) << layers;
        // Norms that are logged look like updates: where nothing between them is known to be no optimizer's, they tell no step.
        std::vector<char> norms;
        for (const std::uint64_t element : sequence) norms.push_back(element == kUpdate ? kUpdates : char{0});
        EXPECT_EQ(find_step_period(sequence, norms)->length == step.size(), record::find_period(sequence)->length > 3) << layers;
    }
}

TEST(StepPeriod, UpdatesOfOneStepAreNoSteps) {
    // An optimizer's kernels one after the other, and groups of parameters with as much between them as short steps have.
    for (const Sequence& update : {Sequence{kUpdate}, Sequence{kUpdate, 8}, Sequence{kUpdate, 7, 8, 9}})
        for (const int groups : {2, 3, 5, 12}) {
            Sequence step{1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 9}, sequence;
            append_repeated(step, update, groups);
            for (int i = 0; i < 15; ++i) {
                append_repeated(sequence, step, 10);
                append_repeated(sequence, {60, 61, 62});
            }
            EXPECT_EQ(find_step_period(sequence, updates_of(sequence))->length, step.size()) << update.size() << " " << groups;
        }
}

TEST(StepPeriod, AGraphWithAnUpdateIsAStep) {
    Sequence sequence;
    std::vector<char> updates;
    for (int i = 0; i < 20; ++i)
        for (int j = 0; j < 35; ++j) {
            sequence.push_back(j < 10 ? 5 : static_cast<std::uint64_t>(70 + j));
            updates.push_back(j < 10 ? kUpdates | kWholeStep : 0);
        }
    EXPECT_EQ(find_step_period(sequence, updates)->length, 1u);
    EXPECT_EQ(find_step_period(sequence, std::vector<char>(sequence.size()))->length, 35u) << "nobody knows what a graph does";
}

TEST(StepPeriod, TwoStepsOfACriticAndOneOfItsGeneratorAreOneStep) {
    const Sequence critic = layered_step(6, kUpdate);
    for (const int layers : {2, 6, 9}) {
        Sequence generator{3, 4, 5};
        append_repeated(generator, {50, 51, 52, 53}, 2 * layers);
        append_repeated(generator, {60, 61, 62, kUpdate});
        Sequence sequence;
        for (int i = 0; i < 25; ++i) {
            append_repeated(sequence, critic, 2);
            append_repeated(sequence, generator);
        }
        const auto found = find_step_period(sequence, updates_of(sequence));
        ASSERT_TRUE(found) << layers;
        EXPECT_EQ(found->length, 2 * critic.size() + generator.size()) << layers;
    }
}

TEST(StepPeriod, MicroBatchesThatUpdateNothingAreNoSteps) {
    const Sequence micro = layered_step(5, 41);
    Sequence sequence;
    for (int i = 0; i < 9; ++i) {
        append_repeated(sequence, micro, 4);
        append_repeated(sequence, {90, kUpdate, 92});
    }
    EXPECT_EQ(find_step_period(sequence, updates_of(sequence))->length, 4 * micro.size() + 3);
}

TEST(StepPeriod, TwoGroupsOfUpdatesInAStepAreOneStep) {
    Sequence step{kUpdate};  // gradients are cleared
    append_repeated(step, layered_step(7, kUpdate));
    Sequence sequence;
    for (int i = 0; i < 6; ++i) {
        append_repeated(sequence, step, 10);
        append_repeated(sequence, {70, 71, 72, 73});
    }
    // The end of one step and the beginning of the next are one group.
    EXPECT_EQ(find_step_period(sequence, updates_of(sequence))->length, step.size());
}

TEST(StepPeriod, KnowsOptimizersByName) {
    EXPECT_TRUE(updates_parameters("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>"));
    EXPECT_TRUE(updates_parameters("multi_tensor_lamb_LambStage1Functor"));
    EXPECT_TRUE(updates_parameters("triton_poi_fused_adamw_0"));
    EXPECT_TRUE(updates_parameters("fused_sgd"));
    EXPECT_FALSE(updates_parameters("sm90_xmma_gemm_bf16bf16"));
    EXPECT_FALSE(updates_parameters("thrust::for_each<RowLambda>"));
    EXPECT_FALSE(updates_parameters("void nms_kernel<Lionfish, sgdish>"));
}

}  // namespace
}  // namespace millrace::diagnose
