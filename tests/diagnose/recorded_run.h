#pragma once
// Writes run directories as `record` and `train` do, for tests of what reads them.

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "record/probe_records.h"
#include "record/run_directory.h"
#include "record/trace_file.h"
#include "temporary_folder.h"

namespace millrace::diagnose {

/// Slots of one lane with their parts.
struct Slots {
    std::vector<record::Record> slots;

    record::Record& add(record::RecordKind kind, std::uint64_t begin, std::uint64_t end) {
        record::Record one;
        one.kind = kind;
        one.begin = begin;
        one.end = end;
        slots.push_back(one);
        return slots.back();
    }
    void parts(const void* from, std::size_t bytes) {
        const std::size_t at = slots.size();
        slots.resize(at + (bytes + sizeof(record::Record) - 1) / sizeof(record::Record));
        if (bytes > 0) std::memcpy(static_cast<void*>(&slots[at]), from, bytes);
    }
    void text(std::uint32_t id, std::string_view text) {
        record::Record& one = add(record::RecordKind::kText, 0, 0);
        one.id = id;
        one.bytes = text.size();
        parts(text.data(), text.size());
    }
    void site(std::uint32_t id, const std::vector<record::SiteFrame>& frames) {
        record::Record& one = add(record::RecordKind::kSite, 0, 0);
        one.id = id;
        one.count = static_cast<std::uint16_t>(frames.size());
        parts(frames.data(), frames.size() * sizeof(record::SiteFrame));
    }
    void arguments(std::uint32_t correlation, const std::vector<record::Argument>& values) {
        record::Record& one = add(record::RecordKind::kArguments, 0, 0);
        one.correlation = correlation;
        one.count = static_cast<std::uint16_t>(values.size());
        parts(values.data(), values.size() * sizeof(record::Argument));
    }
    record::Record& call(record::CallKind kind, std::uint64_t begin, std::uint64_t end, std::uint32_t correlation,
                         std::uint32_t id, std::uint32_t site = 0) {
        record::Record& one = add(record::RecordKind::kCall, begin, end);
        one.what = static_cast<std::uint8_t>(kind);
        one.thread = 4000;
        one.correlation = correlation;
        one.id = id;
        one.site = site;
        return one;
    }
    record::Record& work(record::WorkKind kind, std::uint64_t begin, std::uint64_t end, std::uint32_t correlation,
                         std::uint32_t id) {
        record::Record& one = add(record::RecordKind::kWork, begin, end);
        one.what = static_cast<std::uint8_t>(kind);
        one.correlation = correlation;
        one.id = id;
        one.stream = 7;
        return one;
    }
};

constexpr std::uint64_t kBoot = 5'000'000'000'000;  ///< the clock at which the made-up program starts
constexpr double kWall = 1'700'000'000;             ///< seconds since 1970 at that moment

/// A recording of three steps of 1 ms: an upload from pageable memory, two kernels, a wait.
inline void write_steps(record::TraceWriter& trace, std::uint32_t pid) {
    using record::CallKind;
    Slots host, device;
    host.text(1, "cudaMemcpyAsync");
    host.text(2, "cudaLaunchKernel");
    host.text(3, "cudaStreamSynchronize");
    host.text(4, "gemm");
    host.text(5, "train.py");
    host.text(6, "step");
    host.text(7, "main");
    host.text(8, "marked");
    host.site(1, {{5, 6, 23, 0}, {5, 7, 40, 0}});
    host.add(record::RecordKind::kWindow, kBoot, kBoot).flags = record::kWindowBegins;
    for (std::uint32_t step = 0; step < 3; ++step) {
        const std::uint64_t at = kBoot + step * 1'000'000ull;
        const std::uint32_t number = step * 10 + 1;
        record::Record& upload = host.call(CallKind::kCopyAsync, at + 1000, at + 101'000, number, 1, 1);
        upload.bytes = 65'536;
        upload.from = static_cast<std::uint8_t>(record::MemoryKind::kPageable);
        upload.extra = 0xfeed;
        host.call(CallKind::kLaunch, at + 110'000, at + 115'000, number + 1, 2, 1);
        host.arguments(number + 1, {{0x7f0000001000, 0}, {0x7f0000002000, 8}, {0, 0xabcd}});
        host.call(CallKind::kLaunch, at + 120'000, at + 125'000, number + 2, 2);
        host.call(CallKind::kStreamSync, at + 130'000, at + 900'000, 0, 3, 1).stream = 7;
        host.call(CallKind::kEventRecord, at + 910'000, at + 911'000, 0, 3).extra = 55;
        record::Record& copy = device.work(record::WorkKind::kCopy, at + 90'000, at + 100'000, number, 0);
        copy.bytes = 65'536;
        copy.from = static_cast<std::uint8_t>(record::MemoryKind::kPageable);
        copy.to = static_cast<std::uint8_t>(record::MemoryKind::kDevice);
        device.work(record::WorkKind::kKernel, at + 120'000, at + 420'000, number + 1, 4).grid = 77;
        device.slots.back().bytes = record::packed({1320, 256, 64, 2048});
        device.work(record::WorkKind::kKernel, at + 420'000, at + 890'000, number + 2, 4).grid = 78;
    }
    record::Record& range = host.add(record::RecordKind::kRange, kBoot + 500, kBoot + 900'000);
    range.id = 8;
    range.thread = 4000;
    record::Record& taken = host.add(record::RecordKind::kMemory, kBoot + 700, kBoot + 700);
    taken.extra = 0x7f0000001000;
    taken.bytes = 4096;
    taken.what = static_cast<std::uint8_t>(CallKind::kAlloc);
    record::Record& given = host.add(record::RecordKind::kMemory, kBoot + 800, kBoot + 800);
    given.extra = 0x7f0000001000;
    given.bytes = 4096;
    given.what = static_cast<std::uint8_t>(CallKind::kFree);
    host.add(record::RecordKind::kLost, kBoot, kBoot).bytes = 5;
    host.add(record::RecordKind::kWindow, kBoot + 3'000'000, kBoot + 3'000'000);
    ASSERT_TRUE(trace.records({pid, 0, 0}, host.slots).ok());
    ASSERT_TRUE(trace.records({pid, 0, 1}, device.slots).ok());
}

inline record::RunDirectory new_run(const io::Path& folder, std::string device = "cuda:0 NVIDIA H200") {
    record::Manifest manifest;
    manifest.command = {"python", "train.py", "--fast"};
    manifest.device = std::move(device);
    auto run = record::RunDirectory::open(folder, record::RunStart::kNew, manifest);
    EXPECT_TRUE(run.ok()) << run.error().text();
    return std::move(run).value();
}

inline void write_lines(const io::Path& path, std::string_view lines) { ASSERT_TRUE(io::write_atomically(path, lines).ok()); }

inline void write_recording(const io::Path& folder) {
    record::RunDirectory run = new_run(folder);
    auto trace = record::TraceWriter::create(folder / record::kTraceName);
    ASSERT_TRUE(trace.ok()) << trace.error().text();
    ASSERT_TRUE(trace->process({4000, 1, 0, true, kBoot, 0, "python train.py --fast"}).ok());
    ASSERT_TRUE(trace->process({4100, 4000, 0, false, kBoot, 0, "python worker"}).ok());
    ASSERT_TRUE(trace->clock({kBoot, kWall}).ok());
    write_steps(*trace, 4000);
    const std::uint32_t stack = trace->stack(std::vector<record::TraceFrame>{{"loader.py", "fetch", 12, false}});
    ASSERT_TRUE(trace->sample({kBoot + 10'000'000, 4100, 4101, stack, trace->name("read"), 'D'}).ok());
    ASSERT_TRUE(trace->block({kBoot + 20'000'000, kBoot + 620'000'000, 600, 4000}).ok());
    ASSERT_TRUE(trace->note("graphs were seen as a whole").ok());
    ASSERT_TRUE(trace->loops({"train.py", "main", {{38, 52}, {39, 41}}}).ok());
    ASSERT_TRUE(trace->flush().ok());
    write_lines(folder / "samples.jsonl",
                "{\"kind\":\"sample\",\"time\":1700000000.5,\"gpu0/utilization_percent\":40,\"gpu0/memory_used_bytes\":900,"
                "\"gpu0/memory_total_bytes\":1000,\"gpu0/throttle_reasons\":2,\"cpu0/utilization_percent\":9,"
                "\"cpu1/utilization_percent\":9,\"cpu/utilization_percent\":25}\n");
    ASSERT_TRUE(run.finish(record::RunStatus::kFinished, 0).ok());
}

}  // namespace millrace::diagnose
