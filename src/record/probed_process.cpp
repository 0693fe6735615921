#include "record/probed_process.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "record/probe_records.h"

namespace millrace::record {
namespace {

using std::chrono::nanoseconds;

constexpr std::uint64_t kLostStep = 1000;  ///< dropped records between two events about them

/// What is kept even when the run has taken all bytes it may, outside of windows.
bool always_kept(RecordKind kind) {
    return kind == RecordKind::kText || kind == RecordKind::kSite || kind == RecordKind::kWindow || kind == RecordKind::kLost ||
           kind == RecordKind::kLeft;
}

ScheduleSettings seeded(ScheduleSettings settings, std::uint64_t seed) {
    settings.seed += seed;
    return settings;
}

}  // namespace

RunBytes run_bytes(const ScheduleSettings& settings, std::uint64_t taken, nanoseconds elapsed) {
    constexpr double kTight = 0.75;  // the rest is for windows
    const double allowed = static_cast<double>(settings.bytes_allowance) +
                           settings.bytes_per_second * std::chrono::duration<double>(elapsed).count();
    return {taken, static_cast<double>(taken) > kTight * allowed};
}

std::string fault_text(const ProbeReport& report, std::uint32_t pid) {
    const std::string& other = report.incumbent;
    const auto unrecorded = [&](std::string_view why) {
        return fmt::format("process {}: {}, so kernels and calls are not recorded", pid, why);
    };
    switch (report.fault) {
        case ProbeFault::kNone: return {};
        case ProbeFault::kNoCupti: return unrecorded("no CUPTI library that fits the driver was found");
        case ProbeFault::kOtherClient:
            return unrecorded(fmt::format("another profiler{}{} holds CUPTI", other.empty() ? "" : ", ", other));
        case ProbeFault::kCuptiFailed: return unrecorded(fmt::format("CUPTI refused (result {})", report.fault_code));
        case ProbeFault::kNoMemory: return unrecorded("the probe got no memory or thread");
        case ProbeFault::kHandedOver:
            return fmt::format(
                "process {}: the program began to use CUPTI itself{}{}, as torch.profiler does; the probe made way, and kernels "
                "and calls are recorded up to there",
                pid, other.empty() ? "" : ", by ", other);
        case ProbeFault::kUnheard:
            return fmt::format(
                "process {}: millrace was stopped for so long that the probe left; kernels and calls are recorded up to there",
                pid);
    }
    return fmt::format("process {}: the probe failed in a way this version does not know", pid);
}

ProbedProcess::ProbedProcess(ProbeReader reader, const TraceOrigin& origin, const ScheduleSettings& settings, std::uint64_t now)
    : reader_(std::move(reader)),
      origin_(origin),
      blocks_(origin.pid),
      schedule_(seeded(settings, origin.pid ^ now), nanoseconds{static_cast<std::int64_t>(now)}) {
    report_ = reader_.report();
    reader_.keep_alive(now);
    reader_.give(schedule_.order());
}

void ProbedProcess::tick(std::uint64_t now, const RunBytes& bytes, TraceWriter& trace, EventWriter& events,
                         const LoopTable* loops) {
    reader_.keep_alive(now);
    const bool in_window = schedule_.in_window();
    drain(in_window || !bytes.tight, trace, events);
    report_ = reader_.report();
    count_.take(report_);
    if (!counted_ && reader_.lost() > 0) count_.doubt("records of a window were lost");
    say_fault(trace, events);

    const ScheduleView view = view_at(now, bytes.taken, loops);
    const bool was_off = schedule_.order().mode == ProbeMode::kOff;
    if (report_.fault != ProbeFault::kNone) schedule_.stop(view);
    const Sureness before = schedule_.surest();
    const ProbeOrder order = schedule_.next(view);
    if (in_window && !schedule_.in_window()) end_window(before, events);
    if (order.mode == ProbeMode::kOff) count_.doubt("calls were not counted all the time");
    if (const auto block = blocks_.set_call(order.pulse_call, schedule_.calls_per_step(), schedule_.launches_per_step(),
                                            order.pulse_site != 0 || order.pulse_led))
        (void)trace.block(*block);
    const bool begins = !in_window && schedule_.in_window();
    // Numbers go on where they stopped when calls are counted again.
    if (begins || (was_off && order.mode == ProbeMode::kPulse))
        if (const auto block = blocks_.close()) (void)trace.block(*block);
    if (begins) {
        steps_.clear();
        counted_before_ = std::exchange(counted_, order.pulse_call != CallKind::kOther);
        window_at_ = now;
    }
    reader_.give(order);
}

void ProbedProcess::end_window(Sureness before, EventWriter& events) {
    const std::optional<StepFacts>& facts = schedule_.shown();
    const ProbeOrder& order = schedule_.order();
    count_.end_window(facts, before, order.pulse_led);
    const bool teaches = facts && sureness(*facts) <= before;
    if (facts)
        (void)events.append("steps_found",
                            fmt::format("a window shows {} steps{}", facts->steps, teaches ? "" : ", less surely than before"),
                            {{"pid", std::int64_t{origin_.pid}},
                             {"steps", static_cast<std::int64_t>(facts->steps)},
                             {"source", static_cast<std::int64_t>(facts->source)},
                             {"trains", std::int64_t{facts->trains}},
                             {"graphs", std::int64_t{facts->graphs}},
                             {"call", static_cast<std::int64_t>(order.pulse_call)},
                             {"site", std::int64_t{order.pulse_site}},
                             {"calls_per_step", static_cast<std::int64_t>(schedule_.calls_per_step())}});
    trains_ = !schedule_.surest().no_training || !schedule_.surest().no_graphs;
    if (schedule_.surest() < before) steps_.prefer_none();
    if (teaches && order.pulse_site != 0) steps_.prefer(order.pulse_call, order.pulse_site);
}

ScheduleView ProbedProcess::view_at(std::uint64_t now, std::uint64_t bytes, const LoopTable* loops) {
    ScheduleView view;
    view.now = nanoseconds{static_cast<std::int64_t>(now)};
    view.obeyed = report_.obeyed;
    view.in_full = report_.mode == ProbeMode::kFull;
    view.pulses = report_.pulses;
    view.bytes = bytes;
    view.pulse_step_ns = blocks_.step_ns();
    view.stays = report_.presence == CuptiPresence::kStays;
    view.unseen_site = count_.unseen_site(steps_);
    if (schedule_.in_window()) {
        view.launches = steps_.launches();
        view.facts = steps_.facts(loops);
    }
    return view;
}

void ProbedProcess::finish(std::uint64_t now, TraceWriter& trace, EventWriter& events, const LoopTable* loops) {
    drain(true, trace, events);
    blocks_.abandon();
    report_ = reader_.report();
    count_.take(report_);
    const bool in_window = schedule_.in_window();
    const Sureness before = schedule_.surest();
    schedule_.finish(view_at(now, 0, loops));
    if (in_window) end_window(before, events);
    say_fault(trace, events);
    say_counts(events);
}

void ProbedProcess::drain(bool keep_all, TraceWriter& trace, EventWriter& events) {
    reader_.drain([&](std::uint16_t lane, std::span<const Record> slots) {
        kept_.clear();
        for (std::size_t at = 0; at < slots.size();) {
            const Record& record = slots[at];
            const auto whole = slots.subspan(at, std::min<std::size_t>(1 + parts_behind(record).value_or(0), slots.size() - at));
            take(whole, events);
            // Pulses are summed up in blocks.
            if (record.kind != RecordKind::kPulse && (keep_all || always_kept(record.kind)))
                kept_.insert(kept_.end(), whole.begin(), whole.end());
            at += whole.size();
            ++records_;
        }
        (void)trace.records({origin_.pid, origin_.incarnation, lane}, kept_);
    });
    add_pulses(trace);
    lane_lost_ = std::max(lane_lost_, reader_.lost());
    if (dropped() >= told_lost_ + kLostStep || (dropped() > 0 && told_lost_ == 0)) {
        told_lost_ = dropped();
        (void)events.append("records_dropped",
                            fmt::format("process {} made records faster than they could be taken", origin_.pid),
                            {{"pid", std::int64_t{origin_.pid}}, {"dropped", static_cast<std::int64_t>(dropped())}});
    }
}

void ProbedProcess::take(std::span<const Record> slots, EventWriter& events) {
    const Record& record = slots.front();
    switch (record.kind) {
        case RecordKind::kPulse:
            // Some of another call may still be on their way.
            if (record.count == static_cast<std::uint16_t>(schedule_.order().pulse_call))
                pulses_.emplace_back(record.bytes, record.begin);
            break;
        case RecordKind::kLost:
            if ((record.flags & kLostByCupti) != 0) cupti_lost_ += std::min<std::uint64_t>(record.bytes, 1u << 30);
            break;
        case RecordKind::kWindow: {
            const bool begins = (record.flags & kWindowBegins) != 0;
            windows_ += begins ? 1 : 0;
            (void)events.append(begins ? "window_begun" : "window_ended",
                                fmt::format("process {} {} recorded in full", origin_.pid, begins ? "is" : "is no longer"),
                                {{"pid", std::int64_t{origin_.pid}},
                                 {"window", static_cast<std::int64_t>(windows_)},
                                 {"monotonic_ns", static_cast<std::int64_t>(record.begin)}});
            break;
        }
        case RecordKind::kLeft:
            (void)events.append("cupti_left", fmt::format("CUPTI has left process {}; its steps are still counted", origin_.pid),
                                {{"pid", std::int64_t{origin_.pid}},
                                 {"monotonic_ns", static_cast<std::int64_t>(record.end)},
                                 {"took_ns", static_cast<std::int64_t>(record.end - record.begin)}});
            break;
        case RecordKind::kCall: count_.add(record, record.begin < window_at_ ? counted_before_ : counted_); [[fallthrough]];
        default: steps_.add(record, slots.subspan(1));
    }
}

void ProbedProcess::add_pulses(TraceWriter& trace) {
    std::ranges::sort(pulses_);  // several threads may have made them
    for (const auto& [number, time] : pulses_)
        if (const auto block = blocks_.add(time, number)) (void)trace.block(*block);
    pulses_.clear();
}

void ProbedProcess::say_fault(TraceWriter& trace, EventWriter& events) {
    if (said_fault_ || report_.fault == ProbeFault::kNone) return;
    said_fault_ = true;
    const std::string text = fault_text(report_, origin_.pid);
    (void)trace.note(text);
    (void)events.append("probe_fault", text,
                        {{"pid", std::int64_t{origin_.pid}},
                         {"fault", static_cast<std::int64_t>(report_.fault)},
                         {"code", std::int64_t{report_.fault_code}}});
}

void ProbedProcess::say_counts(EventWriter& events) const {
    const auto fate = [&](ArgumentFate one) { return report_.arguments[static_cast<std::size_t>(one)]; };
    const auto count = [](std::uint64_t number) { return static_cast<std::int64_t>(number); };
    const std::uint64_t taken = fate(ArgumentFate::kTaken) + fate(ArgumentFate::kTakenFromBuffer);
    (void)events.append(
        "probe_counts",
        fmt::format("{} launches sampled, {} with arguments ({} of them in a block), {} without any; not known: {} not given, {} "
                    "driver too old, {} refused (last answer {}), {} no room; {} calls without an end, {} with a stale number",
                    report_.sampled_launches, taken, fate(ArgumentFate::kTakenFromBuffer), fate(ArgumentFate::kNone),
                    fate(ArgumentFate::kNotGiven), fate(ArgumentFate::kUnknown), fate(ArgumentFate::kRefused),
                    report_.argument_refusal, fate(ArgumentFate::kNoRoom), report_.unended, report_.stale),
        {{"pid", std::int64_t{origin_.pid}},
         {"launches_sampled", count(report_.sampled_launches)},
         {"with_arguments", count(taken)},
         {"refused", count(fate(ArgumentFate::kRefused))},
         {"unended", count(report_.unended)},
         {"stale", count(report_.stale)}});
}

}  // namespace millrace::record
