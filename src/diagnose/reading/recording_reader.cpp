#include "diagnose/reading/recording_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "diagnose/reading/call_index.h"
#include "diagnose/reading/call_names.h"
#include "diagnose/reading/gpu_models.h"
#include "diagnose/reading/incomplete_windows.h"
#include "diagnose/reading/kernel_parameters.h"
#include "diagnose/reading/kineto_event.h"
#include "diagnose/reading/machine_rows.h"
#include "diagnose/reading/name_table.h"
#include "diagnose/reading/run_reader.h"
#include "diagnose/reading/stack_builder.h"
#include "record/pulse_blocks.h"

namespace millrace::diagnose {
namespace {

using base::Error;
using base::Result;
using record::Record;
using record::RecordKind;
using record::TraceOrigin;

template <class Enum>
Enum enum_of(std::uint8_t value, Enum last) {
    return value <= static_cast<std::uint8_t>(last) ? static_cast<Enum>(value) : Enum{};
}

/// Times that no clock of a machine shows would overflow differences later on.
Time time_of(std::uint64_t nanoseconds) { return static_cast<Time>(std::min<std::uint64_t>(nanoseconds, kLatest)); }

bool concerns_event(CallKind kind) {
    return kind == CallKind::kEventRecord || kind == CallKind::kEventSync || kind == CallKind::kEventQuery ||
           kind == CallKind::kStreamWait;
}

class Collector : public TraceVisitor {
public:
    Collector(const TraceReader& trace, const RecordingLimits& limits) : trace_(&trace), limits_(limits) {
        timeline_.stacks.emplace_back();
    }

    void record(const TraceOrigin& origin, const Record& record, std::span<const record::Argument> arguments) override {
        if (!has_room()) {
            ++left_out_;
            return;
        }
        from(origin);
        latest_[origin.pid] = std::max(latest_[origin.pid], time_of(std::max(record.begin, record.end)));
        switch (record.kind) {
            case RecordKind::kCall: return add_call(record);
            case RecordKind::kWork: return add_work(record);
            case RecordKind::kRange: return add_range(record);
            case RecordKind::kWindow: return mark_window(record);
            case RecordKind::kArguments: return add_arguments(record, arguments);
            case RecordKind::kLost: timeline_.dropped += std::min<std::uint64_t>(record.bytes, 1u << 30); return;
            case RecordKind::kLeft: left_.emplace(origin.pid, time_of(record.end)); return;
            case RecordKind::kNone:
            case RecordKind::kPulse:
            case RecordKind::kMemory:
            case RecordKind::kText:
            case RecordKind::kSite: return;
        }
    }

    void sample(const record::TraceSample& sample) override {
        if (!has_room()) {
            ++left_out_;
            return;
        }
        auto [stack, fresh] = sample_stacks_.emplace(sample.stack, kNoStack);
        if (fresh) stack->second = stack_number(trace_->stack(sample.stack));
        timeline_.samples.push_back({time_of(sample.time), sample.pid, sample.thread, sample.state, stack->second,
                                     names_.number(trace_->name(sample.wait))});
    }

    void block(const record::TraceBlock& block) override {
        if (!std::isfinite(block.steps) || block.steps <= 0 || block.end <= block.begin) return;
        if (timeline_.blocks.size() >= kMostBlocks) {
            ++left_out_;
            return;
        }
        timeline_.blocks.push_back({time_of(block.begin), time_of(block.end), block.steps, std::nullopt, block.call,
                                    static_cast<double>(block.calls_per_step), block.pid});
        const Time begin = timeline_.blocks.back().begin, end = timeline_.blocks.back().end;
        const auto length = static_cast<double>(end - begin);
        block_time_ += length;
        block_times_.push_back({begin, end, block.pid});
        counting_time_ += std::clamp(record::counting_cost_ns(block.call) * block.calls_per_step * block.steps, 0.0, length);
    }

