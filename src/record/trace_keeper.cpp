#include "record/trace_keeper.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "base/clock.h"

namespace millrace::record {
namespace {

constexpr std::chrono::milliseconds kTick{50}, kEarlyTick{20};  ///< the first windows of a process follow closely
constexpr std::uint64_t kSecond = 1'000'000'000, kClockEvery = 10 * kSecond;
constexpr std::uint64_t kLinger = kSecond / 2;  ///< a mapping is read on for so long after its process went
constexpr std::size_t kMostProcesses = 4096;
constexpr std::size_t kMostKeptStacks = std::size_t{1} << 16;

bool is_gone(std::uint32_t pid) { return ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH; }

}  // namespace

TraceKeeper::TraceKeeper(ProbeFolder& folder, TraceWriter& trace, EventWriter& events, CpuSampler* sampler,
                         const ScheduleSettings& settings, RecordOutcome& outcome)
    : folder_(folder),
      trace_(trace),
      events_(events),
      sampler_(sampler),
      settings_(settings),
      start_(base::monotonic_ns()),
      outcome_(outcome) {
    note_clock(start_);
    thread_ = std::jthread([this](const std::stop_token& stop) { loop(stop); });
}

void TraceKeeper::keep_alive() {
    const std::lock_guard lock(entries_mutex_);
    const std::uint64_t now = base::monotonic_ns();
    for (Entry& entry : entries_) entry.process.reader().keep_alive(now);
}

void TraceKeeper::loop(const std::stop_token& stop) {
    auto due = std::chrono::steady_clock::now();
    while (!stop.stop_requested()) {
        tick(base::monotonic_ns());
        const bool early = std::ranges::any_of(entries_, [](const Entry& entry) { return entry.process.schedule().is_early(); });
        due = std::max(due + (early ? kEarlyTick : kTick), std::chrono::steady_clock::now());
        std::unique_lock lock(mutex_);
        wake_.wait_until(lock, stop, due, [] { return false; });
    }
    const std::uint64_t now = base::monotonic_ns();
    tick(now);
    for (Entry& entry : entries_) close(entry, now);
    for (auto& [pid, process] : processes_)
        if (process.ended == 0) {
            process.ended = now;
            (void)trace_.process(process);
        }
    note_clock(now);
    if (const auto written = trace_.flush(); !written.ok() && write_error_.empty()) write_error_ = written.error().text();
    const std::lock_guard lock(entries_mutex_);
    entries_.clear();
}

void TraceKeeper::tick(std::uint64_t now) {
    const RunBytes bytes =
        run_bytes(settings_, trace_.bytes() + other_bytes_, std::chrono::nanoseconds{static_cast<std::int64_t>(now - start_)});
    find_new(now);
    for (Entry& entry : entries_) {
        const std::uint32_t before = entry.process.main_thread();
        entry.process.tick(now, bytes, trace_, events_, sampler_ != nullptr ? &loops_ : nullptr);
        if (entry.process.main_thread() != before) update_process(entry.process.origin().pid, entry.process.main_thread());
    }
    let_go(now);
    take_samples(bytes.tight);
    if (now - clock_at_ >= kClockEvery) note_clock(now);
    if (now - flushed_at_ >= kSecond) {
        flushed_at_ = now;
        if (const auto written = trace_.flush(); !written.ok() && write_error_.empty()) {
            write_error_ = written.error().text();
            (void)events_.append("trace_failed", write_error_);
        }
    }
}

void TraceKeeper::find_new(std::uint64_t now) {
    std::vector<ProbeFolder::Found> found = folder_.look();
    if (found.empty()) return;
    for (ProbeFolder::Found& each : found) {
        const TraceOrigin origin{each.pid, each.incarnation, 0};
        (void)events_.append("process_probed", fmt::format("process {} uses CUDA and is probed", each.pid),
                             {{"pid", std::int64_t{each.pid}}});
        for (Entry& old : entries_)  // it executes another program: the old mapping gets no more records
            if (old.process.origin().pid == each.pid && old.gone_at == 0) old.gone_at = now;
        const std::lock_guard lock(entries_mutex_);
        entries_.push_back({ProbedProcess(std::move(each.reader), origin, settings_, now), each.path});
    }
    for (const Entry& entry : entries_) update_process(entry.process.origin().pid, entry.process.main_thread());
    if (sampler_ == nullptr) return;
    std::set<std::uint32_t> busy;
    for (const Entry& entry : entries_) busy.insert(entry.process.origin().pid);
    sampler_->set_busy(std::move(busy));
}

void TraceKeeper::let_go(std::uint64_t now) {
    for (auto entry = entries_.begin(); entry != entries_.end();) {
        if (entry->gone_at == 0 && is_gone(entry->process.origin().pid)) entry->gone_at = now;
        if (entry->gone_at == 0 || now - entry->gone_at < kLinger) {
            ++entry;
            continue;
        }
        close(*entry, now);
        const std::lock_guard lock(entries_mutex_);
        entry = entries_.erase(entry);
    }
}

void TraceKeeper::close(Entry& entry, std::uint64_t now) {
    entry.process.finish(now, trace_, events_, sampler_ != nullptr ? &loops_ : nullptr);
    update_process(entry.process.origin().pid, entry.process.main_thread());
    count(entry.process, now);
    ProbeFolder::remove(entry.mapping);
}

void TraceKeeper::count(const ProbedProcess& process, std::uint64_t now) {
    if (const std::string text = fault_text(process.report(), process.origin().pid); !text.empty())
        outcome_.notes.push_back(text);
    const ProbeFault fault = process.report().fault;
    const bool began = fault == ProbeFault::kNone || fault == ProbeFault::kHandedOver || fault == ProbeFault::kUnheard;
    if (began || process.windows() > 0) ++outcome_.probed;
    if (process.damaged() > 0)
        outcome_.notes.push_back(fmt::format("process {}: what its probe left made no sense in {} places and was passed over",
                                             process.origin().pid, process.damaged()));
    const WindowSchedule& schedule = process.schedule();
    outcome_.windows += schedule.windows() + (schedule.in_window() && process.records() > 0 ? 1 : 0);
    outcome_.records += process.records();
    outcome_.dropped += process.dropped();
    if (process.steps() <= outcome_.steps && outcome_.window_step_ms) return;
    outcome_.steps = process.steps();
    outcome_.steps_doubt = process.steps_doubt();
    if (process.pulse_step_ns() > 0) outcome_.step_ms = process.pulse_step_ns() * 1e-6;
    if (schedule.window_step_ns() > 0) outcome_.window_step_ms = schedule.window_step_ns() * 1e-6;
    outcome_.cost = schedule.cost(std::chrono::nanoseconds{static_cast<std::int64_t>(now)});
    outcome_.window_cost = schedule.window_cost();
    outcome_.waiting_share = process.report().presence == CuptiPresence::kGone ? 0 : schedule.waiting_share();
}

void TraceKeeper::take_samples(bool tight) {
    if (sampler_ == nullptr) return;
    const Sightings seen = sampler_->take();
    for (const TraceProcess& process : seen.processes) note_process(process);
    for (const FunctionLoops& each : seen.loops)
        if (loops_.add(each)) (void)trace_.loops(each);
    const bool in_window = std::ranges::any_of(entries_, [](const Entry& entry) {
        // A window that has not begun may never begin: the program is stopped, or its probe has left.
        return entry.process.schedule().in_window() && entry.process.report().mode == ProbeMode::kFull;
    });
    if (tight && !in_window) return;
    if (stacks_.size() > kMostKeptStacks) stacks_.clear();
    for (const CpuSample& sample : seen.samples) {
        std::uint32_t stack = 0;
        if (sample.stack) {
            auto& known = stacks_[sample.stack.get()];
            if (!known.first) known = {sample.stack, trace_.stack(*sample.stack)};
            stack = known.second;
        }
        (void)trace_.sample({sample.time, sample.pid, sample.thread, stack, trace_.name(sample.wait), sample.state});
        ++outcome_.samples;
    }
}

void TraceKeeper::note_process(const TraceProcess& process) {
    if (processes_.size() >= kMostProcesses && !processes_.contains(process.pid)) return;
    TraceProcess& known = processes_[process.pid];
    const bool ended = process.ended != 0;
    known.pid = process.pid;
    if (process.parent != 0) known.parent = process.parent;
    if (known.appeared == 0) known.appeared = process.appeared;
    known.ended = process.ended;
    if (!process.command.empty()) known.command = process.command;
    (void)trace_.process(known);
    (void)events_.append(ended ? "process_ended" : "process_began", known.command, {{"pid", std::int64_t{process.pid}}});
}

void TraceKeeper::update_process(std::uint32_t pid, std::uint32_t main_thread) {
    TraceProcess& known = processes_[pid];
    const bool news = !known.has_gpu || (main_thread != 0 && known.main_thread != main_thread);
    known.pid = pid;
    known.has_gpu = true;
    if (main_thread != 0) known.main_thread = main_thread;
    if (known.appeared == 0) known.appeared = base::monotonic_ns();
    if (news) (void)trace_.process(known);
}

void TraceKeeper::note_clock(std::uint64_t now) {
    clock_at_ = now;
    const double wall = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    (void)trace_.clock({base::monotonic_ns(), wall});
}

void TraceKeeper::finish() {
    thread_.request_stop();
    thread_.join();
    outcome_.processes = processes_.size();
    if (!write_error_.empty()) outcome_.notes.push_back("not everything was written: " + write_error_);
}

}  // namespace millrace::record
