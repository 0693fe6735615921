#include "train/step_program.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "data/resident_samples.h"
#include "models/baselines/baseline.h"
#include "models/model_rig.h"
#include "models/tiny_images.h"
#include "ops/dense/dense.h"
#include "ops/loss/loss.h"
#include "ops/parts/parts.h"
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
    config.task.input.width = 25;
    config.task.outputs = 3;
    config.dropout = dropout;
    return config;
}

TEST(TrainingStep, FullAndTailMicroBatchesShareOperatorNumbers) {
    testing::Rig rig;
    rig.settings.accumulation = 3;
    data::ResidentSamples source(testing::tiny_set(100, 20));
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
            EXPECT_FALSE(record.accumulates(ops::linear_wgrad::dw)) << "each part finishes its gradients apart";
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
    data::ResidentSamples source(testing::tiny_set(100, 20));
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

/// Of the micro-batches of a step as a rank numbers them: (number, position of the first row), and where the step ends.
struct Course {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> parts;
    ops::MemberState end;
};
Course course_of(const StepRows& rows, const StepRanks& ranks, std::uint32_t position) {
    testing::Rig rig;
    data::ResidentSamples source(testing::tiny_set(100, 20));
    models::Baseline model(small(0));
    EXPECT_TRUE(rig.start(model, source, {1}).ok());
    tape::Builder built = build_training_step(*rig.store, model, source, rig.settings, rows, nullptr, 0, ranks);
    Course course;
    ops::MemberState state;
    state.position = position;
    const auto sections = built.take_sections();
    for (const ops::Section& section : sections)
        for (int i = 0; i < section.repeat; ++i)
            for (std::size_t r = section.first; r < section.first + section.count; ++r) {
                const ops::Record& record = built.records()[r];
                if (const auto* begin = std::any_cast<ops::StepBeginParams>(&record.params)) {
                    state.micro = begin->rank;
                    state.position += begin->first;
                }
                const auto* end = std::any_cast<ops::MicroEndParams>(&record.params);
                if (const auto* part = std::any_cast<ops::PartEndParams>(&record.params)) {
                    course.parts.emplace_back(state.micro, state.position);
                    end = &part->micro;
                }
                if (end != nullptr) ops::close_micro(*end, state);
            }
    course.end = state;
    return course;
}

TEST(TrainingStep, MicroBatchesOfAllRanksAreThoseOfOne) {
    for (const StepRows& rows : {StepRows{4, 6, 0}, StepRows{4, 5, 3}, StepRows{4, 1, 2}, StepRows{4, 0, 3}, StepRows{1, 1, 0}})
        for (const std::uint32_t world : {1u, 2u, 3u, 4u}) {
            std::set<std::pair<std::uint32_t, std::uint32_t>> all;
            std::size_t count = 0;
            for (std::uint32_t rank = 0; rank < world; ++rank) {
                const Course course = course_of(rows, {rank, world}, 20);
                EXPECT_EQ(course.end.position, 20 + static_cast<std::uint32_t>(rows.total())) << rank << " of " << world;
                all.insert(course.parts.begin(), course.parts.end());
                count += course.parts.size();
            }
            if (world == 1 && rows.parts() == 1) continue;  // without a table of parts
            EXPECT_EQ(count, static_cast<std::size_t>(rows.parts()));
            std::set<std::pair<std::uint32_t, std::uint32_t>> wanted;
            for (std::uint32_t m = 0; m < static_cast<std::uint32_t>(rows.parts()); ++m) wanted.insert({m, 20 + 4 * m});
            if (rows.rows == 4) {
                EXPECT_EQ(all, wanted);
            }
        }
}

TEST(TrainingStep, LastStepOfAPassEndsItOnEveryRank) {
    for (const std::uint32_t rank : {0u, 1u, 2u}) {
        const Course course = course_of({4, 1, 2}, {rank, 3}, 84);  // of 90 rows
        EXPECT_EQ(course.end.position, 0u);
        EXPECT_EQ(course.end.epoch, 1u);
    }
}

TEST(Evaluation, CountsEveryRowOnceAndChangesNoWeight) {
    testing::Rig rig;
    data::ResidentSamples source(testing::tiny_set(100, 23));
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