    Timeline finish() {
        read_arguments(true);
        for (const auto& [pid, begin] : open_windows_) timeline_.windows.push_back({begin, std::max(begin, latest_[pid]), pid});
        for (const record::TraceProcess& process : trace_->processes())
            timeline_.processes.push_back(
                {process.pid, process.parent, clean_text(process.command), process.has_gpu, process.main_thread});
        if (block_time_ > 0) timeline_.counting_share = counting_time_ / block_time_;
        if (block_time_ > 0) timeline_.presence_share = 1 - time_without_cupti() / block_time_;
        sort_timeline(timeline_);
        leave_out_incomplete_windows(timeline_);
        complete_calls(timeline_, CallIndex(timeline_.calls));
        find_main_threads(timeline_);
        timeline_.has_call_stacks = std::ranges::any_of(timeline_.calls, [](const Call& call) { return call.stack != kNoStack; });
        timeline_.dropped += left_out_;
        if (left_out_ > 0)
            timeline_.remarks.push_back(fmt::format("the recording has more than is kept: {} records were left out", left_out_));
        if (stacks_full_) timeline_.remarks.emplace_back("the recording has more different call stacks than are kept");
        timeline_.names = names_.release();
        return std::move(timeline_);
    }

private:
    /// CUPTI is back: the process executes another program.
    void end_absence(Time moment) {
        constexpr std::size_t kMost = 256;
        const auto left = left_.find(origin_.pid);
        if (left == left_.end()) return;
        if (absences_.size() < kMost) absences_.push_back({left->second, std::max(left->second, moment), origin_.pid});
        left_.erase(left);
    }

    /// Of the blocks: what was counted while CUPTI was gone.
    [[nodiscard]] double time_without_cupti() const {
        double without = 0;
        for (const Window& block : block_times_) {
            const auto inside = [&](Time moment) { return std::clamp(moment, block.begin, block.end); };
            for (const Window& absence : absences_)
                if (absence.process == block.process) without += static_cast<double>(inside(absence.end) - inside(absence.begin));
            if (const auto left = left_.find(block.process); left != left_.end())
                without += static_cast<double>(block.end - inside(left->second));
        }
        return without;
    }

    /// Texts and sites have numbers of their own in each incarnation of a process.
    struct Numbers {
        std::unordered_map<std::uint32_t, std::uint32_t> names, stacks;
    };

    [[nodiscard]] bool has_room() const {
        return timeline_.calls.size() + timeline_.work.size() + timeline_.samples.size() + timeline_.ranges.size() +
                   timeline_.arguments.size() + timeline_.collections.size() + timeline_.windows.size() <
               limits_.records;
    }

    void from(const TraceOrigin& origin) {
        const std::uint64_t key = std::uint64_t{origin.pid} << 16 | origin.incarnation;
        if (numbers_ == nullptr || key != key_) numbers_ = &all_numbers_[key];
        key_ = key;
        origin_ = origin;
    }

    std::uint32_t name_number(std::uint32_t id) {
        const auto [entry, fresh] = numbers_->names.emplace(id, kNoName);
        if (fresh) entry->second = names_.number(trace_->text(origin_, id));
        return entry->second;
    }

    std::uint32_t site_stack(std::uint32_t site) {
        if (site == 0) return kNoStack;
        const auto [entry, fresh] = numbers_->stacks.emplace(site, kNoStack);
        if (fresh) entry->second = stack_number(trace_->site(origin_, site));
        return entry->second;
    }

    /// Equal stacks have one number, in whichever thread they are named.
    std::uint32_t stack_number(const std::vector<record::TraceFrame>& frames) {
        if (frames.empty()) return kNoStack;
        if (frames_ >= kMostFrames) {
            stacks_full_ = true;
            return kNoStack;
        }
        const auto [entry, fresh] = stacks_.emplace(frames, static_cast<std::uint32_t>(timeline_.stacks.size()));
        if (fresh) {
            Stack stack;
            for (const record::TraceFrame& frame : frames) {
                const int line = static_cast<int>(std::min<std::uint32_t>(frame.line, 0x7fffffff));
                stack.push_back({clean_text(frame.file), line, clean_text(frame.function), frame.native});
                if (stack.size() == kDeepestStack) break;
            }
            frames_ += stack.size();
            timeline_.stacks.push_back(std::move(stack));
        }
        return entry->second;
    }

    void add_call(const Record& record) {
        Call call;
        call.begin = time_of(record.begin);
        call.end = std::max(call.begin, time_of(record.end));
        call.process = origin_.pid;
        call.thread = record.thread;
        call.kind = enum_of(record.what, CallKind::kAttribute);
        call.failed = (record.flags & record::kFailedCall) != 0;
        call.name = name_number(record.id);
        call.stack = site_stack(record.site);
        call.correlation = record.correlation;
        call.bytes = record.bytes;
        call.from = enum_of(record.from, MemoryKind::kManaged);
        call.to = enum_of(record.to, MemoryKind::kManaged);
        call.stream = record.stream;
        if (concerns_event(call.kind)) call.event = record.extra;
        if (call.kind == CallKind::kCopy || call.kind == CallKind::kCopyAsync) call.content = record.extra;
        timeline_.calls.push_back(call);
    }

