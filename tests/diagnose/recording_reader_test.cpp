#include "diagnose/reading/recording_reader.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "diagnose/recorded_run.h"

namespace millrace::diagnose {
namespace {

bool has_reader_remark(const Timeline& timeline, std::string_view part) {
    return std::ranges::any_of(timeline.remarks, [&](const std::string& text) { return text.find(part) != std::string::npos; });
}

class Recording : public ::testing::Test {
protected:
    Timeline read() {
        auto timeline = read_recording(folder());
        EXPECT_TRUE(timeline.ok()) << timeline.error().text();
        return timeline.ok() ? std::move(*timeline) : Timeline{};
    }
    [[nodiscard]] io::Path folder() const { return temporary_ / "run"; }
    test::TemporaryFolder temporary_;
};

TEST_F(Recording, CallsWorkAndStacksAreJoined) {
    write_recording(folder());
    const Timeline timeline = read();
    EXPECT_EQ(timeline.source, Source::kRecording);
    EXPECT_EQ(timeline.title, "python train.py --fast");
    EXPECT_EQ(timeline.device_name, "NVIDIA H200");
    ASSERT_EQ(timeline.calls.size(), 15u);
    ASSERT_EQ(timeline.work.size(), 9u);
    const Call& upload = timeline.calls[0];
    EXPECT_EQ(upload.begin, static_cast<Time>(kBoot + 1000));
    EXPECT_EQ(upload.kind, CallKind::kCopyAsync);
    EXPECT_EQ(upload.bytes, 65'536u);
    EXPECT_EQ(upload.from, MemoryKind::kPageable);
    EXPECT_EQ(upload.to, MemoryKind::kDevice);
    EXPECT_EQ(upload.content, 0xfeedu);
    EXPECT_EQ(upload.stream, 7u);
    EXPECT_EQ(timeline.names[upload.name], "cudaMemcpyAsync");
    EXPECT_EQ(timeline.stacks[upload.stack], (Stack{{"train.py", 23, "step", false}, {"train.py", 40, "main", false}}));
    EXPECT_TRUE(timeline.has_call_stacks);
    EXPECT_EQ(timeline.calls[4].event, 55u);
    EXPECT_EQ(timeline.calls[4].content, 0u);
    EXPECT_EQ(timeline.names[timeline.work[0].name], "Memcpy HtoD (Pageable -> Device)");
    EXPECT_EQ(timeline.work[1].shape, 77u);
    EXPECT_EQ(timeline.work[1].launch, record::packed({1320, 256, 64, 2048}));
    EXPECT_EQ(timeline.work[1].bytes, 0u) << "a kernel moves none";
    EXPECT_EQ(timeline.work[2].launch, 0u) << "recorded before sizes were";
    EXPECT_EQ(timeline.multiprocessors.count, 132u);
    EXPECT_EQ(timeline.run.begin, static_cast<Time>(kBoot));
    EXPECT_EQ(timeline.run.end, static_cast<Time>(kBoot + 10'000'000)) << "of processes that go on, to the last sample";
    EXPECT_EQ(timeline.work[1].process, 4000u);
    ASSERT_EQ(timeline.arguments.size(), 3u);
    EXPECT_EQ(timeline.arguments[0].pointers, (std::vector<std::uint64_t>{0x7f0000001000, 0x7f0000002000}));
    EXPECT_EQ(timeline.arguments[0].rest, 0xabcdu);
}

TEST_F(Recording, EverythingBesideCallsIsThere) {
    write_recording(folder());
    const Timeline timeline = read();
    ASSERT_EQ(timeline.windows.size(), 1u);
    EXPECT_EQ(timeline.windows[0].end - timeline.windows[0].begin, 3'000'000);
    ASSERT_EQ(timeline.blocks.size(), 1u);
    EXPECT_EQ(timeline.blocks[0].steps, 600);
    ASSERT_EQ(timeline.ranges.size(), 1u);
    EXPECT_EQ(timeline.names[timeline.ranges[0].name], "marked");
    EXPECT_EQ(timeline.dropped, 5u);
    ASSERT_EQ(timeline.samples.size(), 1u);
    EXPECT_EQ(timeline.samples[0].state, 'D');
    EXPECT_EQ(timeline.names[timeline.samples[0].wait], "read");
    EXPECT_EQ(timeline.stacks[timeline.samples[0].stack].at(0).file, "loader.py");
    ASSERT_EQ(timeline.processes.size(), 2u);
    EXPECT_EQ(timeline.processes[0].main_thread, 4000u);
    EXPECT_EQ(timeline.processes[1].parent, 4000u);
    EXPECT_FALSE(timeline.processes[1].has_gpu);
    EXPECT_TRUE(has_reader_remark(timeline, "graphs were seen as a whole"));
    ASSERT_NE(timeline.loops.of("train.py", "main"), nullptr);
    EXPECT_EQ(*timeline.loops.of("train.py", "main"), (std::vector<record::LineRange>{{38, 52}, {39, 41}}));
    EXPECT_EQ(timeline.loops.of("train.py", "step"), nullptr);
}

TEST_F(Recording, SamplesOfTheMachineLieOnTheTracesClock) {
    write_recording(folder());
    const Timeline timeline = read();
    ASSERT_EQ(timeline.machine.size(), 1u);
    const MachineSample& sample = timeline.machine[0];
    EXPECT_NEAR(static_cast<double>(sample.time - static_cast<Time>(kBoot)), 0.5e9, 1e3);
    EXPECT_EQ(sample.gpu_utilization, 0.4);
    EXPECT_EQ(sample.cpu_utilization, 0.25);
    EXPECT_EQ(sample.throttled, true);
    EXPECT_EQ(sample.throttle_reason, "thermal");
    EXPECT_FALSE(sample.sm_active);
    EXPECT_EQ(timeline.processors, 2u);
}

TEST_F(Recording, TheLinkIsTheOneThatWasReadElseTheUsualOne) {
    write_recording(folder());
    Timeline timeline = read();
    EXPECT_NEAR(timeline.link_bytes_per_second.value_or(0), 63e9, 0.1e9) << "by the name";
    EXPECT_TRUE(timeline.link_is_assumed);
    const std::string samples = *io::read_text(folder() / "samples.jsonl");
    write_lines(folder() / "samples.jsonl",
                samples + "{\"kind\":\"sample\",\"time\":1700000001,\"gpu0/link_bytes_per_second\":31.5e9}\n");
    timeline = read();
    EXPECT_EQ(timeline.link_bytes_per_second, 31.5e9);
    EXPECT_FALSE(timeline.link_is_assumed);
}

TEST_F(Recording, BlocksSayWhatCountingTheirStepsCost) {
    record::RunDirectory run = new_run(folder());
    auto trace = record::TraceWriter::create(folder() / record::kTraceName);
    ASSERT_TRUE(trace.ok());
    Slots slots;
    slots.call(record::CallKind::kLaunch, 200, 300, 1, 0);
    ASSERT_TRUE(trace->records({9, 0, 0}, slots.slots).ok());
    ASSERT_TRUE(trace->block({1000, 1'000'001'000, 1000, 9, 2, CallKind::kGraphLaunch}).ok());
    ASSERT_TRUE(trace->block({2'000'000'000, 3'000'000'000, 1000, 9, 2, CallKind::kEventRecord}).ok());
    ASSERT_TRUE(trace->flush().ok());
    EXPECT_NEAR(read().counting_share, 0.005, 1e-9) << "2,000 launches in two seconds, 5 us each";
}

TEST_F(Recording, BlocksSayHowLongCuptiWasThere) {
    record::RunDirectory run = new_run(folder());
    auto trace = record::TraceWriter::create(folder() / record::kTraceName);
    ASSERT_TRUE(trace.ok());
    Slots slots;
    slots.call(record::CallKind::kLaunch, 200, 300, 1, 0);
    record::Record left;
    left.kind = record::RecordKind::kLeft;
    left.begin = left.end = 1'500'000'000;
    ASSERT_TRUE(trace->records({9, 0, 0}, slots.slots).ok());
    ASSERT_TRUE(trace->block({1'000'000'000, 3'000'000'000, 1000, 9, 2, CallKind::kGraphLaunch}).ok());
    ASSERT_TRUE(trace->flush().ok());
    EXPECT_EQ(read().presence_share, 1) << "nobody says that it left";
    ASSERT_TRUE(trace->records({9, 0, 0}, std::span(&left, 1)).ok());
    ASSERT_TRUE(trace->block({3'000'000'000, 4'000'000'000, 1000, 8, 2, CallKind::kGraphLaunch}).ok());
    ASSERT_TRUE(trace->flush().ok());
    EXPECT_NEAR(read().presence_share, 0.5, 1e-12) << "half a second of two in one process, a second in another";
    record::Record window;
    window.kind = record::RecordKind::kWindow;
    window.flags = record::kWindowBegins;
    window.begin = window.end = 2'250'000'000;
    ASSERT_TRUE(trace->records({9, 1, 0}, std::span(&window, 1)).ok());
    ASSERT_TRUE(trace->flush().ok());
    EXPECT_NEAR(read().presence_share, 0.75, 1e-12) << "the process executes another program, which has it again";
}

TEST_F(Recording, ACutTraceIsReadToItsLastWholeFrame) {
    write_recording(folder());
    const auto path = folder() / record::kTraceName;
    const std::string whole = *io::read_text(path);
    for (std::size_t length = 16; length < whole.size(); length += 7) {
        write_lines(path, whole.substr(0, length));
        const auto timeline = read_recording(folder());
        ASSERT_TRUE(timeline.ok() || timeline.error().exit_status == 4) << length << ": " << timeline.error().text();
    }
    write_lines(path, whole.substr(0, whole.size() - 1));
    EXPECT_TRUE(has_reader_remark(read(), "torn"));
}

TEST_F(Recording, AnOpenWindowEndsWithTheLastRecord) {
    record::RunDirectory run = new_run(folder());
    auto trace = record::TraceWriter::create(folder() / record::kTraceName);
    ASSERT_TRUE(trace.ok());
    Slots slots;
    slots.add(record::RecordKind::kWindow, 100, 100).flags = record::kWindowBegins;
    slots.call(record::CallKind::kLaunch, 200, 300, 1, 0);
    ASSERT_TRUE(trace->records({9, 0, 0}, slots.slots).ok());
    ASSERT_TRUE(trace->flush().ok());
    const Timeline timeline = read();
    ASSERT_EQ(timeline.windows.size(), 1u);
    EXPECT_EQ(timeline.windows[0].end, 300);
    EXPECT_TRUE(has_reader_remark(timeline, "going on"));
}

TEST_F(Recording, ValuesOutsideTheirKindsAndTimesWithoutSenseAreTamed) {
    record::RunDirectory run = new_run(folder());
    auto trace = record::TraceWriter::create(folder() / record::kTraceName);
    ASSERT_TRUE(trace.ok());
    Slots slots;
    record::Record& call = slots.call(record::CallKind::kLaunch, ~std::uint64_t{0}, 5, 1, 999, 999);
    call.what = 250;
    call.from = call.to = 99;
    record::Record& work = slots.work(record::WorkKind::kKernel, 10, 5, 1, 0);
    work.what = 77;
    slots.add(record::RecordKind::kRange, ~std::uint64_t{0}, ~std::uint64_t{0});
    slots.add(static_cast<record::RecordKind>(200), 1, 2);
    ASSERT_TRUE(trace->records({9, 0, 0}, slots.slots).ok());
    ASSERT_TRUE(trace->block({5, 1, 3, 9}).ok());
    ASSERT_TRUE(trace->flush().ok());
    const Timeline timeline = read();
    ASSERT_EQ(timeline.calls.size(), 1u);
    EXPECT_EQ(timeline.calls[0].kind, CallKind::kOther);
    EXPECT_EQ(timeline.calls[0].from, MemoryKind::kUnknown);
    EXPECT_GE(timeline.calls[0].end, timeline.calls[0].begin);
    EXPECT_EQ(timeline.calls[0].stack, kNoStack);
    EXPECT_EQ(timeline.work.at(0).end, timeline.work.at(0).begin);
    EXPECT_TRUE(timeline.blocks.empty());
}

TEST_F(Recording, RecordsBeyondTheLimitAreCountedAsDropped) {
    write_recording(folder());
    const auto timeline = read_recording(folder(), {}, {.records = 10});
    ASSERT_TRUE(timeline.ok());
    EXPECT_LE(timeline->calls.size() + timeline->work.size(), 10u);
    EXPECT_GT(timeline->dropped, 10u);
    EXPECT_TRUE(has_reader_remark(*timeline, "left out"));
}

TEST_F(Recording, WithoutAnyDataIsStatusFour) {
    {
        record::RunDirectory run = new_run(folder());
        auto trace = record::TraceWriter::create(folder() / record::kTraceName);
        ASSERT_TRUE(trace->flush().ok());
    }
    const auto timeline = read_recording(folder());
    ASSERT_FALSE(timeline.ok());
    EXPECT_EQ(timeline.error().exit_status, 4);
}

TEST_F(Recording, ParametersAreReadByTheirKernelsHoweverManyThereAre) {
    constexpr std::uint32_t kLaunches = 40, kLate = 3;  // the kernels' records come some launches later
    {
        record::RunDirectory run = new_run(folder());
        auto trace = record::TraceWriter::create(run.path() / record::kTraceName);
        ASSERT_TRUE(trace.ok());
        Slots slots;
        slots.text(1, "vectorized_elementwise_kernel");
        slots.add(record::RecordKind::kWindow, kBoot, kBoot).flags = record::kWindowBegins;
        for (std::uint32_t i = 1; i <= kLaunches + kLate; ++i) {
            const std::uint64_t heap = 0x10000 + i * 16;  // what no kernel can read, at the end of the functor
            if (i <= kLaunches)
                slots.arguments(i, {{100, record::argument_index(0, 0, 4) | record::kNoPointer},
                                    {heap, record::argument_index(8, 1, 8) | record::kNoPointer},
                                    {0x7f0000001000, record::argument_index(16, 2, 8)},
                                    {0x7f0000002000, record::argument_index(24, 2, 8)},
                                    {0, 0xabcd + i}});
            if (i > kLate) slots.work(record::WorkKind::kKernel, kBoot + i * 10, kBoot + i * 10 + 5, i - kLate, 1);
        }
        ASSERT_TRUE(trace->records({4000, 0, 0}, slots.slots).ok());
        ASSERT_TRUE(trace->flush().ok());
    }
    for (const std::size_t words : {std::size_t{1} << 24, std::size_t{50}, std::size_t{47}}) {
        const auto timeline = read_recording(folder(), {}, {.words = words});
        ASSERT_TRUE(timeline.ok()) << timeline.error().text();
        ASSERT_EQ(timeline->arguments.size(), kLaunches);
        for (const Arguments& one : timeline->arguments) {
            EXPECT_EQ(one.pointers, (std::vector<std::uint64_t>{0x7f0000001000, 0x7f0000002000})) << words;
            EXPECT_EQ(one.rest, timeline->arguments[0].rest) << words << ", launch " << one.correlation;
        }
    }
}

}  // namespace
}  // namespace millrace::diagnose
