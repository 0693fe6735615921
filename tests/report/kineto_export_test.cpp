#include "report/kineto_export.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "diagnose/diagnose.h"
#include "diagnose/reading/timeline_reader.h"
#include "diagnose/recorded_run.h"
#include "io/packing.h"
#include "places.h"
#include "text_source.h"

namespace millrace::report {
namespace {

using namespace diagnose;

struct TextSink : io::ByteSink {
    std::string text;
    base::Status write(io::Bytes bytes) override {
        text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        return base::ok();
    }
};

std::string exported(const Timeline& timeline, const Diagnosis& diagnosis = {}, const TraceExport& options = {}) {
    TextSink sink;
    const auto done = write_trace(timeline, steps_of(timeline), diagnosis, sink, options);
    EXPECT_TRUE(done.ok()) << done.error().text();
    EXPECT_EQ(done->bytes, sink.text.size());
    return sink.text;
}

Timeline read_back(const std::string& text) {
    test::TextSource source(text);
    auto timeline = read_kineto(source, "again.json");
    EXPECT_TRUE(timeline.ok()) << timeline.error().text();
    return timeline.ok() ? std::move(*timeline) : Timeline{};
}

void expect_same(const Timeline& a, const Timeline& b) {
    EXPECT_EQ(a.source, b.source);
    EXPECT_EQ(a.title, b.title);
    EXPECT_EQ(a.device_name, b.device_name);
    EXPECT_EQ(a.link_bytes_per_second, b.link_bytes_per_second);
    EXPECT_EQ(a.link_is_assumed, b.link_is_assumed);
    EXPECT_EQ(a.counting_share, b.counting_share);
    EXPECT_EQ(a.presence_share, b.presence_share);
    EXPECT_EQ(a.processors, b.processors);
    EXPECT_EQ(a.multiprocessors, b.multiprocessors);
    EXPECT_EQ(std::tuple(a.run.begin, a.run.end), std::tuple(b.run.begin, b.run.end));
    EXPECT_EQ(a.dropped, b.dropped);
    EXPECT_EQ(a.remarks, b.remarks);
    EXPECT_EQ(a.has_call_stacks, b.has_call_stacks);
    ASSERT_EQ(a.calls.size(), b.calls.size());
    for (std::size_t i = 0; i < a.calls.size(); ++i) {
        const Call &x = a.calls[i], &y = b.calls[i];
        EXPECT_EQ(std::tuple(x.begin, x.end, x.process, x.thread, x.kind, x.failed, x.correlation, x.bytes, x.from, x.to,
                             x.content, x.stream, x.event, x.notes),
                  std::tuple(y.begin, y.end, y.process, y.thread, y.kind, y.failed, y.correlation, y.bytes, y.from, y.to,
                             y.content, y.stream, y.event, y.notes))
            << i;
        EXPECT_EQ(a.names[x.name], b.names[y.name]);
        EXPECT_EQ(a.stacks[x.stack], b.stacks[y.stack]) << i;
    }
    ASSERT_EQ(a.work.size(), b.work.size());
    for (std::size_t i = 0; i < a.work.size(); ++i) {
        const Work &x = a.work[i], &y = b.work[i];
        EXPECT_EQ(std::tuple(x.begin, x.end, x.process, x.device, x.kind, x.communication, x.stream, x.correlation, x.shape,
                             x.graph_node, x.bytes, x.from, x.to, x.launch),
                  std::tuple(y.begin, y.end, y.process, y.device, y.kind, y.communication, y.stream, y.correlation, y.shape,
                             y.graph_node, y.bytes, y.from, y.to, y.launch))
            << i;
        EXPECT_EQ(a.names[x.name], b.names[y.name]);
    }
    ASSERT_EQ(a.arguments.size(), b.arguments.size());
    for (std::size_t i = 0; i < a.arguments.size(); ++i) {
        EXPECT_EQ(a.arguments[i].pointers, b.arguments[i].pointers);
        EXPECT_EQ(a.arguments[i].rest, b.arguments[i].rest);
        EXPECT_EQ(a.arguments[i].correlation, b.arguments[i].correlation);
    }
    const auto ranges = [&](const std::vector<Range>& x, const std::vector<Range>& y) {
        ASSERT_EQ(x.size(), y.size());
        for (std::size_t i = 0; i < x.size(); ++i)
            EXPECT_EQ(std::tuple(x[i].begin, x[i].end, x[i].process, x[i].thread, a.names[x[i].name]),
                      std::tuple(y[i].begin, y[i].end, y[i].process, y[i].thread, b.names[y[i].name]));
    };
    ranges(a.ranges, b.ranges);
    ranges(a.collections, b.collections);
    ranges(a.profiler_work, b.profiler_work);
}

void expect_same_rest(const Timeline& a, const Timeline& b) {
    ASSERT_EQ(a.samples.size(), b.samples.size());
    for (std::size_t i = 0; i < a.samples.size(); ++i) {
        const Sample &x = a.samples[i], &y = b.samples[i];
        EXPECT_EQ(std::tuple(x.time, x.process, x.thread, x.state, a.names[x.wait]),
                  std::tuple(y.time, y.process, y.thread, y.state, b.names[y.wait]));
        EXPECT_EQ(a.stacks[x.stack], b.stacks[y.stack]);
    }
    ASSERT_EQ(a.windows.size(), b.windows.size());
    for (std::size_t i = 0; i < a.windows.size(); ++i)
        EXPECT_EQ(std::tuple(a.windows[i].begin, a.windows[i].end, a.windows[i].process),
                  std::tuple(b.windows[i].begin, b.windows[i].end, b.windows[i].process));
    ASSERT_EQ(a.left_out.size(), b.left_out.size());
    for (std::size_t i = 0; i < a.left_out.size(); ++i)
        EXPECT_EQ(std::tuple(a.left_out[i].begin, a.left_out[i].end, a.left_out[i].process),
                  std::tuple(b.left_out[i].begin, b.left_out[i].end, b.left_out[i].process));
    ASSERT_EQ(a.blocks.size(), b.blocks.size());
    for (std::size_t i = 0; i < a.blocks.size(); ++i)
        EXPECT_EQ(std::tuple(a.blocks[i].begin, a.blocks[i].end, a.blocks[i].steps, a.blocks[i].loader_wait_ms, a.blocks[i].call,
                             a.blocks[i].calls_per_step),
                  std::tuple(b.blocks[i].begin, b.blocks[i].end, b.blocks[i].steps, b.blocks[i].loader_wait_ms, b.blocks[i].call,
                             b.blocks[i].calls_per_step));
    ASSERT_EQ(a.processes.size(), b.processes.size());
    for (std::size_t i = 0; i < a.processes.size(); ++i) {
        const Process &x = a.processes[i], &y = b.processes[i];
        EXPECT_EQ(std::tuple(x.pid, x.parent, x.command, x.has_gpu, x.main_thread),
                  std::tuple(y.pid, y.parent, y.command, y.has_gpu, y.main_thread));
    }
    ASSERT_EQ(a.machine.size(), b.machine.size());
    for (std::size_t i = 0; i < a.machine.size(); ++i) {
        const MachineSample &x = a.machine[i], &y = b.machine[i];
        EXPECT_EQ(std::tuple(x.time, x.throttled, x.throttle_reason, x.memory_used_bytes, x.memory_total_bytes),
                  std::tuple(y.time, y.throttled, y.throttle_reason, y.memory_used_bytes, y.memory_total_bytes));
        EXPECT_EQ(x.gpu_utilization.has_value(), y.gpu_utilization.has_value());
        EXPECT_NEAR(x.gpu_utilization.value_or(0), y.gpu_utilization.value_or(0), 1e-12);
    }
}

void expect_same_diagnosis(const Timeline& a, const Timeline& b) {
    const Diagnosis x = diagnose::diagnose(a), y = diagnose::diagnose(b);
    EXPECT_EQ(x.steps, y.steps);
    EXPECT_EQ(x.step_ms, y.step_ms);
    EXPECT_EQ(x.busy_share, y.busy_share);
    EXPECT_EQ(x.breakdown_ms, y.breakdown_ms);
    EXPECT_EQ(x.remarks, y.remarks);
    ASSERT_EQ(x.findings.size(), y.findings.size());
    for (std::size_t i = 0; i < x.findings.size(); ++i) {
        EXPECT_EQ(x.findings[i].kind, y.findings[i].kind);
        EXPECT_EQ(x.findings[i].where, y.findings[i].where);
        EXPECT_EQ(x.findings[i].lost_ms_per_step, y.findings[i].lost_ms_per_step);
    }
}

Timeline golden(const char* name) {
    auto timeline = read_timeline(testing::source_root() / "tests/goldens/kineto" / name);
    EXPECT_TRUE(timeline.ok()) << timeline.error().text();
    return std::move(*timeline);
}

Timeline recording() {
    const test::TemporaryFolder folder;
    write_recording(folder / "run");
    auto timeline = read_timeline(folder / "run");
    EXPECT_TRUE(timeline.ok()) << timeline.error().text();
    return std::move(*timeline);
}

/// Everything that is rare, in one timeline.
Timeline odd() {
    Timeline t = recording();
    const auto name = [&](std::string text) {
        t.names.push_back(std::move(text));
        return static_cast<std::uint32_t>(t.names.size() - 1);
    };
    t.link_bytes_per_second = 63e9;
    t.link_is_assumed = true;
    t.counting_share = 0.004;
    t.presence_share = 0.25;
    t.title = "a \"quoted\\title\"";
    t.stacks.push_back(
        {{"libx.so", 291, "f(int): g", true}, {"dir (1)/a.py", 3, "<lambda>", false}, {"", 0, "aten::item", true}});
    t.calls[1].stack = static_cast<std::uint32_t>(t.stacks.size() - 1);
    t.calls[1].failed = true;
    t.calls[2].kind = CallKind::kModuleLoad;
    t.calls[3].notes = 17;
    const Time end = t.work.back().end;
    for (std::uint32_t i = 0; i < 3; ++i) {  // nodes of a graph side by side, and a second process on the same device and stream
        Work work = t.work.back();
        work.begin = end + 10 + i;
        work.end = end + 100;
        work.graph_node = ~std::uint64_t{0} - i;
        work.communication = i == 1;
        if (i == 2) work.process = 4100;
        t.work.push_back(work);
    }
    Work communication = t.work.back();
    communication.begin = communication.end = end + 200;
    communication.name = name("ncclDevKernel \"odd\"\t\x01");
    communication.communication = false;
    t.work.push_back(communication);
    Work copy = communication;
    copy.kind = WorkKind::kCopy;
    copy.name = name("a copy of another name");
    copy.from = MemoryKind::kManaged;
    copy.to = MemoryKind::kArray;
    t.work.push_back(copy);
    t.names[communication.name] = "ncclDevKernel \"odd\"  ";  // as outputs show it
    t.profiler_work.push_back({end, end + 5, 4000, 4000, name("Buffer Flush")});
    t.blocks.push_back({t.blocks.back().end, t.blocks.back().end + 1000, 2.5, 0.25});
    t.blocks.push_back({t.blocks.back().end, t.blocks.back().end + 1000, 3.5, std::nullopt, CallKind::kSetAsync, 12});
    t.left_out.push_back({end + 300, end + 400, 4000});
    return t;
}

TEST(KinetoExport, ReadsBackAsTheSameTimelineAndDiagnosis) {
    for (const Timeline& timeline : {recording(), odd(), golden("with_stack.json"), golden("plain.json")}) {
        const Timeline again = read_back(exported(timeline));
        expect_same(timeline, again);
        expect_same_rest(timeline, again);
        expect_same_diagnosis(timeline, again);
    }
}

/// What Perfetto's importer of JSON and chrome://tracing need, and what they warn about.
void check_schema(const std::string& text) {
    const nlohmann::json trace = base::json_or_throw(text);  // strict: escapes, UTF-8, numbers
    EXPECT_EQ(trace.at("schemaVersion"), 1);
    EXPECT_TRUE(trace.at("deviceProperties").is_array());
    double last = 0;
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<double>> open;  // by row: ends of what is open
    std::map<std::string, std::pair<int, int>> flows;
    for (const nlohmann::json& event : trace.at("traceEvents")) {
        const std::string phase = event.at("ph");
        ASSERT_EQ(phase.size(), 1u);
        ASSERT_NE(std::string("XMCisf").find(phase), std::string::npos) << phase;
        const double ts = event.at("ts");
        EXPECT_TRUE(event.at("name").is_string() && event.at("pid").is_number_unsigned() && event.at("tid").is_number_unsigned());
        if (phase == "M") {
            EXPECT_TRUE(event.at("args").contains("name") || event.at("args").contains("labels") ||
                        event.at("args").contains("sort_index"));
            continue;
        }
        EXPECT_GE(ts, last);
        last = ts;
        const std::pair<std::uint64_t, std::uint64_t> row{event.at("pid"), event.at("tid")};
        std::vector<double>& ends = open[row];
        while (!ends.empty() && ends.back() <= ts + 1e-6) ends.pop_back();
        if (phase == "X") {
            const double end = ts + event.at("dur").get<double>();
            EXPECT_GE(end, ts);
            EXPECT_TRUE(ends.empty() || end <= ends.back() + 1e-6) << "overlaps in its row: " << event;
            ends.push_back(end);
        }
        EXPECT_TRUE(phase != "i" || event.at("s") == "t" || event.at("s") == "g");
        if (phase == "C") {
            for (const nlohmann::json& value : event.at("args")) EXPECT_TRUE(value.is_number());
        }
        if (phase == "s" || phase == "f") {
            auto& [starts, finishes] = flows[base::json_text(event.at("id"))];
            ++(phase == "s" ? starts : finishes);
            EXPECT_TRUE(phase != "f" || event.at("bp") == "e");
        }
    }
    for (const auto& [id, ends] : flows) EXPECT_TRUE(ends.first == 1 && ends.second >= 1) << id;
    EXPECT_FALSE(flows.empty());
}

TEST(KinetoExport, IsWhatViewersTake) {
    for (const Timeline& timeline : {recording(), odd(), golden("with_stack.json")}) check_schema(exported(timeline));
}

TEST(KinetoExport, HasStepsAndOwnersOnRowsOfTheirOwn) {
    const Timeline timeline = recording();
    Diagnosis diagnosis;
    StepView view;
    view.begin = static_cast<Time>(kBoot);
    view.end = view.begin + 1'000'000;
    view.stretches = {{{view.begin, view.begin + 400'000}, Owner::kCompute},
                      {{view.begin + 400'000, view.end}, Owner::kHostSync}};
    diagnosis.typical = diagnosis.worst = view;
    TextSink sink;
    const std::vector<Step> steps = {{view.begin, view.end, 0, 1}, {view.end, view.end + 1'000'000, 1, 2}};
    ASSERT_TRUE(write_trace(timeline, steps, diagnosis, sink).ok());
    check_schema(sink.text);
    const nlohmann::json trace = base::json_or_throw(sink.text);
    int found = 0, owners = 0;
    for (const nlohmann::json& event : trace.at("traceEvents")) {
        if (event.value("cat", "") == "user_annotation" && event.at("name").get<std::string>().starts_with("ProfilerStep#"))
            ++found;
        if (event.value("cat", "") == "diagnosis") ++owners;
    }
    EXPECT_EQ(found, 2);
    EXPECT_EQ(owners, 2);
    expect_same(timeline, read_back(sink.text));  // inferred steps are no ranges of the program
}

TEST(KinetoExport, StopsAtItsCapWithAWholeFile) {
    const Timeline timeline = golden("with_stack.json");
    TextSink sink;
    const auto done = write_trace(timeline, {}, {}, sink, {.size_cap = 20'000});
    ASSERT_TRUE(done.ok());
    EXPECT_GT(done->left_out, 10u);
    EXPECT_LT(sink.text.size(), 21'000u);
    EXPECT_EQ(base::json_or_throw(sink.text).at("traceEvents").size(), done->events);
    EXPECT_LT(read_back(sink.text).calls.size(), timeline.calls.size());
}

TEST(KinetoExport, FilesAreReplacedAsAWholePackedByTheirName) {
    const test::TemporaryFolder folder;
    const Timeline timeline = recording();
    const auto plain = export_trace(timeline, {}, folder / "trace.json");
    ASSERT_TRUE(plain.ok()) << plain.error().text();
    EXPECT_EQ(std::filesystem::file_size(folder / "trace.json"), plain->bytes);
    if (io::have_gzip()) {
        ASSERT_TRUE(export_trace(timeline, {}, folder / "trace.json.gz").ok());
        EXPECT_LT(std::filesystem::file_size(folder / "trace.json.gz"), plain->bytes / 2);
        const auto again = read_timeline(folder / "trace.json.gz");
        ASSERT_TRUE(again.ok()) << again.error().text();
        expect_same(timeline, *again);
    }
    EXPECT_FALSE(export_trace(timeline, {}, folder / "missing" / "trace.json").ok());
    EXPECT_FALSE(export_trace(timeline, {}, folder.path()).ok());
}

TEST(KinetoExport, AnEmptyTimelineIsAValidFile) {
    Timeline timeline;
    timeline.names.emplace_back();
    timeline.stacks.emplace_back();
    EXPECT_TRUE(base::json_or_throw(exported(timeline)).at("traceEvents").empty());
}

}  // namespace
}  // namespace millrace::report
