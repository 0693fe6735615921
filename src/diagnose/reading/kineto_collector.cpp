#include "diagnose/reading/kineto_collector.h"

#include <fmt/format.h>

#include <algorithm>

#include "diagnose/reading/call_names.h"
#include "sense/sample.h"

namespace millrace::diagnose {
namespace {

constexpr std::size_t kMostDevices = 1024, kMostProcessNames = 4096, kMostOwnStacks = 65'536;

/// Counters of our own exports, and the member of a sample of the machine each is.
struct Counter {
    std::string_view name;
    std::optional<double> MachineSample::*member;
    double unit;  ///< of the counter in the member's
};
constexpr std::array kCounters = {
    Counter{"GPU busy %", &MachineSample::gpu_utilization, 0.01},
    Counter{"SM active %", &MachineSample::sm_active, 0.01},
    Counter{"tensor cores active %", &MachineSample::tensor_active, 0.01},
    Counter{"GPU memory bytes", &MachineSample::memory_used_bytes, 1},
    Counter{"GPU memory in all bytes", &MachineSample::memory_total_bytes, 1},
    Counter{"GPU watts", &MachineSample::power_watts, 1},
    Counter{"CPU busy %", &MachineSample::cpu_utilization, 0.01},
};

}  // namespace

void KinetoCollector::remark(std::string text) {
    if (remarks_.size() < limits_.remarks) remarks_.push_back(std::move(text));
}

void KinetoCollector::device(std::uint32_t id, const DeviceFacts& facts) {
    if (devices_.size() >= kMostDevices) return;
    DeviceFacts& kept = devices_[id].facts;
    kept = facts;
    kept.name = clean_text(facts.name, 256);
}

void KinetoCollector::take(const KinetoEvent& event) {
    ++events_;
    const bool timeless = (event.phase == 'X' || event.phase == 'i') && !event.begin;
    if (full() || event.absurd_time || timeless) {
        ++(full() ? left_out_ : absurd_);
        return;
    }
    switch (event.phase) {
        case 'X': take_complete(event); break;
        case 'i':
        case 'I': take_instant(event); break;
        case 'C': take_counters(event); break;
        case 'M': take_metadata(event); break;
        default: break;
    }
}

void KinetoCollector::take_complete(const KinetoEvent& event) {
    switch (event.category) {
        case EventCategory::kKernel: return take_work(event, WorkKind::kKernel);
        case EventCategory::kCopy: return take_work(event, WorkKind::kCopy);
        case EventCategory::kSet: return take_work(event, WorkKind::kSet);
        case EventCategory::kCall: return take_call(event);
        case EventCategory::kSync: return take_sync(event);
        case EventCategory::kAnnotation:
            if (!event.invented) add_range(timeline_.ranges, event);
            return;
        case EventCategory::kPythonFunction:
        case EventCategory::kOperator: return take_operator(event);
        case EventCategory::kCollection: return add_range(timeline_.collections, event);
        case EventCategory::kOverhead:
            profiler_time_ += std::max<Time>(event.duration.value_or(0), 0);
            return add_range(timeline_.profiler_work, event);
        case EventCategory::kInstant:
        case EventCategory::kSample:
        case EventCategory::kOther: return;
    }
}

void KinetoCollector::add_range(std::vector<Range>& ranges, const KinetoEvent& event) {
    ranges.push_back({*event.begin, event.end(), event.pid.value_or(0), event.tid.value_or(0), names_.number(event.name)});
    ++records_;
}

void KinetoCollector::take_work(const KinetoEvent& event, WorkKind kind) {
    Work work;
    work.begin = *event.begin;
    work.end = event.end();
    work.device = static_cast<std::uint16_t>(std::min<std::uint32_t>(event.device.value_or(event.pid.value_or(0)), 0xffff));
    work.kind = kind;
    work.communication =
        kind == WorkKind::kKernel && !event.no_communication && (event.collective || is_communication(event.name));
    work.stream = event.stream.value_or(event.tid.value_or(0));
    work.name = names_.number(event.name);
    work.correlation = event.correlation;
    work.shape = event.shape;
    work.graph_node = event.graph_node;
    work.bytes = event.bytes;
    if (kind == WorkKind::kKernel) work.launch = event.launch != 0 ? event.launch : record::packed(event.size);
    if (kind == WorkKind::kCopy) std::tie(work.from, work.to) = copy_ends_of(event.ends.empty() ? event.name : event.ends);
    if (event.process) {
        process_of_work_.resize(timeline_.work.size(), 0);
        process_of_work_.push_back(*event.process);
    }
    if (devices_.size() < kMostDevices) ++devices_[work.device].work;
    timeline_.work.push_back(work);
    ++records_;
}

void KinetoCollector::take_call(const KinetoEvent& event) {
    Call call;
    call.begin = *event.begin;
    call.end = event.end();
    call.process = event.pid.value_or(0);
    call.thread = event.tid.value_or(0);
    constexpr auto kKinetoCallKinds = static_cast<std::uint32_t>(CallKind::kAttribute) + 1;
    call.kind = event.call_kind && *event.call_kind < kKinetoCallKinds ? static_cast<CallKind>(*event.call_kind)
                                                                       : call_kind_of(event.name);
    call.name = names_.number(event.name);
    call.correlation = event.correlation;
    call.bytes = event.bytes;
    call.content = event.content;
    call.failed = event.failed;
    call.notes = event.notes;
    call.stream = event.stream.value_or(0);
    call.event = event.waits_for;
    if (!event.ends.empty()) std::tie(call.from, call.to) = copy_ends_of(event.ends);
    if (!event.call_stack.empty()) call.stack = stack_number(event.call_stack);
    if (call.correlation != 0 && (event.rest != 0 || !event.pointers.empty())) {
        timeline_.arguments.push_back({call.process, call.correlation, event.pointers, event.rest});
        ++records_;
    }
    timeline_.calls.push_back(call);
    ++records_;
}

void KinetoCollector::take_sync(const KinetoEvent& event) {
    syncs_.push_back({*event.begin, event.end(), 0, event.correlation, event.stream.value_or(0), event.recorded_by,
                      event.waits_for, names_.number(event.name)});
    ++records_;
}

void KinetoCollector::take_operator(const KinetoEvent& event) {
    // Kineto before 2022 had one category for operators and marked ranges.
    const auto begins = [&](std::string_view prefix) { return std::string_view(event.name).starts_with(prefix); };
    if (event.category == EventCategory::kOperator &&
        (begins("ProfilerStep#") || begins("enumerate(DataLoader)") || begins("Optimizer.")))
        return add_range(timeline_.ranges, event);
    const bool python = event.category == EventCategory::kPythonFunction;
    using SpanKind = StackBuilder::SpanKind;
    const std::uint32_t process = event.pid.value_or(0), thread = event.tid.value_or(0);
    if (!python && !event.call_stack.empty()) {
        functions_.add(*event.begin, event.end(), process, thread, event.call_stack, SpanKind::kWholeStack);
        ++records_;
        python_ = true;
    }
    functions_.add(*event.begin, event.end(), process, thread, event.name, python ? SpanKind::kPython : SpanKind::kNative);
    python_ |= python;
    ++records_;
}

std::uint32_t KinetoCollector::stack_number(std::string_view text) {
    if (timeline_.stacks.empty()) timeline_.stacks.emplace_back();
    const auto known = stacks_.find(std::string(text));
    if (known != stacks_.end()) return known->second;
    if (stacks_.size() >= kMostOwnStacks) {
        stacks_full_ = true;
        return kNoStack;
    }
    const auto number = static_cast<std::uint32_t>(timeline_.stacks.size());
    timeline_.stacks.push_back(stack_of(clean_text(text, JsonScanner::kTextCap)));
    stacks_.emplace(text, number);
    return number;
}

void KinetoCollector::take_instant(const KinetoEvent& event) {
    if (event.category == EventCategory::kInstant && event.name == "[memory]") return take_memory(event);
    if (event.category != EventCategory::kSample) return;
    Sample sample;
    sample.time = *event.begin;
    sample.process = event.pid.value_or(0);
    sample.thread = event.tid.value_or(0);
    sample.state = event.state.size() == 1 ? event.state[0] : '?';
    sample.wait = names_.number(event.wait);
    if (!event.call_stack.empty()) sample.stack = stack_number(event.call_stack);
    timeline_.samples.push_back(sample);
    ++records_;
}

void KinetoCollector::take_memory(const KinetoEvent& event) {
    if (!event.on_device || !event.reserved || event.reserved == reserved_) return;
    reserved_ = event.reserved;
    MachineSample sample;
    sample.time = *event.begin;
    sample.memory_used_bytes = event.reserved;
    timeline_.machine.push_back(std::move(sample));
    ++records_;
}

void KinetoCollector::take_counters(const KinetoEvent& event) {
    if (event.name != "machine" || !event.begin) return;
    MachineSample sample;
    sample.time = *event.begin;
    for (const auto& [name, value] : event.counters) {
        const auto* const counter = std::ranges::find(kCounters, name, &Counter::name);
        if (counter != kCounters.end()) sample.*(counter->member) = value * counter->unit;
        if (name == "throttled") sample.throttled = value != 0;
        if (name == "throttle reasons" && value >= 0 && value < 16)
            sample.throttle_reason = sense::throttle_text(static_cast<std::uint32_t>(value));
    }
    timeline_.machine.push_back(std::move(sample));
    ++records_;
}

void KinetoCollector::take_metadata(const KinetoEvent& event) {
    if (event.name != "process_name" || !event.pid || process_names_.size() >= kMostProcessNames) return;
    process_names_[*event.pid] = clean_text(event.label, 1024);
}

}  // namespace millrace::diagnose
