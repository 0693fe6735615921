#include "report/kineto_export.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/version.h"
#include "diagnose/reading/call_names.h"
#include "diagnose/reading/kernel_parameters.h"
#include "diagnose/reading/stack_builder.h"
#include "io/packing.h"
#include "report/trace_events.h"

namespace millrace::report {
namespace {

using namespace diagnose;
using base::Error;
using base::Result;
using base::Status;

// Rows that no process and no device has.
constexpr std::uint64_t kDoctorRow = 2'000'000'001, kMachineRow = 2'000'000'002;
constexpr std::uint64_t kStepThread = 1;

std::string call_stack(const Stack& stack) {
    std::string out;
    for (const Frame& frame : stack) {
        std::string text = text_of(frame);
        std::ranges::replace(text, ';', ',');
        out += (out.empty() ? "" : ";") + text;
    }
    return out;
}

/// Bits of a text that sense::throttle_text wrote.
std::uint32_t throttle_bits(const MachineSample& sample) {
    std::uint32_t bits = 0, bit = 1;
    for (const std::string_view name : {"power cap", "thermal", "hardware slow-down", "sync boost"}) {
        if (sample.throttle_reason.find(name) != std::string::npos) bits |= bit;
        bit <<= 1;
    }
    return bits;
}

Time first_time(const Timeline& timeline, std::span<const Step> steps) {
    Time first = std::numeric_limits<Time>::max();
    const auto spans = [&](const auto& items) {
        for (const auto& item : items) first = std::min(first, item.begin);
    };
    const auto moments = [&](const auto& items) {
        for (const auto& item : items) first = std::min(first, item.time);
    };
    spans(timeline.calls);
    spans(timeline.work);
    spans(timeline.ranges);
    spans(timeline.collections);
    spans(timeline.profiler_work);
    spans(steps);
    moments(timeline.samples);
    moments(timeline.machine);
    return first == std::numeric_limits<Time>::max() ? 0 : first;
}

std::string own_section(const Timeline& t, Time origin) {
    const char* source = t.source == Source::kRecording ? "recording" : t.source == Source::kTraining ? "training" : "kineto";
    std::string out = fmt::format(
        "{{\"version\":{},\"source\":\"{}\",\"origin\":{},\"title\":{},\"device\":{},\"processors\":{},\"dropped\":{}",
        json_text(base::version()), source, origin, json_text(t.title), json_text(t.device_name), t.processors, t.dropped);
    if (t.link_bytes_per_second) out += fmt::format(",\"link_bytes_per_second\":{}", *t.link_bytes_per_second);
    if (t.counting_share > 0) out += fmt::format(",\"counting_share\":{}", t.counting_share);
    if (t.presence_share < 1) out += fmt::format(",\"presence_share\":{}", t.presence_share);
    if (t.link_is_assumed) out += ",\"link_is_assumed\":true";
    if (const Multiprocessors& m = t.multiprocessors; m.count > 0)
        out += fmt::format(",\"multiprocessors\":[{},{},{},{},{}]", m.count, m.threads, m.blocks, m.shared_bytes, m.reserved);
    if (t.run.end > t.run.begin) out += fmt::format(",\"run\":[{},{}]", t.run.begin, t.run.end);
    const auto list = [&](const char* key, const auto& items, const auto& text) {
        out += fmt::format(",\n\"{}\":[", key);
        for (std::size_t i = 0; i < items.size(); ++i) out += (i > 0 ? "," : "") + text(items[i]);
        out += ']';
    };
    list("processes", t.processes, [](const Process& p) {
        return fmt::format("{{\"pid\":{},\"parent\":{},\"main_thread\":{},\"gpu\":{},\"command\":{}}}", p.pid, p.parent,
                           p.main_thread, p.has_gpu, json_text(p.command));
    });
    const auto window = [](const Window& w) { return fmt::format("[{},{},{}]", w.begin, w.end, w.process); };
    list("windows", t.windows, window);
    if (!t.left_out.empty()) list("left_out", t.left_out, window);
    list("blocks", t.blocks, [](const Block& b) {
        const std::string row = fmt::format("[{},{},{}", b.begin, b.end, b.steps);
        if (b.loader_wait_ms) return row + fmt::format(",{}]", *b.loader_wait_ms);
        return row + (b.calls_per_step > 0 ? fmt::format(",{},{}]", static_cast<int>(b.call), b.calls_per_step) : "]");
    });
    list("remarks", t.remarks, [](const std::string& text) { return json_text(text); });
    return out + '}';
}

std::string head(const Timeline& timeline, const ExportRows& rows, Time origin) {
    const auto memory =
        std::ranges::find_if(timeline.machine, [](const MachineSample& sample) { return sample.memory_total_bytes.has_value(); });
    std::string out = "{\"schemaVersion\":1,\n\"deviceProperties\":[";
    for (const std::uint32_t device : rows.devices()) {
        out += fmt::format("{}{{\"id\":{},\"name\":{}", device == *rows.devices().begin() ? "" : ",", device,
                           json_text(timeline.device_name));
        if (memory != timeline.machine.end()) out += fmt::format(",\"totalGlobalMem\":{:.0f}", *memory->memory_total_bytes);
        out += '}';
    }
    // Viewers and the profiler's own tools pass over keys they do not know.
    return out + "],\n\"millrace\":" + own_section(timeline, origin) +
           ",\n\"displayTimeUnit\":\"ms\",\n\"baseTimeNanoseconds\":0,\n\"traceEvents\":[";
}

class Exporter {
public:
    Exporter(const Timeline& timeline, std::span<const Step> steps, const Diagnosis& diagnosis, io::ByteSink& sink,
             const TraceExport& options)
        : timeline_(&timeline),
          steps_(steps),
          origin_(first_time(timeline, steps)),
          rows_(timeline),
          events_(sink, origin_, options.size_cap) {
        for (const std::optional<StepView>& view : {diagnosis.typical, diagnosis.worst}) {
            if (!view || (!owners_.empty() && view->begin == owners_.front().first.first)) continue;
            owners_.insert(owners_.end(), view->stretches.begin(), view->stretches.end());
        }
    }

