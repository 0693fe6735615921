// Steps that a loop of Python tells, by the lines of calls.

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string_view>
#include <vector>

#include "record/step_watch.h"

namespace millrace::record {
namespace {

/// A loop in train.py that copies at line 12 and waits at line 14; backward is another thread's.
struct LoopProgram {
    StepWatch watch;
    LoopTable loops;
    std::uint32_t correlation = 0;
    std::uint64_t now = 0;

    LoopProgram() {
        loops.add({"/home/u/train.py", "main", {{10, 30}}});
        text(1, "/home/u/train.py");
        text(2, "main");
        for (std::uint32_t line = 11; line < 15; ++line) {
            std::array<Record, 2> slots;
            slots[0].kind = RecordKind::kSite;
            slots[0].id = line;
            slots[0].count = 1;
            const SiteFrame frame{1, 2, line, 0};
            std::memcpy(static_cast<void*>(&slots[1]), &frame, sizeof frame);
            watch.add(slots[0], std::span(slots).subspan(1));
        }
    }
    void text(std::uint32_t id, std::string_view text) {
        std::array<Record, 2> slots;
        slots[0].kind = RecordKind::kText;
        slots[0].id = id;
        slots[0].bytes = text.size();
        std::memcpy(static_cast<void*>(&slots[1]), text.data(), text.size());
        watch.add(slots[0], std::span(slots).subspan(1));
    }
    Record call(CallKind kind, std::uint32_t site, std::uint32_t thread = 7) {
        Record record;
        record.kind = RecordKind::kCall;
        record.what = static_cast<std::uint8_t>(kind);
        record.begin = now += 10'000;
        record.end = now + 5'000;
        record.thread = thread;
        record.site = site;
        record.correlation = ++correlation;
        return record;
    }
    void add(const Record& launch, std::uint32_t kernel) {
        Record work;
        work.kind = RecordKind::kWork;
        work.id = kernel;
        work.correlation = launch.correlation;
        watch.add(launch);
        watch.add(work);
    }
    void add(const std::vector<Record>& launches) {
        for (const Record& launch : launches) add(launch, 10 + launch.correlation % 6);
    }
    /// The launches of its backward pass, which are not added.
    std::vector<Record> step(bool backward, std::uint32_t layers = 1) {
        watch.add(call(CallKind::kCopyAsync, 12));
        watch.add(call(CallKind::kCopyAsync, 11));
        for (std::uint32_t i = 0; i < 4 * layers; ++i) add(call(CallKind::kLaunch, 13), 1 + i % 4);
        std::vector<Record> calls;
        for (std::uint32_t kernel = 10; backward && kernel < 16; ++kernel) calls.push_back(call(CallKind::kLaunch, 0, 8));
        watch.add(call(CallKind::kStreamSync, 14));
        return calls;
    }
};

TEST(StepWatchLoops, StepsWhoseBackwardPassIsStillToComeAreNoEvaluation) {
    LoopProgram program;
    std::vector<Record> late;
    for (int step = 0; step < 40; ++step) {
        const std::vector<Record> backward = program.step(true);
        if (step < 20)
            program.add(backward);
        else
            late.insert(late.end(), backward.begin(), backward.end());
    }
    const auto early = program.watch.facts(&program.loops);
    ASSERT_TRUE(early);
    EXPECT_EQ(early->source, StepSource::kLoop);
    EXPECT_GE(early->steps, 35u);
    EXPECT_TRUE(early->trains);
    EXPECT_EQ(early->idle, 0u);
    program.add(late);
    for (int step = 0; step < 20; ++step) program.add(program.step(true));
    const auto facts = program.watch.facts(&program.loops);
    EXPECT_GE(facts->training, 55u);
    EXPECT_EQ(facts->idle, 0u);
}

TEST(StepWatchLoops, StepsThatALoopTellsMayDifferInLength) {
    LoopProgram program;
    for (std::uint32_t step = 0; step < 40; ++step) program.add(program.step(true, step % 3 == 2 ? 30 : 1));
    const auto facts = program.watch.facts(&program.loops);
    ASSERT_TRUE(facts);
    EXPECT_EQ(facts->source, StepSource::kLoop);
    EXPECT_GE(facts->steps, 35u);
    EXPECT_LE(facts->steady_steps, 3u);
    EXPECT_NE(facts->pulse.site, 0u);
    EXPECT_EQ(facts->pulse.per_step, 1u);
}

TEST(StepWatchLoops, WhereNothingTrainsWaitsAreNotCounted) {
    for (const bool backward : {false, true}) {
        LoopProgram program;
        for (int step = 0; step < 40; ++step) program.add(program.step(backward));
        const auto facts = program.watch.facts(&program.loops);
        ASSERT_TRUE(facts);
        EXPECT_EQ(facts->trains, backward);
        EXPECT_EQ(facts->pulse.call, backward ? CallKind::kStreamSync : CallKind::kCopyAsync);
    }
}

}  // namespace
}  // namespace millrace::record