    void add_work(const Record& record) {
        Work work;
        work.begin = time_of(record.begin);
        work.end = std::max(work.begin, time_of(record.end));
        work.process = origin_.pid;
        work.device = record.device;
        work.kind = enum_of(record.what, WorkKind::kSet);
        work.stream = record.stream;
        work.correlation = record.correlation;
        work.shape = record.grid;
        work.graph_node = (record.flags & record::kInGraph) != 0 ? record.extra : 0;
        (work.kind == WorkKind::kKernel ? work.launch : work.bytes) = record.bytes;
        work.from = enum_of(record.from, MemoryKind::kManaged);
        work.to = enum_of(record.to, MemoryKind::kManaged);
        work.name = name_number(record.id);
        if (work.name == kNoName && work.kind == WorkKind::kCopy) work.name = names_.number(copy_name_of(work.from, work.to));
        if (work.name == kNoName && work.kind == WorkKind::kSet) work.name = names_.number("Memset (Device)");
        work.communication = work.kind == WorkKind::kKernel && is_communication(names_.text(work.name));
        timeline_.work.push_back(work);
    }

    void add_range(const Record& record) {
        const Time begin = time_of(record.begin);
        timeline_.ranges.push_back(
            {begin, std::max(begin, time_of(record.end)), origin_.pid, record.thread, name_number(record.id)});
    }

    void mark_window(const Record& record) {
        const Time moment = time_of(record.begin);
        if ((record.flags & record::kWindowBegins) != 0) {
            open_windows_.emplace(origin_.pid, moment);
            end_absence(moment);
            return;
        }
        const auto open = open_windows_.find(origin_.pid);
        if (open == open_windows_.end()) return;
        timeline_.windows.push_back({open->second, std::max(open->second, moment), origin_.pid});
        open_windows_.erase(open);
    }

    /// What counts of them depends on the kernel, whose record comes later.
    void add_arguments(const Record& record, std::span<const record::Argument> arguments) {
        if (pointers_ >= kMostPointers) {
            ++left_out_;
            return;
        }
        if (words_.size() + arguments.size() > limits_.words) {
            read_arguments(false);
            if (words_.size() > limits_.words / 2) read_arguments(true);
        }
        launches_.push_back({timeline_.arguments.size(), words_.size(), arguments.size()});
        words_.insert(words_.end(), arguments.begin(), arguments.end());
        timeline_.arguments.push_back({origin_.pid, record.correlation, {}, 0});
    }

    /// Of the launches whose kernels are known by now; `all`: of the others, too.
    void read_arguments(bool all) {
        std::unordered_map<std::uint64_t, std::uint32_t> kernels;
        const auto key = [](const auto& one) { return std::uint64_t{one.process} << 32 | one.correlation; };
        for (const LaunchWords& launch : launches_) kernels.emplace(key(timeline_.arguments[launch.arguments]), kNoName);
        for (const Work& work : timeline_.work)
            if (const auto found = kernels.find(key(work)); found != kernels.end()) found->second = work.name;
        std::vector<record::Argument> words;
        std::vector<LaunchWords> launches;
        for (const LaunchWords& launch : launches_) {
            Arguments& arguments = timeline_.arguments[launch.arguments];
            const std::uint32_t kernel = kernels[key(arguments)];
            const auto given_words = std::span<const record::Argument>(words_).subspan(launch.first, launch.count);
            if (kernel == kNoName && !all) {
                launches.push_back({launch.arguments, words.size(), launch.count});
                words.insert(words.end(), given_words.begin(), given_words.end());
                continue;
            }
            GivenParameters given = given_parameters(kernel == kNoName ? std::string_view() : names_.text(kernel), given_words);
            pointers_ += given.pointers.size();
            arguments.pointers = std::move(given.pointers);
            arguments.rest = given.rest;
        }
        words_ = std::move(words);
        launches_ = std::move(launches);
    }

    struct LaunchWords {
        std::size_t arguments, first, count;  ///< place in timeline_.arguments; words
    };
    static constexpr std::size_t kMostPointers = std::size_t{1} << 25, kMostBlocks = std::size_t{1} << 24;