    Result<ExportedTrace> run() {
        MILLRACE_TRY(events_.raw(head(*timeline_, rows_, origin_)));
        MILLRACE_TRY(write_rows());
        order();
        for (const Entry& entry : entries_) MILLRACE_TRY(write(entry));
        MILLRACE_TRY(events_.raw(fmt::format("\n],\n\"traceName\":{}}}\n", json_text(timeline_->title))));
        return ExportedTrace{events_.events(), events_.bytes(), events_.left_out()};
    }

private:
    enum class What : std::uint8_t { kStep, kOwner, kRange, kProfiler, kCall, kWork, kCollection, kSample, kMachine };
    struct Entry {
        Time time, end;
        std::uint32_t number;
        What what;
    };

    Status row(const char* kind, std::uint64_t pid, std::uint64_t tid, std::string_view key, std::string_view json) {
        return events_.begin('M', "", kind, pid, tid).at(origin_).argument(key, json).end();
    }
    Status process_row(std::uint64_t pid, std::string_view name, std::string_view label, std::uint64_t order) {
        MILLRACE_TRY(row("process_name", pid, 0, "name", json_text(name)));
        MILLRACE_TRY(row("process_labels", pid, 0, "labels", json_text(label)));
        return row("process_sort_index", pid, 0, "sort_index", fmt::to_string(order));
    }

