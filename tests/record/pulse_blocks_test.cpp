#include "record/pulse_blocks.h"

#include <gtest/gtest.h>

#include <vector>

namespace millrace::record {
namespace {

/// A program whose calls are counted, on a clock of its own.
struct Counted {
    explicit Counted(double calls_per_step = 1, std::uint64_t launches = 100) {
        EXPECT_FALSE(blocks.set_call(CallKind::kEventRecord, calls_per_step, launches));
    }
    void run(int calls, std::uint64_t each) {
        for (int call = 0; call < calls; ++call) keep(blocks.add(time += each, ++number));
    }
    void window(std::uint64_t calls, std::uint64_t length) {
        keep(blocks.close());
        number += calls;
        time += length;
    }
    void keep(const std::optional<TraceBlock>& block) {
        if (block) seen.push_back(*block);
    }
    [[nodiscard]] double steps() const {
        double sum = 0;
        for (const TraceBlock& block : seen) sum += block.steps;
        return sum;
    }
    void expect_step(double nanoseconds) const {
        for (const TraceBlock& block : seen)
            EXPECT_NEAR(static_cast<double>(block.end - block.begin) / block.steps, nanoseconds, 1) << block.begin;
    }

    PulseBlocks blocks{9};
    std::uint64_t time = 5'000'000'000, number = 100;
    std::vector<TraceBlock> seen;
};

TEST(PulseBlocks, BlocksAreWholeStepsOfHalfASecond) {
    PulseBlocks unknown(9);
    EXPECT_FALSE(unknown.add(1, 1)) << "how many make a step is not known yet";
    EXPECT_FALSE(unknown.add(2'000'000'000, 2));
    Counted program(3);
    program.run(1000, 10'000'000);
    ASSERT_EQ(program.seen.size(), 19u);
    for (const TraceBlock& block : program.seen) {
        EXPECT_EQ(block.pid, 9u);
        EXPECT_EQ(block.call, CallKind::kEventRecord);
        EXPECT_EQ(block.calls_per_step, 3u);
        EXPECT_DOUBLE_EQ(block.steps, 17);
        EXPECT_EQ(block.end - block.begin, 510'000'000u);
    }
    EXPECT_EQ(program.seen[0].begin, 5'000'000'000u + 8 * 10'000'000u)
        << "the first number that three divides is 102; two steps to settle";
    EXPECT_EQ(program.seen[1].begin, program.seen[0].end);
    EXPECT_DOUBLE_EQ(program.blocks.step_ns(), 30e6);
}

TEST(PulseBlocks, WhereOneLinesCallsAreCountedNoOthersOfTheKindMatter) {
    Counted program(3);
    (void)program.blocks.set_call(CallKind::kEventRecord, 3, 100, true);
    program.run(1000, 10'000'000);
    ASSERT_EQ(program.seen.size(), 19u);
    EXPECT_EQ(program.seen[0].calls_per_step, 0u);
    EXPECT_DOUBLE_EQ(program.seen[0].steps, 17);
}

TEST(PulseBlocks, PulsesWithinStepsAddNothing) {
    Counted all(3), some(3);
    all.run(1000, 10'000'000);
    for (int call = 0; call < 1000; ++call) {
        some.time += 10'000'000;
        if (++some.number % 3 == 0) some.keep(some.blocks.add(some.time, some.number));
    }
    ASSERT_EQ(some.seen.size(), all.seen.size());
    for (std::size_t i = 0; i < all.seen.size(); ++i) EXPECT_EQ(some.seen[i].begin, all.seen[i].begin);
}

TEST(PulseBlocks, AStepLeftOutClosesTheBlock) {
    Counted program(3);
    program.run(60, 10'000'000);
    program.number += 3;
    program.run(300, 10'000'000);
    ASSERT_FALSE(program.seen.empty());
    program.expect_step(30e6);
    EXPECT_EQ(program.seen[0].end, 5'000'000'000u + 59 * 10'000'000u);
}

TEST(PulseBlocks, StrideIsOneCallOfAStep) {
    EXPECT_EQ(pulse_stride(0), 1u);
    EXPECT_EQ(pulse_stride(1), 1u);
    EXPECT_EQ(pulse_stride(266), 266u);
    EXPECT_EQ(pulse_stride(1e30), 1u << 20);
}

TEST(PulseBlocks, ARestOfTenStepsBeforeAWindowCounts) {
    for (const int steps : {9, 10}) {
        Counted program;
        program.run(1 + 2 + steps, 20'000'000);
        EXPECT_TRUE(program.seen.empty());
        const auto rest = program.blocks.close();
        EXPECT_EQ(rest.has_value(), steps >= 10) << steps;
        EXPECT_FALSE(program.blocks.close());
    }
}

TEST(PulseBlocks, TheFirstStepsAfterAWindowDoNotCount) {
    Counted program;
    for (int round = 0; round < 20; ++round) {
        program.run(1, 19'000'000);  // leaving a window holds the program up
        program.run(1, 45'000'000);
        program.run(60, 20'000'000);
        program.window(50, 1'200'000'000);
    }
    ASSERT_GE(program.seen.size(), 20u);
    program.expect_step(20e6);
    EXPECT_DOUBLE_EQ(program.blocks.step_ns(), 20e6);
}

TEST(PulseBlocks, TheEndOfTheProgramDoesNotCount) {
    for (const int tail : {5, 20, 24, 25, 26, 40}) {  // a block has 25 steps
        Counted program;
        program.run(100 + tail, 20'000'000);
        const std::size_t before = program.seen.size();
        program.time += 700'000'000;  // the queue is emptied, something is saved
        program.run(1, 20'000'000);
        program.blocks.abandon();
        program.keep(program.blocks.close());
        EXPECT_EQ(program.seen.size(), before) << tail;
        EXPECT_GE(program.seen.size(), 3u);
        program.expect_step(20e6);
    }
}

TEST(PulseBlocks, SlowStepsFillABlockEach) {
    Counted program;
    program.run(20, 700'000'000);
    EXPECT_GE(program.seen.size(), 15u);
    program.expect_step(700e6);
}

TEST(PulseBlocks, LongPausesAndStrangeNumbersBelongToNoBlock) {
    Counted program;
    program.run(60, 20'000'000);
    program.time += 30'000'000'000;  // evaluation
    program.run(60, 20'000'000);
    program.number = 3;  // counted anew
    program.run(60, 20'000'000);
    program.keep(program.blocks.close());
    ASSERT_GE(program.seen.size(), 6u);
    program.expect_step(20e6);
    EXPECT_FALSE(program.blocks.add(5, 1'000'000'000));
    EXPECT_FALSE(program.blocks.add(4, 7));
}

TEST(PulseBlocks, WaitingForAFullQueueIsTraining) {
    // One graph per step, a read every 200: the host runs ahead and waits for two seconds at once.
    Counted program(1, 1);
    for (int round = 0; round < 30; ++round) {
        program.run(199, 100'000);
        program.run(1, 2'000'000'000 - 19'900'000);
    }
    ASSERT_GE(program.seen.size(), 20u);
    double time = 0;
    for (const TraceBlock& block : program.seen) time += static_cast<double>(block.end - block.begin);
    EXPECT_NEAR(time / program.steps(), 10e6, 0.2e6);
}

TEST(PulseBlocks, LittleRunningTellsNoSpeed) {
    Counted few;
    few.run(18, 100'000'000);  // 1.8 s, 15 steps
    few.keep(few.blocks.close());
    EXPECT_FALSE(few.seen.empty());
    EXPECT_EQ(few.blocks.step_ns(), 0);
    Counted brief;
    brief.run(900, 1'000'000);
    brief.keep(brief.blocks.close());
    EXPECT_FALSE(brief.seen.empty());
    EXPECT_EQ(brief.blocks.step_ns(), 0);
    brief.window(50, 100'000'000);
    brief.run(600, 1'000'000);
    brief.keep(brief.blocks.close());
    EXPECT_DOUBLE_EQ(brief.blocks.step_ns(), 1e6);
}

TEST(PulseBlocks, OneOddBlockDoesNotMakeTheSpeed) {
    Counted program;
    program.run(300, 10'000'000);
    program.time += 900'000'000;  // shorter than what is known to be no training
    program.run(60, 10'000'000);
    EXPECT_DOUBLE_EQ(program.blocks.step_ns(), 10e6);
}

TEST(PulseBlocks, AnotherCallClosesWhatWasCounted) {
    Counted program;
    program.run(40, 10'000'000);
    EXPECT_TRUE(program.blocks.set_call(CallKind::kCopyAsync, 1, 100));
    EXPECT_FALSE(program.blocks.set_call(CallKind::kCopyAsync, 1, 100));
}

}  // namespace
}  // namespace millrace::record
