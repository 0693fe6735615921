#include "train/step_program.h"

#include <gtest/gtest.h>

#include <set>

#include "data/images/resident_images.h"
#include "models/baselines/baseline.h"
#include "models/model_rig.h"
#include "models/tiny_images.h"
#include "ops/dense/dense.h"
#include "ops/loss/loss.h"
#include "ops/step/step.h"
#include "optim/update.h"

namespace millrace::train {
namespace {

TEST(DivideEpoch, EveryRowIsUsedOnce) {
    for (std::int32_t samples : {0, 1, 5, 16, 17, 90, 54000})
        for (std::int32_t batch : {1, 3, 16, 128})
            for (std::int32_t accumulation : {1, 2, 4}) {
                const EpochSteps epoch = divide_epoch(samples, batch, accumulation);
                EXPECT_EQ(std::int64_t{epoch.regular} * epoch.step.total() + epoch.last.total(), samples);
                EXPECT_LT(epoch.last.total(), batch * accumulation);
                EXPECT_LT(epoch.last.tail, batch);
            }
}

TEST(DivideEpoch, KnownEpochsHaveKnownTails) {
    const EpochSteps plain = divide_epoch(54000, 128, 1);
    EXPECT_EQ(plain.count(), 422);
    EXPECT_EQ(plain.last, (StepRows{128, 0, 112}));
    const EpochSteps four = divide_epoch(54000, 128, 4);
    EXPECT_EQ(four.count(), 106);
    EXPECT_EQ(four.last, (StepRows{128, 1, 112}));
    EXPECT_EQ(divide_epoch(256, 128, 2).count(), 1);
}

models::BaselineConfig small(float dropout) {
    models::BaselineConfig config;
    config.widths = {8, 6};
    config.features = 25;
    config.classes = 3;
    config.dropout = dropout;
    return config;
}

TEST(TrainingStep, FullAndTailMicroBatchesShareOperatorNumbers) {
    testing::Rig rig;
    rig.settings.accumulation = 3;
    data::ResidentImages source(testing::tiny_set(100, 20));
    models::Baseline model(small(0.3f));
    ASSERT_TRUE(rig.start(model, source, {1}).ok());
    tape::Builder builder = build_training_step(*rig.store, model, source, rig.settings, {16, 2, 7});
    std::vector<std::uint32_t> numbers;
    std::vector<double> scales;
    for (const ops::Record& record : builder.records()) {
        if (const auto* dense = std::any_cast<ops::DenseParams>(&record.params);
            dense && dense->op_number > 0 && record.op->phase == ops::Phase::forward)
            numbers.push_back(dense->op_number);
        if (const auto* loss = std::any_cast<ops::LossParams>(&record.params)) scales.push_back(loss->scale);
        if (record.op == &ops::linear_wgrad::kDef) {
            EXPECT_TRUE(record.accumulates(ops::linear_wgrad::dw));
        }
    }
    ASSERT_EQ(numbers.size(), 6u);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(numbers[i], numbers[i + 3]);
    ASSERT_EQ(scales.size(), 2u);
    EXPECT_DOUBLE_EQ(2 * scales[0] + scales[1], 1);
    EXPECT_DOUBLE_EQ(scales[1], 7.0 / 39);
    const auto sections = builder.take_sections();
    ASSERT_EQ(sections.size(), 4u);
    EXPECT_EQ(sections[1].repeat, 2);
    EXPECT_EQ(sections[2].repeat, 1);
}

TEST(TrainingStep, EpochsWrapAtTheEndOfTheData) {
    testing::Rig rig;
    rig.settings.accumulation = 2;
    data::ResidentImages source(testing::tiny_set(100, 20));
    models::Baseline model(small(0));
    ASSERT_TRUE(rig.start(model, source, {1}).ok());
    const EpochSteps epoch = divide_epoch(source.samples(data::Part::train), 16, 2);
    ASSERT_EQ(epoch.regular, 2);
    ASSERT_EQ(epoch.last, (StepRows{16, 1, 10}));
    tape::Program regular("regular", *rig.store, build_training_step(*rig.store, model, source, rig.settings, epoch.step),
                          *rig.arena);
    tape::Program last("last", *rig.store, build_training_step(*rig.store, model, source, rig.settings, epoch.last), *rig.arena);
    ASSERT_TRUE(rig.arena->allocate().ok());
    ASSERT_TRUE(regular.prepare().ok());
    ASSERT_TRUE(last.prepare().ok());
    for (std::uint32_t pass = 0; pass < 3; ++pass) {
        regular.run();
        regular.run();
        EXPECT_EQ(rig.store->read_states()[0].position, 64u);
        EXPECT_EQ(rig.store->read_states()[0].rows, 32u);
        last.run();
        const ops::MemberState state = rig.store->read_states()[0];
        EXPECT_EQ(state.rows, 26u);
        EXPECT_EQ(state.position, 0u);
        EXPECT_EQ(state.epoch, pass + 1);
        EXPECT_EQ(state.step, 3 * (pass + 1));
        EXPECT_EQ(rig.store->ring_rows()[3 * (pass + 1)].sequence, 3 * (pass + 1));
    }
}

TEST(TrainingStep, MicroBatchesOfAllMachinesHaveNumbersOfTheirOwn) {
    testing::Rig rig;
    data::ResidentImages source(testing::tiny_set(100, 20));
    models::Baseline model(small(0));
    ASSERT_TRUE(rig.start(model, source, {1}).ok());
    std::set<std::uint32_t> numbers;
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
        tape::Builder begin(*rig.store, {}), end(*rig.store, {});
        optim::append_step_begin(begin, {rank, 3});
        begin.close_section();
        ops::Record record{&ops::micro_end::kDef, ops::MicroEndParams{16, 34, true, 3}, {}, 0, "step"};
        record.slots[ops::micro_end::state] = rig.store->state();
        end.append(std::move(record));
        end.close_section();
        tape::Arena arena(*rig.backend);
        tape::Program first("begin", *rig.store, std::move(begin), arena), next("end", *rig.store, std::move(end), arena);
        ASSERT_TRUE(arena.allocate().ok() && first.prepare().ok() && next.prepare().ok());
        first.run();
        for (int micro = 0; micro < 2; ++micro) {
            EXPECT_TRUE(numbers.insert(rig.store->read_states()[0].micro).second);
            next.run();
        }
    }
    EXPECT_EQ(numbers, (std::set<std::uint32_t>{0, 1, 2, 3, 4, 5}));
}

TEST(TrainingStep, SeveralMachinesAreRefusedWithoutAnAllReduce) {
    testing::Rig rig;
    data::ResidentImages source(testing::tiny_set(100, 20));
    models::Baseline model(small(0));
    ASSERT_TRUE(rig.start(model, source, {1}).ok());
    EXPECT_DEATH(build_training_step(*rig.store, model, source, rig.settings, {16, 1, 0}, nullptr, 0, {0, 2}), "all-reduce");
}

TEST(Evaluation, CountsEveryRowOnceAndChangesNoWeight) {
    testing::Rig rig;
    data::ResidentImages source(testing::tiny_set(100, 23));
    models::Baseline model(small(0.5f));
    ASSERT_TRUE(rig.start(model, source, {1}).ok());
    tape::Program full("full", *rig.store, build_evaluation(*rig.store, model, source, data::Part::test, 10), *rig.arena);
    tape::Program tail("tail", *rig.store, build_evaluation(*rig.store, model, source, data::Part::test, 3), *rig.arena);
    tape::Program whole("whole", *rig.store, build_evaluation(*rig.store, model, source, data::Part::test, 23), *rig.arena);
    ASSERT_TRUE(rig.arena->allocate().ok());
    for (tape::Program* program : {&full, &tail, &whole}) ASSERT_TRUE(program->prepare().ok());
    const auto before = full.read(rig.store->parameter_arena());
    full.run();
    full.run();
    tail.run();
    const ops::MemberState pieces = rig.store->read_states()[0];
    EXPECT_EQ(pieces.rows, 23u);
    EXPECT_EQ(pieces.eval_position, 23u);
    EXPECT_EQ(pieces.step, 0u);
    auto states = rig.store->read_states();
    states[0].eval_position = states[0].rows = states[0].correct = 0;
    states[0].loss = 0;
    rig.store->write_states(states);
    whole.run();
    const ops::MemberState once = rig.store->read_states()[0];
    EXPECT_NEAR(once.loss, pieces.loss, 1e-9) << "evaluation does not depend on the batch";
    EXPECT_EQ(once.correct, pieces.correct);
    EXPECT_EQ(full.read(rig.store->parameter_arena()), before);
}

}  // namespace
}  // namespace millrace::train