    Status write_rows() {
        std::uint64_t order = 10;
        std::set<std::uint32_t> named;
        for (const auto& [pid, thread] : rows_.host()) {
            if (named.insert(pid).second) {
                const auto process = std::ranges::find(timeline_->processes, pid, &Process::pid);
                const std::string name = process != timeline_->processes.end() ? process->command : std::string();
                MILLRACE_TRY(process_row(pid, name.empty() ? "program" : name, "CPU", order++));
            }
            MILLRACE_TRY(row("thread_name", pid, thread, "name", json_text(fmt::format("thread {}", thread))));
        }
        for (const std::uint32_t device : rows_.devices())
            MILLRACE_TRY(process_row(device, fmt::format("GPU {}", device), fmt::format("GPU {}", device), 5'000'000 + device));
        for (const auto& [place, name] : rows_.device_rows())
            MILLRACE_TRY(row("thread_name", place.first, place.second, "name", json_text(name)));
        if (!steps_.empty() || !owners_.empty()) {
            MILLRACE_TRY(process_row(kDoctorRow, "millrace", "diagnosis", 1));
            MILLRACE_TRY(row("thread_name", kDoctorRow, kStepThread, "name", "\"steps\""));
            MILLRACE_TRY(row("thread_name", kDoctorRow, kStepThread + 1, "name", "\"who has the time\""));
        }
        if (!timeline_->machine.empty()) MILLRACE_TRY(process_row(kMachineRow, "machine", "samples", 2));
        return base::ok();
    }

    void order() {
        const auto spans = [&](What what, const auto& items) {
            for (std::uint32_t i = 0; i < items.size(); ++i) entries_.push_back({items[i].begin, items[i].end, i, what});
        };
        const auto moments = [&](What what, const auto& items) {
            for (std::uint32_t i = 0; i < items.size(); ++i) entries_.push_back({items[i].time, items[i].time, i, what});
        };
        const bool marked = std::ranges::any_of(
            timeline_->ranges, [&](const Range& range) { return timeline_->names[range.name].starts_with("ProfilerStep#"); });
        if (!marked) spans(What::kStep, steps_);
        for (std::uint32_t i = 0; i < owners_.size(); ++i)
            entries_.push_back({owners_[i].first.first, owners_[i].first.second, i, What::kOwner});
        spans(What::kRange, timeline_->ranges);
        spans(What::kProfiler, timeline_->profiler_work);
        spans(What::kCall, timeline_->calls);
        spans(What::kWork, timeline_->work);
        spans(What::kCollection, timeline_->collections);
        moments(What::kSample, timeline_->samples);
        moments(What::kMachine, timeline_->machine);
        // Of what begins together the longer one stands first: it is around the others.
        std::ranges::stable_sort(entries_, {}, [](const Entry& entry) { return std::pair(entry.time, -entry.end); });
    }

    Status write(const Entry& entry) {
        const std::uint32_t i = entry.number;
        switch (entry.what) {
            case What::kStep:
                return events_.begin('X', "user_annotation", fmt::format("ProfilerStep#{}", i), kDoctorRow, kStepThread)
                    .at(steps_[i].begin)
                    .lasts(steps_[i].end - steps_[i].begin)
                    .argument("inferred", "true")
                    .end();
            case What::kOwner:
                return events_.begin('X', "diagnosis", name_of(owners_[i].second), kDoctorRow, kStepThread + 1)
                    .at(owners_[i].first.first)
                    .lasts(owners_[i].first.second - owners_[i].first.first)
                    .end();
            case What::kRange: return write_range("user_annotation", timeline_->ranges[i]);
            case What::kProfiler: return write_range("overhead", timeline_->profiler_work[i]);
            case What::kCollection: return write_range("garbage_collection", timeline_->collections[i]);
            case What::kCall: return write_call(timeline_->calls[i]);
            case What::kWork: return write_work(timeline_->work[i], rows_.row_of_work(i));
            case What::kSample: return write_sample(timeline_->samples[i]);
            case What::kMachine: return write_machine(timeline_->machine[i]);
        }
        return base::ok();
    }

    Status write_range(const char* category, const Range& range) {
        return events_.begin('X', category, timeline_->names[range.name], range.process, range.thread)
            .at(range.begin)
            .lasts(range.end - range.begin)
            .end();
    }

