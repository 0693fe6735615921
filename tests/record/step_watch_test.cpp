#include "record/step_watch.h"

#include <gtest/gtest.h>

#include "record/pulse_blocks.h"

namespace millrace::record {
namespace {

/// A training program as its probe sees it: every step some launches, copies and an event, with layers inside.
struct Trainer {
    StepWatch& watch;
    std::uint64_t now = 1'000'000;
    std::uint32_t correlation = 0;
    std::vector<Record> late{};  ///< work is seen after the calls of a whole step

    void call(CallKind kind, std::uint32_t thread = 7, std::uint64_t takes = 10'000, bool led = false) {
        Record record;
        record.kind = RecordKind::kCall;
        record.what = static_cast<std::uint8_t>(kind);
        record.begin = now;
        record.end = now + takes;
        record.thread = thread;
        record.correlation = ++correlation;
        if (led) record.flags = kLedCall;
        watch.add(record);
        now += takes;
    }
    void launch(std::uint32_t kernel, std::uint32_t thread = 7) {
        call(CallKind::kLaunch, thread);
        Record work;
        work.kind = RecordKind::kWork;
        work.id = kernel;
        work.grid = kernel * 31;
        work.correlation = correlation;
        late.push_back(work);
    }
    void step(int number) {
        call(CallKind::kCopyAsync);
        call(CallKind::kCopyAsync);
        for (int layer = 0; layer < 5; ++layer)
            for (std::uint32_t kernel = 1; kernel <= 4; ++kernel) launch(kernel);
        for (int layer = 0; layer < 5; ++layer)
            for (std::uint32_t kernel = 11; kernel <= 17; ++kernel) launch(kernel, 8);
        for (std::uint32_t kernel = 30; kernel < 40; ++kernel) launch(kernel);
        call(CallKind::kEventRecord);
        if (number % 3 == 0) call(CallKind::kStreamSync);  // no constant number per step
        for (std::size_t at = late.size(); at-- > 0;) watch.add(late[at]);
        late.clear();
    }
};

TEST(StepWatch, FindsStepsAndTheCallThatCountsThem) {
    StepWatch watch;
    Trainer trainer{watch};
    for (std::uint32_t kernel = 100; kernel < 300; ++kernel) trainer.launch(kernel, 9);
    EXPECT_FALSE(watch.facts());
    for (int number = 0; number < 30; ++number) trainer.step(number);
    const auto facts = watch.facts();
    ASSERT_TRUE(facts);
    EXPECT_EQ(facts->launches_per_step, 65u);
    EXPECT_GE(facts->steps, 28u);
    EXPECT_GE(facts->steady_steps, 28u);
    EXPECT_LE(facts->steady_steps, 30u);
    EXPECT_NEAR(facts->step_ns, 68 * 10'000, 10'001);
    EXPECT_EQ(facts->pulse.call, CallKind::kEventRecord) << "two copies, sometimes a sync";
    EXPECT_EQ(facts->pulse.per_step, 1u);
    EXPECT_EQ(watch.main_thread(), 8u);
    for (std::uint32_t kernel = 1000; kernel < 3000; ++kernel) trainer.launch(kernel, 9);
    for (const Record& work : trainer.late) watch.add(work);
    ASSERT_TRUE(watch.facts());
    EXPECT_EQ(watch.facts()->steady_steps, 0u) << "something else goes on now";
    watch.clear();
    EXPECT_FALSE(watch.facts());
    EXPECT_EQ(watch.launches(), 0u);
    EXPECT_EQ(watch.main_thread(), 9u);
}

TEST(StepWatch, CallsThatCuptiIsNotNeededForAreChosenAmongThemselves) {
    StepWatch watch;
    Trainer trainer{watch};
    for (int number = 0; number < 30; ++number) {
        trainer.step(number);  // with one event that is not led
        for (int i = 0; i < 3; ++i) trainer.call(CallKind::kEventRecord, 7, 10'000, true);
        for (int i = 0; i < 2 + number % 2; ++i) trainer.call(CallKind::kSetAsync, 7, 10'000, true);
    }
    const auto facts = watch.facts();
    ASSERT_TRUE(facts);
    EXPECT_EQ(facts->pulse.call, CallKind::kCopyAsync);
    EXPECT_EQ(facts->pulse.per_step, 2u);
    EXPECT_EQ(facts->led.call, CallKind::kEventRecord) << "sets come two or three times";
    EXPECT_EQ(facts->led.per_step, 3u);
    EXPECT_FALSE(facts->graphs);
}

TEST(StepWatch, OneGraphPerStepIsAStep) {
    StepWatch watch;
    Trainer trainer{watch};
    for (int step = 0; step < 20; ++step) {
        trainer.call(CallKind::kGraphLaunch, 7, 1'000'000);
        Record node;  // its nodes are no launches
        node.kind = RecordKind::kWork;
        node.flags = kInGraph;
        node.id = 77;
        node.correlation = trainer.correlation;
        watch.add(node);
    }
    ASSERT_TRUE(watch.facts());
    EXPECT_TRUE(watch.facts()->graphs);
    EXPECT_EQ(watch.facts()->led.per_step, 0u);
    EXPECT_EQ(watch.facts()->launches_per_step, 1u);
    EXPECT_EQ(watch.facts()->pulse.call, CallKind::kGraphLaunch);
    EXPECT_NEAR(watch.facts()->step_ns, 1e6, 1);
    for (int step = 0; step < 20; ++step) trainer.call(CallKind::kGraphLaunch, 7, step == 10 ? 41'000'000 : 1'000'000);
    EXPECT_NEAR(watch.facts()->step_ns, 1e6, 1);
}

TEST(StepWatch, GraphsAreSeenThoughNoKernelOfItsOwnFollows) {
    StepWatch watch;
    Trainer trainer{watch};
    for (int number = 0; number < 5; ++number) trainer.step(number);
    for (int step = 0; step < 300; ++step) {
        trainer.call(CallKind::kGraphLaunch);
        Record node;
        node.kind = RecordKind::kWork;
        node.flags = kInGraph;
        node.correlation = trainer.correlation;
        watch.add(node);
    }
    ASSERT_TRUE(watch.facts());
    EXPECT_TRUE(watch.facts()->graphs);
    EXPECT_EQ(watch.facts()->launches_per_step, 1u);
}

TEST(StepWatch, KernelsThatAreKnownLaterThanGraphsDoNotMislead) {
    StepWatch watch;
    Trainer trainer{watch};
    for (int step = 0; step < 200; ++step) {
        trainer.launch(1);
        trainer.call(CallKind::kGraphLaunch);
        trainer.call(CallKind::kGraphLaunch);
        trainer.launch(2);
        trainer.call(CallKind::kEventRecord);
    }
    EXPECT_FALSE(watch.facts()) << "graphs alone are not the whole of it";
    for (const Record& work : trainer.late) watch.add(work);
    ASSERT_TRUE(watch.facts());
    EXPECT_EQ(watch.facts()->launches_per_step, 4u);
    EXPECT_EQ(watch.facts()->pulse.call, CallKind::kEventRecord);
}

TEST(StepWatch, GraphsBehindARehearsalAreTheSteps) {
    StepWatch watch;
    Trainer trainer{watch};
    for (int number = 0; number < 5; ++number) trainer.step(number);
    for (int number = 0; number < 300; ++number) {
        trainer.launch(900);
        trainer.launch(900);
        trainer.call(CallKind::kGraphLaunch);
    }
    // Buffers come as they please: one of the middle is still missing.
    for (std::size_t at = 0; at < trainer.late.size(); ++at)
        if (at < 540 || at >= 560) watch.add(trainer.late[at]);
    const auto facts = watch.facts();
    ASSERT_TRUE(facts);
    EXPECT_EQ(facts->launches_per_step, 3u);
    EXPECT_GE(facts->steady_steps, 260u);
    EXPECT_EQ(facts->pulse.call, CallKind::kGraphLaunch);
    EXPECT_EQ(facts->pulse.per_step, 1u);
    EXPECT_DOUBLE_EQ(facts->step_ns, 30'000);
}

TEST(StepWatch, FewGraphsAfterManyLaunchesAreSeenByTheClock) {
    StepWatch watch;
    Trainer trainer{watch};
    for (int number = 0; number < 4; ++number)
        for (std::uint32_t kernel = 1; kernel <= 2'500; ++kernel) trainer.launch(kernel);
    for (const Record& work : trainer.late) watch.add(work);
    trainer.late.clear();
    watch.facts();
    int seen = 0;
    for (int number = 1; number <= 300 && seen == 0; ++number) {
        trainer.launch(900);
        trainer.call(CallKind::kGraphLaunch, 7, 14'000'000);
        for (const Record& work : trainer.late) watch.add(work);
        trainer.late.clear();
        if (watch.facts() && watch.facts()->launches_per_step == 2 && watch.facts()->steady_steps >= 15) seen = number;
    }
    EXPECT_GE(seen, 15);
    EXPECT_LE(seen, 60) << "an eighth of what was launched before would be 625";
}

TEST(StepWatch, GraphsThatFitIntoALayerAreNoLayers) {
    StepWatch watch;
    Trainer trainer{watch};
    for (std::uint32_t kernel = 1000; kernel < 1900; ++kernel) trainer.launch(kernel);
    for (std::uint32_t step = 0; step < 3; ++step) {
        for (int layer = 0; layer < 7; ++layer)
            for (std::uint32_t kernel = 0; kernel < 6; ++kernel) trainer.launch(600 + kernel);
        for (std::uint32_t other = 0; other < 97; ++other) trainer.launch(2000 + 100 * step + other);
    }
    const auto graphs = [&](int count) {
        for (int number = 0; number < count; ++number) {
            trainer.launch(900);
            trainer.launch(900);
            trainer.call(CallKind::kGraphLaunch);
        }
        for (const Record& work : trainer.late) watch.add(work);
        trainer.late.clear();
    };
    graphs(19);  // few as yet
    ASSERT_TRUE(watch.facts());
    EXPECT_EQ(watch.facts()->launches_per_step, 6u);
    EXPECT_EQ(watch.facts()->steady_steps, 0u);
    graphs(1071);
    ASSERT_TRUE(watch.facts());
    EXPECT_EQ(watch.facts()->launches_per_step, 3u);
    EXPECT_GE(watch.facts()->steady_steps, 1080u);
    EXPECT_EQ(watch.facts()->pulse.call, CallKind::kGraphLaunch);
}

TEST(StepWatch, MemoryStaysBounded) {
    StepWatch watch(1024);
    Trainer trainer{watch};
    for (int number = 0; number < 1000; ++number) trainer.step(number);
    ASSERT_TRUE(watch.facts());
    EXPECT_EQ(watch.facts()->launches_per_step, 65u);
    EXPECT_LE(watch.facts()->steps, 16u);
    EXPECT_EQ(watch.launches(), 65'000u);
}

TEST(StepWatch, LongStepsAreCountedBeyondWhatIsRemembered) {
    StepWatch watch(300);  // less than five steps
    Trainer trainer{watch};
    for (int number = 0; number < 4; ++number) trainer.step(number);
    ASSERT_TRUE(watch.facts());
    EXPECT_LE(watch.facts()->steady_steps, 4u);
    for (int number = 4; number < 23; ++number) trainer.step(number);
    ASSERT_TRUE(watch.facts());
    EXPECT_GE(watch.facts()->steady_steps, 21u);
    EXPECT_LE(watch.facts()->steady_steps, 23u);
    for (std::uint32_t kernel = 1000; kernel < 1080; ++kernel) trainer.launch(kernel, 9);
    for (int number = 23; number < 27; ++number) trainer.step(number);
    ASSERT_TRUE(watch.facts());
    EXPECT_LE(watch.facts()->steady_steps, 4u) << "something else came in between";
}

TEST(StepWatch, WhatWasForgottenBeforeARehearsalIsNoStep) {
    StepWatch watch(1000);
    Trainer trainer{watch};
    const auto finish = [&] {
        for (const Record& work : trainer.late) watch.add(work);
        trainer.late.clear();
    };
    for (std::uint32_t kernel = 1000; kernel < 6000; ++kernel) trainer.launch(kernel);
    finish();
    for (int number = 0; number < 200; ++number) {
        trainer.launch(900);
        trainer.launch(900);
        trainer.call(CallKind::kGraphLaunch);
        finish();
    }
    const auto facts = watch.facts();
    ASSERT_TRUE(facts);
    EXPECT_EQ(facts->launches_per_step, 3u);
    EXPECT_GE(facts->steady_steps, 190u);
    EXPECT_LE(facts->steady_steps, 200u);
}

TEST(StepWatch, RecordsOfOtherKindsChangeNothing) {
    StepWatch alone, among;
    Trainer quiet{alone}, crowded{among};
    for (int number = 0; number < 30; ++number) {
        quiet.step(number);
        for (int kind = 0; kind < 256; ++kind)
            for (int what = 0; what < 256; ++what) {
                Record record;
                record.kind = static_cast<RecordKind>(kind);
                record.what = static_cast<std::uint8_t>(what);
                record.begin = crowded.now;
                record.correlation = crowded.correlation;
                const bool known_call = record.kind == RecordKind::kCall && what <= static_cast<int>(CallKind::kAttribute);
                const bool kernel = record.kind == RecordKind::kWork && what == static_cast<int>(WorkKind::kKernel);
                if (!known_call && !kernel) among.add(record);
            }
        crowded.step(number);
    }
    EXPECT_EQ(among.launches(), alone.launches());
    EXPECT_EQ(among.main_thread(), alone.main_thread());
    ASSERT_TRUE(alone.facts() && among.facts());
    EXPECT_EQ(among.facts()->launches_per_step, alone.facts()->launches_per_step);
    EXPECT_EQ(among.facts()->steps, alone.facts()->steps);
    EXPECT_EQ(among.facts()->steady_steps, alone.facts()->steady_steps);
    EXPECT_EQ(among.facts()->step_ns, alone.facts()->step_ns);
    EXPECT_EQ(among.facts()->pulse.call, alone.facts()->pulse.call);
    EXPECT_EQ(among.facts()->pulse.per_step, alone.facts()->pulse.per_step);
}

}  // namespace
}  // namespace millrace::record