    const TraceReader* trace_;
    RecordingLimits limits_;
    Timeline timeline_;
    NameTable names_;
    std::vector<record::Argument> words_;                     ///< of launches whose kernels are not known yet
    std::vector<LaunchWords> launches_;                       ///< those
    std::size_t pointers_ = 0;                                ///< of all others
    std::unordered_map<std::uint64_t, Numbers> all_numbers_;  ///< by process and incarnation
    Numbers* numbers_ = nullptr;
    std::uint64_t key_ = 0;
    TraceOrigin origin_;
    std::map<std::vector<record::TraceFrame>, std::uint32_t> stacks_;
    std::unordered_map<std::uint32_t, std::uint32_t> sample_stacks_;
    std::map<std::uint32_t, Time> open_windows_, latest_, left_;  ///< by process; left_: when CUPTI did
    std::vector<Window> block_times_, absences_;                  ///< absences of CUPTI that are over
    std::uint64_t left_out_ = 0;
    std::size_t frames_ = 0;
    double block_time_ = 0, counting_time_ = 0;
    bool stacks_full_ = false;
};

void add_damage(const TraceDamage& damage, Timeline& timeline) {
    const auto say = [&](auto count, const char* text) {
        if (count > 0) timeline.remarks.push_back(fmt::format(fmt::runtime(text), count));
    };
    say(damage.torn_bytes, "the last {} bytes of the recording are torn: it goes on, or was cut");
    say(damage.bad_frames, "{} frames of the recording are damaged and were passed over");
    say(damage.unknown_frames, "{} frames of the recording come from a later version and were passed over");
    say(damage.forgotten, "{} names or stacks of the recording found no room");
}

/// The device most work ran on.
std::uint32_t main_device(const Timeline& timeline) {
    std::map<std::uint32_t, std::size_t> work;
    for (const Work& one : timeline.work) ++work[one.device];
    const auto most = std::ranges::max_element(work, {}, [](const auto& entry) { return entry.second; });
    return most == work.end() ? 0 : most->first;
}

/// Calendar time on the trace's clock, by the nearest pair of clocks.
Time monotonic_of(const std::vector<record::TraceClock>& clocks, double wall) {
    const auto nearest =
        std::ranges::min_element(clocks, {}, [&](const record::TraceClock& clock) { return std::abs(clock.wall - wall); });
    const double nanoseconds = (wall - nearest->wall) * 1e9;
    return std::abs(nanoseconds) < 1e18 ? time_of(nearest->monotonic) + static_cast<Time>(nanoseconds) : 0;
}

}  // namespace

Result<Timeline> read_trace(const TraceReader& trace, const RecordingLimits& limits) {
    Collector collector(trace, limits);
    MILLRACE_TRY(trace.visit(collector));
    Timeline timeline = collector.finish();
    timeline.run = trace.run(timeline.samples.empty() ? 0 : timeline.samples.back().time);
    timeline.loops = trace.loops();
    timeline.remarks.insert(timeline.remarks.begin(), trace.notes().begin(), trace.notes().end());
    for (std::string& text : timeline.remarks) text = clean_text(text);
    add_damage(trace.damage(), timeline);
    return timeline;
}

Result<Timeline> read_recording(const io::Path& folder, const ReadProgress& progress, const RecordingLimits& limits) {
    MILLRACE_LET(run, read_run(folder));
    MILLRACE_LET(trace, TraceReader::open(folder / record::kTraceName));
    if (progress) progress(0.3);
    MILLRACE_LET(timeline, read_trace(trace, limits));
    if (progress) progress(0.9);
    timeline.title = title_of(run.manifest);
    timeline.device_name = device_name_of(run.manifest);
    timeline.processors = processors_of(run.samples);
    const std::uint32_t gpu = main_device(timeline);
    timeline.link_bytes_per_second = link_speed_of(run.samples, gpu);
    assume_link(timeline);
    describe_multiprocessors(timeline);
    if (!trace.clocks().empty())
        timeline.machine = machine_samples(run.samples, gpu, [&](double wall) { return monotonic_of(trace.clocks(), wall); });
    else if (!run.samples.rows.empty())
        timeline.remarks.emplace_back(
            "the recording does not say how its clock relates to the calendar: samples of the machine are left out");
    std::ranges::stable_sort(timeline.machine, {}, &MachineSample::time);
    add_run_remarks(run, timeline);
    if (timeline.calls.empty() && timeline.work.empty() && timeline.samples.empty() && timeline.machine.empty())
        return Error{"holds no recording: the program ended, or was killed, before anything was seen of it", folder.string(), 4};
    if (progress) progress(1);
    return timeline;
}

}  // namespace millrace::diagnose