    Status write_arrow(char phase, std::uint32_t process, std::uint32_t correlation, std::uint64_t pid, std::uint64_t tid,
                       Time time);
    void write_parameters(const Call& call);
    Status write_call(const Call& call);
    Status write_work(const Work& work, std::uint64_t tid);
    Status write_sample(const Sample& sample);
    Status write_machine(const MachineSample& sample);

    const Timeline* timeline_;
    std::span<const Step> steps_;
    Time origin_;
    ExportRows rows_;
    TraceEvents events_;
    std::vector<Entry> entries_;
    std::vector<std::pair<std::pair<Time, Time>, Owner>> owners_;
};

Status Exporter::write_arrow(char phase, std::uint32_t process, std::uint32_t correlation, std::uint64_t pid, std::uint64_t tid,
                             Time time) {
    if (!rows_.joined(process, correlation)) return base::ok();
    events_.begin(phase, "ac2g", "ac2g", pid, tid).at(time);
    events_.field(rows_.several_processes() ? fmt::format("\"id\":\"{}.{}\"", process, correlation)
                                            : fmt::format("\"id\":{}", correlation));
    if (phase == 'f') events_.field("\"bp\":\"e\"");
    return events_.end();
}

Status Exporter::write_call(const Call& call) {
    const std::string& known = timeline_->names[call.name];
    const std::string_view name = known.empty() ? std::string_view("call") : std::string_view(known);
    const char* category = name.starts_with("cu") && !name.starts_with("cuda") ? "cuda_driver" : "cuda_runtime";
    events_.begin('X', category, name, call.process, call.thread).at(call.begin).lasts(call.end - call.begin);
    if (call.correlation != 0) events_.argument("correlation", call.correlation);
    if (call_kind_of(name) != call.kind) events_.argument("call kind", static_cast<std::uint64_t>(call.kind));
    if (call.stream != 0) events_.argument("stream", call.stream);
    if (call.event != 0) events_.argument("event", call.event);
    if (call.bytes != 0) events_.argument("bytes", call.bytes);
    if (call.from != MemoryKind::kUnknown || call.to != MemoryKind::kUnknown)
        events_.text_argument("copy", copy_name_of(call.from, call.to));
    if (call.content != 0) events_.argument("content", call.content);
    if (call.failed) events_.argument("failed", "true");
    if (call.notes != 0) events_.argument("profiler notes", call.notes);
    if (call.stack != kNoStack) events_.text_argument("Call stack", call_stack(timeline_->stacks[call.stack]));
    write_parameters(call);
    MILLRACE_TRY(events_.end());
    return write_arrow('s', call.process, call.correlation, call.process, call.thread, call.begin);
}

void Exporter::write_parameters(const Call& call) {
    const Arguments* found = arguments_of(*timeline_, call.process, call.correlation);
    if (!found) return;
    events_.argument("pointers", fmt::format("[{}]", fmt::join(found->pointers, ",")));
    events_.argument("other parameters", found->rest);
}

Status Exporter::write_work(const Work& work, std::uint64_t tid) {
    const char* category = work.kind == WorkKind::kKernel ? "kernel" : work.kind == WorkKind::kCopy ? "gpu_memcpy" : "gpu_memset";
    std::string name = timeline_->names[work.name];
    if (name.empty())
        name = work.kind == WorkKind::kKernel ? "kernel"
               : work.kind == WorkKind::kCopy ? copy_name_of(work.from, work.to)
                                              : "Memset (Device)";
    events_.begin('X', category, name, work.device, tid).at(work.begin).lasts(work.end - work.begin);
    events_.argument("device", work.device).argument("stream", work.stream);
    if (work.correlation != 0) events_.argument("correlation", work.correlation);
    if (rows_.several_processes()) events_.argument("process", work.process);
    if (work.kind != WorkKind::kKernel || work.bytes != 0) events_.argument("bytes", work.bytes);
    if (work.kind == WorkKind::kCopy && copy_ends_of(name) != std::pair(work.from, work.to))
        events_.text_argument("copy", copy_name_of(work.from, work.to));
    if (const Time took = work.end - work.begin; work.kind != WorkKind::kKernel && took > 0)
        events_.argument("memory bandwidth (GB/s)",
                         fmt::format("{:.3f}", static_cast<double>(work.bytes) / static_cast<double>(took)));
    if (work.shape != 0) events_.argument("shape", work.shape);
    if (work.launch != 0) events_.argument("launch", work.launch);
    if (work.graph_node != 0) events_.argument("graph node id", work.graph_node);
    const bool named = work.kind == WorkKind::kKernel && is_communication(name);
    if (work.communication && !named) events_.text_argument("Collective name", "unknown");
    if (!work.communication && named) events_.argument("no communication", "true");
    MILLRACE_TRY(events_.end());
    return write_arrow('f', work.process, work.correlation, work.device, tid, work.begin);
}

Status Exporter::write_sample(const Sample& sample) {
    const Stack& stack = timeline_->stacks[sample.stack];
    const std::string name = stack.empty() ? fmt::format("{}", sample.state) : stack.front().function;
    events_.begin('i', "sample", name, sample.process, sample.thread).at(sample.time).field("\"s\":\"t\"");
    events_.text_argument("state", std::string_view(&sample.state, 1));
    if (sample.wait != kNoName) events_.text_argument("wait", timeline_->names[sample.wait]);
    if (!stack.empty()) events_.text_argument("Call stack", call_stack(stack));
    return events_.end();
}

Status Exporter::write_machine(const MachineSample& sample) {
    events_.begin('C', "", "machine", kMachineRow, 0).at(sample.time);
    const auto add = [&](const char* name, const std::optional<double>& value, double unit) {
        if (value && std::isfinite(*value)) events_.argument(name, fmt::to_string(*value * unit));
    };
    add("GPU busy %", sample.gpu_utilization, 100);
    add("SM active %", sample.sm_active, 100);
    add("tensor cores active %", sample.tensor_active, 100);
    add("GPU memory bytes", sample.memory_used_bytes, 1);
    add("GPU memory in all bytes", sample.memory_total_bytes, 1);
    add("GPU watts", sample.power_watts, 1);
    add("CPU busy %", sample.cpu_utilization, 100);
    if (sample.throttled) {
        events_.argument("throttled", std::uint64_t{*sample.throttled});
        events_.argument("throttle reasons", throttle_bits(sample));
    }
    return events_.end();
}

}  // namespace

std::vector<Step> steps_of(const Timeline& timeline) {
    std::vector<Step> steps;
    const auto launcher = find_launcher(timeline);
    if (!launcher) return steps;
    bool first = true;
    for (const Window& window : windows_of(timeline, *launcher)) {
        const Lane lane = read_lane(timeline, *launcher, window.begin, window.end);
        const WindowSteps found = find_steps(timeline, *launcher, lane, first);
        steps.insert(steps.end(), found.steps.begin(), found.steps.end());
        first = false;
    }
    return steps;
}

Result<ExportedTrace> write_trace(const Timeline& timeline, std::span<const Step> steps, const Diagnosis& diagnosis,
                                  io::ByteSink& sink, const TraceExport& options) {
    return Exporter(timeline, steps, diagnosis, sink, options).run();
}

Result<ExportedTrace> export_trace(const Timeline& timeline, const Diagnosis& diagnosis, const io::Path& path,
                                   const TraceExport& options) {
    const bool packed = path.extension() == ".gz";
    if (packed && !io::have_gzip())
        return Error{"cannot be packed, as this program was built without zlib: leave the .gz off its name", path.string()};
    ExportedTrace exported;
    MILLRACE_TRY(io::write_atomically(path, [&](io::FileWriter& file) -> Status {
        const auto packer = packed ? io::pack_gzip(file) : nullptr;
        io::ByteSink& sink = packed ? static_cast<io::ByteSink&>(*packer) : file;
        MILLRACE_LET(written, write_trace(timeline, steps_of(timeline), diagnosis, sink, options));
        exported = written;
        return packer ? packer->finish() : base::ok();
    }));
    return exported;
}

}  // namespace millrace::report
