#include "diagnose/reading/kineto_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "diagnose/reading/call_names.h"
#include "diagnose/reading/gpu_models.h"
#include "places.h"
#include "temporary_folder.h"
#include "text_source.h"

namespace millrace::diagnose {
namespace {

base::Result<Timeline> read_text(std::string_view text, const KinetoLimits& limits = {}) {
    test::TextSource source(text, 1000);
    return read_kineto(source, "trace.json", {}, limits);
}

std::string trace_of(std::string_view events) { return fmt::format(R"({{"schemaVersion":1,"traceEvents":[{}]}})", events); }

constexpr std::string_view kLaunch =
    R"({"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":9,"tid":11,"ts":100.001,"dur":5.5,"args":{"correlation":7}})";
constexpr std::string_view kKernelEvent =
    R"({"ph":"X","cat":"kernel","name":"k<int>","pid":0,"tid":3,"ts":106,"dur":2.25,"args":{"device":1,"stream":3,"correlation":7,"grid":[4,1,1],"block":[32,1,1]}})";

std::string both() { return fmt::format("{},{}", kLaunch, kKernelEvent); }

Timeline golden_trace(const char* name) {
    auto timeline = read_kineto(testing::source_root() / "tests/goldens/kineto" / name);
    EXPECT_TRUE(timeline.ok()) << timeline.error().text();
    return timeline.ok() ? std::move(*timeline) : Timeline{};
}

bool has_remark(const Timeline& timeline, std::string_view part) {
    return std::ranges::any_of(timeline.remarks, [&](const std::string& text) { return text.find(part) != std::string::npos; });
}

TEST(KinetoReader, CallsAndWorkAreJoinedToTheNanosecond) {
    const auto timeline = read_text(trace_of(both()));
    ASSERT_TRUE(timeline.ok()) << timeline.error().text();
    ASSERT_EQ(timeline->calls.size(), 1u);
    ASSERT_EQ(timeline->work.size(), 1u);
    const Call& call = timeline->calls[0];
    EXPECT_EQ(call.begin, 100'001);
    EXPECT_EQ(call.end, 105'501);
    EXPECT_EQ(call.process, 9u);
    EXPECT_EQ(call.thread, 11u);
    EXPECT_EQ(call.kind, CallKind::kLaunch);
    EXPECT_EQ(call.stream, 3u);
    EXPECT_EQ(timeline->names[call.name], "cudaLaunchKernel");
    const Work& work = timeline->work[0];
    EXPECT_EQ(work.begin, 106'000);
    EXPECT_EQ(work.end, 108'250);
    EXPECT_EQ(work.process, 9u);
    EXPECT_EQ(work.device, 1u);
    EXPECT_EQ(work.correlation, call.correlation);
    EXPECT_NE(work.shape, 0u);
    EXPECT_EQ(record::unpacked(work.launch).blocks, 4u);
    EXPECT_EQ(record::unpacked(work.launch).threads, 32u);
    EXPECT_EQ(record::unpacked(work.launch).registers, 0u) << "the trace does not say";
    EXPECT_EQ(timeline->multiprocessors.count, 0u);
    EXPECT_EQ(timeline->run.end, 0) << "nobody saw the run begin";
    ASSERT_EQ(timeline->windows.size(), 1u);
    EXPECT_EQ(timeline->windows[0].begin, 100'001);
    EXPECT_EQ(timeline->windows[0].end, 108'250);
    ASSERT_EQ(timeline->processes.size(), 1u);
    EXPECT_EQ(timeline->processes[0].main_thread, 11u);
    EXPECT_TRUE(timeline->processes[0].has_gpu);
    EXPECT_EQ(timeline->source, Source::kKineto);
    EXPECT_EQ(timeline->title, "trace.json");
}

TEST(KinetoReader, KernelsSayHowLargeTheyWereLaunched) {
    constexpr std::string_view kSized =
        R"({"ph":"X","cat":"kernel","name":"k","pid":0,"tid":3,"ts":106,"dur":2,"args":{"device":0,"stream":3,"correlation":7,"registers per thread":168,"shared memory":204800,"grid":[66,4,2],"block":[128,3,1]}})";
    const std::string text =
        fmt::format(R"({{"deviceProperties":[{{"id":0,"name":"NVIDIA H200","computeMajor":9,"computeMinor":0,"numSms":132}}],)"
                    R"("traceEvents":[{},{}]}})",
                    kLaunch, kSized);
    const auto timeline = read_text(text);
    ASSERT_TRUE(timeline.ok()) << timeline.error().text();
    const record::LaunchSize size = record::unpacked(timeline->work.at(0).launch);
    EXPECT_EQ(std::tuple(size.blocks, size.threads, size.registers, size.shared_bytes), std::tuple(528u, 384u, 168u, 204'800u));
    EXPECT_EQ(timeline->multiprocessors.count, 132u);
    EXPECT_DOUBLE_EQ(waves_of(size, timeline->multiprocessors).value_or(0), 4) << "one block fits into the shared memory";

    const auto absurd = read_text(trace_of(fmt::format(
        "{},{}", kLaunch,
        R"({"ph":"X","cat":"kernel","name":"k","pid":0,"tid":3,"ts":106,"dur":2,"args":{"correlation":7,"registers per thread":-1,"shared memory":"much","grid":[-4,1e30,7],"block":[]}})")));
    ASSERT_TRUE(absurd.ok()) << absurd.error().text();
    EXPECT_FALSE(waves_of(record::unpacked(absurd->work.at(0).launch), timeline->multiprocessors));
}

TEST(KinetoReader, TheLinkIsAssumedByTheDevice) {
    const auto link = [](std::string_view properties) {
        const auto timeline =
            read_text(fmt::format(R"({{"deviceProperties":[{{"id":1,{}}}],"traceEvents":[{}]}})", properties, both()));
        EXPECT_TRUE(timeline.ok());
        if (!timeline.ok() || !timeline->link_bytes_per_second) return -1.0;
        EXPECT_TRUE(timeline->link_is_assumed);
        return *timeline->link_bytes_per_second;
    };
    EXPECT_NEAR(link(R"("name":"NVIDIA H200","computeMajor":9,"computeMinor":0)"), 63e9, 0.1e9);
    EXPECT_NEAR(link(R"("name":"a later one","computeMajor":8,"computeMinor":6)"), 31.5e9, 0.1e9);
    EXPECT_EQ(link(R"("name":"a later one")"), -1);
    EXPECT_EQ(link(R"("name":"a later one","computeMajor":18446744073709551615)"), -1);
    EXPECT_EQ(link(R"("name":"a later one","computeMajor":"nine")"), -1);
}

TEST(KinetoReader, KeysMayComeInAnyOrderTwiceAndUnknown) {
    const auto timeline = read_text(trace_of(
        R"({"args":{"correlation":1,"correlation":7,"x":[[{}]]},"dur":1,"ts":5,"ts":6,"tid":"11","pid":9,"name":"cudaLaunchKernel","cat":"cuda_runtime","ph":"X","zz":{"a":1}})"));
    ASSERT_TRUE(timeline.ok()) << timeline.error().text();
    ASSERT_EQ(timeline->calls.size(), 1u);
    EXPECT_EQ(timeline->calls[0].correlation, 7u);
    EXPECT_EQ(timeline->calls[0].begin, 6000);
    EXPECT_EQ(timeline->calls[0].thread, 11u);
}

TEST(KinetoReader, ABareListOfEventsIsATraceToo) {
    const auto timeline = read_text("[" + both() + "]");
    ASSERT_TRUE(timeline.ok()) << timeline.error().text();
    EXPECT_EQ(timeline->work.size(), 1u);
}

TEST(KinetoReader, CopiesSayWhereTheyComeFrom) {
    const auto timeline = read_text(trace_of(
        R"({"ph":"X","cat":"cuda_runtime","name":"cudaMemcpyAsync","pid":9,"tid":9,"ts":1,"dur":50,"args":{"correlation":3}},)"
        R"({"ph":"X","cat":"gpu_memcpy","name":"Memcpy HtoD (Pageable -> Device\u0029","pid":0,"tid":7,"ts":60,"dur":5,"args":{
    "device" : 0, "stream" : 7, "correlation" : 3, "bytes" : 4096}},)"
        R"({"ph":"X","cat":"gpu_memset","name":"Memset (Device\u0029","pid":0,"tid":7,"ts":70,"dur":1,"args":{
    "device" : 0, "stream" : 7, "correlation" : 4, "bytes" : 12
}
})"));
    ASSERT_TRUE(timeline.ok()) << timeline.error().text();
    const Call& call = timeline->calls.at(0);
    EXPECT_EQ(call.kind, CallKind::kCopyAsync);
    EXPECT_EQ(call.bytes, 4096u);
    EXPECT_EQ(call.from, MemoryKind::kPageable);
    EXPECT_EQ(call.to, MemoryKind::kDevice);
    EXPECT_EQ(timeline->work.at(0).from, MemoryKind::kPageable);
    EXPECT_EQ(timeline->work.at(1).kind, WorkKind::kSet);
    EXPECT_EQ(timeline->work.at(1).bytes, 12u);
}

TEST(KinetoReader, TheOuterOfTwoCallsWithOneCorrelationStays) {
    const auto timeline = read_text(trace_of(
        R"({"ph":"X","cat":"cuda_driver","name":"cuLaunchKernel","pid":9,"tid":9,"ts":2,"dur":3,"args":{"correlation":3}},)"
        R"({"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":9,"tid":9,"ts":1,"dur":5,"args":{"correlation":3}},)"
        R"({"ph":"X","cat":"cuda_driver","name":"cuLaunchKernel","pid":9,"tid":9,"ts":10,"dur":3,"args":{"correlation":4}})"));
    ASSERT_TRUE(timeline.ok()) << timeline.error().text();
    ASSERT_EQ(timeline->calls.size(), 2u);
    EXPECT_EQ(timeline->names[timeline->calls[0].name], "cudaLaunchKernel");
    EXPECT_EQ(timeline->names[timeline->calls[1].name], "cuLaunchKernel");
}

TEST(KinetoReader, SynchronisationsOfTheDeviceTellStreamAndEvent) {
    const auto timeline = read_text(trace_of(
        R"({"ph":"X","cat":"cuda_runtime","name":"cudaEventRecord","pid":9,"tid":9,"ts":1,"dur":1,"args":{"correlation":2}},)"
        R"({"ph":"X","cat":"cuda_runtime","name":"cudaEventSynchronize","pid":9,"tid":9,"ts":3,"dur":9,"args":{"correlation":3}},)"
        R"({"ph":"X","cat":"cuda_sync","name":"Event Sync","pid":0,"tid":7,"ts":3,"dur":9,"args":{"cuda_sync_kind":"Event Sync","wait_on_stream":7,"wait_on_cuda_event_record_corr_id":2,"wait_on_cuda_event_id":55,"stream":-1,"correlation":3}},)"
        R"({"ph":"X","cat":"cuda_sync","name":"Stream Sync","pid":0,"tid":7,"ts":30,"dur":9,"args":{"stream":7,"correlation":99}},)"
        R"({"ph":"X","cat":"cuda_sync","name":"Stream Wait Event","pid":0,"tid":7,"ts":50,"dur":9,"args":{"stream":7,"correlation":98}})"));
    ASSERT_TRUE(timeline.ok()) << timeline.error().text();
    ASSERT_EQ(timeline->calls.size(), 3u);
    EXPECT_EQ(timeline->calls[0].event, 55u);
    EXPECT_EQ(timeline->calls[1].event, 55u);
    EXPECT_EQ(timeline->calls[2].kind, CallKind::kStreamSync);
    EXPECT_EQ(timeline->calls[2].stream, 7u);
}

TEST(KinetoReader, TracesOfOldVersionsAreUnderstood) {
    const auto timeline = read_text(trace_of(
        R"({"ph":"X","cat":"Runtime","name":"cudaMemcpyAsync","pid":13721,"tid":"456","ts":360,"dur":20,"args":{"correlation":334,"external id":4}},)"
        R"({"ph":"X","cat":"Memcpy","name":"Memcpy HtoD (Pageable -> Device\u0029","pid":0,"tid":"stream 7","ts":405,"dur":10,"args":{
    "stream" : 7, "correlation" : 334}},)"
        R"({"ph":"X","cat":"Kernel","name":"k","pid":0,"tid":"stream 7","ts":430,"dur":10,"args":{"correlation":335}},)"
        R"({"ph":"X","cat":"Operator","name":"ProfilerStep#1","pid":13721,"tid":"123","ts":50,"dur":400,"args":{}})"));
    ASSERT_TRUE(timeline.ok()) << timeline.error().text();
    EXPECT_EQ(timeline->calls.at(0).thread, 456u);
    EXPECT_EQ(timeline->work.at(1).stream, 7u);
    EXPECT_EQ(timeline->names[timeline->ranges.at(0).name], "ProfilerStep#1");
}

TEST(KinetoReader, CollectivesAreCommunication) {
    const auto timeline = read_text(trace_of(
        R"({"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce_Sum_f32_RING_LL","pid":0,"tid":7,"ts":1,"dur":1},)"
        R"({"ph":"X","cat":"kernel","name":"vendor_thing","pid":0,"tid":7,"ts":3,"dur":1,"args":{"Collective name":"allreduce"}},)"
        R"({"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":5,"dur":1})"));
    ASSERT_TRUE(timeline.ok()) << timeline.error().text();
    EXPECT_TRUE(timeline->work.at(0).communication);
    EXPECT_TRUE(timeline->work.at(1).communication);
    EXPECT_FALSE(timeline->work.at(2).communication);
}

TEST(KinetoReader, StacksComeFromTheFunctionsACallLiesIn) {
    const Timeline timeline = golden_trace("with_stack.json");
    EXPECT_TRUE(timeline.has_call_stacks);
    EXPECT_EQ(timeline.device_name, "NVIDIA H200");
    ASSERT_EQ(timeline.processes.size(), 1u);
    EXPECT_EQ(timeline.processes[0].command, "python3");
    std::size_t uploads = 0, backward = 0;
    for (const Call& call : timeline.calls) {
        const Stack& stack = timeline.stacks.at(call.stack);
        ASSERT_FALSE(stack.empty());
        EXPECT_EQ(stack.back(), (Frame{"train.py", 1, "<module>", false}));
        if (call.from == MemoryKind::kPageable) {
            ++uploads;
            ASSERT_EQ(stack.size(), 3u);
            EXPECT_EQ(stack[0], (Frame{"train.py", 20, "load_batch", false}));
            EXPECT_EQ(stack[1], (Frame{"train.py", 31, "train_step", false}));
        }
        if (call.thread == 4301) {  // a thread of autograd's: the stack goes on in the thread that waits for it
            ++backward;
            EXPECT_EQ(stack[0].function, "aten::addmm");
            EXPECT_TRUE(stack[0].native);
            EXPECT_TRUE(std::ranges::count(stack, Frame{"torch/_tensor.py", 570, "backward", false})) << call.begin;
        }
    }
    EXPECT_EQ(uploads, 5u);
    EXPECT_EQ(backward, 15u);
    // Addresses in names of built-in functions would make every stack another.
    EXPECT_LT(timeline.stacks.size(), 20u);
    EXPECT_TRUE(has_remark(timeline, "where functions begin"));
}

TEST(KinetoReader, StepsLoaderMemoryAndOverheadAreKept) {
    const Timeline timeline = golden_trace("plain.json");
    const auto count = [&](std::string_view prefix) {
        return std::ranges::count_if(timeline.ranges,
                                     [&](const Range& range) { return timeline.names[range.name].starts_with(prefix); });
    };
    EXPECT_EQ(count("ProfilerStep#"), 4);
    EXPECT_EQ(count("enumerate(DataLoader)"), 4);
    ASSERT_EQ(timeline.machine.size(), 1u);
    EXPECT_EQ(timeline.machine[0].memory_used_bytes, 1073741824.0);
    EXPECT_EQ(timeline.machine[0].memory_total_bytes, 150121545728.0);
    EXPECT_EQ(timeline.profiler_work.size(), 1u);
    EXPECT_TRUE(has_remark(timeline, "the profiler itself took 0.1 ms"));
    EXPECT_FALSE(timeline.has_call_stacks);
    EXPECT_TRUE(has_remark(timeline, "with_stack=True"));
    EXPECT_TRUE(std::ranges::is_sorted(timeline.calls, {}, &Call::begin));
    EXPECT_TRUE(std::ranges::is_sorted(timeline.work, {}, &Work::begin));
}

TEST(KinetoReader, CallStacksInArgumentsOfOperatorsCount) {
    const auto timeline = read_text(trace_of(fmt::format(
        R"({{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":9,"tid":11,"ts":99,"dur":50,"args":{{"Call stack":"lib/f.py(3): f;train.py(8): main"}}}},{})",
        both())));
    ASSERT_TRUE(timeline.ok()) << timeline.error().text();
    const Stack& stack = timeline->stacks.at(timeline->calls.at(0).stack);
    ASSERT_EQ(stack.size(), 3u);
    EXPECT_EQ(stack[0].function, "aten::mm");
    EXPECT_EQ(stack[1], (Frame{"lib/f.py", 3, "f", false}));
    EXPECT_EQ(stack[2], (Frame{"train.py", 8, "main", false}));
}

TEST(KinetoReader, ACutTraceIsReadAsFarAsItGoes) {
    const std::string whole = trace_of(both() + "," + std::string(kKernelEvent));
    const auto full = read_text(whole);
    ASSERT_TRUE(full.ok());
    EXPECT_FALSE(has_remark(*full, "stops at byte"));
    std::size_t read = 0;
    for (std::size_t length = 0; length < whole.size(); ++length) {
        const auto timeline = read_text(whole.substr(0, length));
        if (!timeline.ok()) {
            EXPECT_TRUE(timeline.error().exit_status == 2 || timeline.error().exit_status == 4);
            EXPECT_EQ(timeline.error().place, "trace.json");
            continue;
        }
        ++read;
        ASSERT_TRUE(has_remark(*timeline, "stops at byte")) << length;
    }
    EXPECT_GT(read, kKernelEvent.size());
}

TEST(KinetoReader, WhatIsNoTraceIsAnErrorWithTheReason) {
    const auto text_of = [](std::string_view text) {
        const auto timeline = read_text(text);
        return timeline.ok() ? std::string("read") : timeline.error().text();
    };
    EXPECT_EQ(text_of(""), "trace.json: is no trace of PyTorch's profiler: ends where a value should stand at byte 0");
    EXPECT_EQ(text_of("hello"), "trace.json: is no trace of PyTorch's profiler: it has no list traceEvents");
    EXPECT_EQ(text_of("{}"), "trace.json: is no trace of PyTorch's profiler: it has no list traceEvents");
    EXPECT_EQ(text_of(R"({"traceEvents":7})"), "trace.json: is no trace of PyTorch's profiler: it has no list traceEvents");
    EXPECT_NE(text_of(R"({"traceEvents":[]})").find("has no event of a GPU"), std::string::npos);
    EXPECT_EQ(read_text(R"({"traceEvents":[]})").error().exit_status, 4);
    EXPECT_EQ(read_text(trace_of("1,\"x\",null,[],{}")).error().exit_status, 4);
    EXPECT_NE(text_of(trace_of(std::string(kLaunch) + " " + std::string(kKernelEvent))).find("is broken at byte"),
              std::string::npos);
    EXPECT_NE(text_of(trace_of(std::string(300, '['))).find("256 brackets"), std::string::npos);
}

TEST(KinetoReader, ImpossibleTimesAndTypesLeaveAnEventOut) {
    const std::string with = R"({"ph":"X","cat":"kernel","name":"k","pid":0,"tid":3,)";
    std::string events;
    for (const char* times :
         {R"("ts":1e300,"dur":1)", R"("ts":NaN,"dur":1)", R"("ts":"soon","dur":1)", R"("ts":[],"dur":1)",
          R"("ts":99999999999999999999999,"dur":1)", R"("ts":1,"dur":1e18)", R"("dur":1)", R"("ts":-1e18,"dur":1)"})
        events += with + times + "},";
    events += with + R"("ts":1.5e3,"dur":-7},)" + with + R"("ts":3})";
    const auto timeline = read_text(trace_of(events));
    ASSERT_TRUE(timeline.ok()) << timeline.error().text();
    ASSERT_EQ(timeline->work.size(), 2u);
    EXPECT_EQ(timeline->work[0].begin, 3000);
    EXPECT_EQ(timeline->work[1].begin, 1'500'000);
    EXPECT_EQ(timeline->work[1].end, 1'500'000);
    EXPECT_TRUE(has_remark(*timeline, "8 events without a possible time"));
}

TEST(KinetoReader, NumbersBeyondTheirFieldsAreUnknown) {
    const auto timeline = read_text(trace_of(
        R"({"ph":"X","cat":"cuda_runtime","name":"cudaMalloc","pid":-1,"tid":18446744073709551615,"ts":1,"dur":1,"args":{"correlation":4294967296,"bytes":-5}},)"
        R"({"ph":"X","cat":"kernel","name":"k","pid":99999999,"tid":7,"ts":1,"dur":1,"args":{"stream":1e99,"grid":[1e400,-1],"block":"x","graph node id":18446744073709551615}})"));
    ASSERT_TRUE(timeline.ok()) << timeline.error().text();
    EXPECT_EQ(timeline->calls.at(0).correlation, 0u);
    EXPECT_EQ(timeline->calls.at(0).bytes, 0u);
    EXPECT_EQ(timeline->calls.at(0).thread, 0u);
    EXPECT_EQ(timeline->work.at(0).device, 0xffffu);
    EXPECT_EQ(timeline->work.at(0).graph_node, ~std::uint64_t{0});
}

TEST(KinetoReader, RecordsBeyondTheLimitAreCounted) {
    std::string events;
    for (int i = 0; i < 50; ++i) events += (i > 0 ? "," : "") + std::string(kKernelEvent);
    const auto timeline = read_text(trace_of(events), {.records = 20});
    ASSERT_TRUE(timeline.ok());
    EXPECT_EQ(timeline->work.size(), 20u);
    EXPECT_TRUE(has_remark(*timeline, "its last 30 were left out"));
}

TEST(KinetoReader, EveryThreadOnItsOwnIsFine) {
    std::string events;
    for (int i = 0; i < 20'000; ++i)
        events += fmt::format(R"({}{{"ph":"X","cat":"{}","name":"f(1): g","pid":{},"tid":{},"ts":{},"dur":9}})", i > 0 ? "," : "",
                              i % 2 == 0 ? "python_function" : "cuda_runtime", i / 2 * 7919, 1'000'000'000 + i / 2, i);
    const auto timeline = read_text(trace_of(events));
    ASSERT_TRUE(timeline.ok());
    EXPECT_EQ(timeline->calls.size(), 10'000u);
    for (const Call& call : timeline->calls) ASSERT_EQ(timeline->stacks.at(call.stack).size(), 1u);
    EXPECT_LE(timeline->processes.size(), 4096u);
}

TEST(KinetoReader, NamesAreMadeFitToShow) {
    const auto timeline = read_text(trace_of(
        "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"a\\u0001\xff\tb\xc3\xa9\",\"pid\":0,\"tid\":7,\"ts\":1,\"dur\":1}"));
    ASSERT_TRUE(timeline.ok());
    EXPECT_EQ(timeline->names[timeline->work.at(0).name], "a \xef\xbf\xbd b\xc3\xa9");
}

TEST(KinetoReader, PlacesThatCannotBeReadAreErrors) {
    const test::TemporaryFolder folder;
    EXPECT_FALSE(read_kineto(folder / "missing.json").ok());
    EXPECT_NE(read_kineto(folder.path()).error().message.find("no regular file"), std::string::npos);
}

}  // namespace
}  // namespace millrace::diagnose
