#include "probe/callbacks.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "probe/arguments.h"
#include "probe/calls.h"
#include "probe/clock.h"
#include "probe/hash.h"
#include "probe/lanes.h"
#include "probe/memory.h"
#include "probe/sites.h"
#include "probe/texts.h"

namespace millrace::probe {
namespace {

using record::CallKind;
using record::ProbeMode;
using record::Record;
using record::RecordKind;

constexpr auto kRelaxed = std::memory_order_relaxed;

CallbackState state;
std::atomic<std::uint32_t> call_names[kMostCalls];

struct StreamEntry {
    std::atomic<std::uint32_t> number;
};
constexpr std::uint32_t kStreams = 1024;
std::atomic<std::uint64_t> stream_keys[kStreams];
StreamEntry stream_numbers[kStreams];

bool in_mode(ProbeMode mode) { return state.mode.load(kRelaxed) == static_cast<std::uint32_t>(mode); }

std::uint32_t name_of(ThreadState& thread, std::uint32_t index) {
    std::uint32_t number = call_names[index].load(kRelaxed);
    if (number != 0) return number;
    const char* name = call_at(index).name;
    const char* end = ::strchr(name + ::strspn(name, "_"), '_');  // what follows is a version
    number = text_number(thread, name, end != nullptr ? static_cast<std::size_t>(end - name) : ::strlen(name));
    call_names[index].store(number, kRelaxed);
    return number;
}

/// CUPTI's number of a stream. Handles are used again after a stream is gone, so a number holds for one window.
std::uint32_t stream_number(const CuptiCall& data, std::uint64_t stream) {
    if (state.cupti.stream_number == nullptr || data.context == nullptr) return 0;
    const std::uint64_t generation = state.generation.load(kRelaxed);
    const std::uint64_t key = hash_more(hash_more(stream, reinterpret_cast<std::uint64_t>(data.context)), generation) | 1;
    const std::uint32_t at = static_cast<std::uint32_t>(key >> 32) % kStreams;
    if (stream_keys[at].load(std::memory_order_acquire) == key) return stream_numbers[at].number.load(kRelaxed);
    std::uint32_t number = 0;
    if (state.cupti.stream_number(data.context, pointer_to<void>(stream), 0, &number) != kCuptiSuccess) return 0;
    stream_numbers[at].number.store(number, kRelaxed);
    stream_keys[at].store(key, std::memory_order_release);
    return number;
}

bool is_sampled() { return state.window_pulses.load(kRelaxed) < state.sites_calls.load(kRelaxed); }

void count_at(CallKind kind, std::uint32_t site) {
    const std::uint32_t key = record::site_key(kind, site);
    for (std::uint32_t i = 0; i < record::kSiteCounts; ++i) {
        record::SiteCount& count = header()->state.sites[(key + i) % record::kSiteCounts];
        std::uint32_t there = count.key.load(kRelaxed);
        if (there == 0 && count.key.compare_exchange_strong(there, key)) there = key;
        if (there != key) continue;
        count.calls.fetch_add(1, kRelaxed);
        return;
    }
    header()->state.unplaced.fetch_add(1, kRelaxed);
}

/// Counts a call of the kind that marks steps; in kPulse some also leave a record: to time and write each would slow a program
/// down that makes hundreds of them in a step.
void count_call(CallKind kind) {
    const auto wanted = static_cast<CallKind>(state.pulse_call.load(kRelaxed));
    const bool full = in_mode(ProbeMode::kFull);
    if (!full && !in_mode(ProbeMode::kPulse)) return;
    // Before a kind was chosen, launches stand in for it inside of windows.
    if (wanted == CallKind::kOther ? !full || kind != CallKind::kLaunch : kind != wanted) return;
    if (const std::uint32_t site = state.pulse_site.load(kRelaxed); site != 0) {
        ThreadState* const thread = this_thread();
        const std::uint32_t here = thread != nullptr ? site_number(*thread) : 0;
        count_at(kind, here);
        if (here != site) return;
    }
    if (full) {
        const std::uint32_t counted = state.window_pulses.fetch_add(1, kRelaxed) + 1;
        const std::uint32_t most = state.full_calls.load(kRelaxed);
        if (counted == state.sites_calls.load(kRelaxed)) wake_controller();  // it can switch off what only arguments needed
        if (wanted == CallKind::kOther) return;
        header()->state.pulses.fetch_add(1, kRelaxed);
        if (most != 0 && counted == most) {
            state.window_over.store(true, kRelaxed);
            wake_controller();
        }
        return;
    }
    const std::uint64_t number = header()->state.pulses.fetch_add(1, kRelaxed) + 1;
    if (number % state.pulse_stride.load(kRelaxed) != 0) return;
    ThreadState* const thread = this_thread();
    if (thread == nullptr) return;
    Record pulse;
    pulse.kind = RecordKind::kPulse;
    pulse.thread = thread->thread;
    pulse.begin = pulse.end = now();
    pulse.count = static_cast<std::uint16_t>(kind);
    pulse.bytes = number;
    append(*thread, &pulse, 1);
}

void count_pulse(CallKind kind) {
    if (!state.pulse_led.load(kRelaxed)) count_call(kind);
}

/// Arguments are known to the driver alone: from its own launches, and from those inside of the runtime's.
void take_arguments(ThreadState& thread, const CallInfo& call, const CuptiCall& data, std::uint32_t correlation) {
    if (call.kind != CallKind::kLaunch || call.domain != kDriverDomain || !state.with_arguments) return;
    write_arguments(thread, state.cupti, facts_of(call, data.parameters), data.symbol, correlation);
}

/// Whether a call can be part of the innermost one that is under way. The runtime calls the driver, and nothing else is known to
/// nest.
bool is_inside(const PendingCall& open, std::uint32_t index, const CuptiCall& data, std::uint32_t generation) {
    if (call_at(index).domain != kDriverDomain) return false;
    if (call_at(open.call).domain == kRuntimeDomain) return true;
    return open.call != index && open.correlation == data.correlation && open.generation == generation;
}

/// Forgets calls of which the end was never told, and notices when CUPTI has missed an end, too: then it gives each call of the
/// thread the number of that one.
void check_order(ThreadState& thread, std::uint32_t index, const CuptiCall& data, std::uint32_t generation) {
    while (thread.pending_count > 0 && !is_inside(thread.pending[thread.pending_count - 1], index, data, generation)) {
        pop_calls(thread, thread.pending_count - 1);
        header()->state.unended.fetch_add(1, kRelaxed);
    }
    if (thread.pending_count > 0) return;
    if (data.correlation == thread.last_correlation) header()->state.stale.fetch_add(1, kRelaxed);
    thread.last_correlation = data.correlation;
}

/// The call is marked. Where this thread was on its way to the probe when the call went off, CUPTI must tell of it again before
/// it ends. The wait has a limit: the probe's own thread may be inside of CUPTI, behind a lock that this one holds.
void make_sure_of_end(std::uint32_t index) {
    if (state.told[index].load()) return;
    const timespec most{0, 2'000'000};
    for (int round = 0; round < 100 && state.alive.load(kRelaxed); ++round) {
        const std::uint32_t seen = state.told_changes.load();
        if (state.told[index].load() || state.finalizing.load(kRelaxed) != Finalizing::kNot) return;
        state.surprised.store(true);
        wake_controller();
        ::syscall(SYS_futex, &state.told_changes, FUTEX_WAIT_PRIVATE, seen, &most, nullptr, 0);
    }
}

/// While the gate is shut no call begins, and none has a mark; but a program never waits for long.
constexpr int kRoundsAtGate = 5;
bool may_begin(int round) { return round == kRoundsAtGate || state.gate.load() == 0; }
void wait_at_gate() {
    const timespec most{0, 1'000'000};
    ::syscall(SYS_futex, &state.gate, FUTEX_WAIT_PRIVATE, 1, &most, nullptr, 0);
}

void end_unmarked(std::uint32_t index) {
    std::uint32_t inside = state.unmarked[index].load(kRelaxed);
    while (inside > 0 && !state.unmarked[index].compare_exchange_weak(inside, inside - 1)) {
    }
}

/// Calls of threads without a lane, or inside of too many calls, are only counted. It is unknown whether one of the driver is
/// inside of another, which must come to its end.
void begin_unmarked(std::uint32_t index) {
    for (int round = 0;; ++round) {
        state.unmarked[index].fetch_add(1);
        if (call_at(index).domain == kDriverDomain || may_begin(round)) break;
        end_unmarked(index);
        wait_at_gate();
    }
    make_sure_of_end(index);
}

/// Marks a call that is about to begin.
PendingCall* push_at_gate(ThreadState& thread, std::uint32_t index) {
    for (int round = 0;; ++round) {
        PendingCall* const made = push_call(thread, index);
        if (thread.pending_count != 1 || may_begin(round)) return made;
        pop_calls(thread, 0);
        wait_at_gate();
    }
}

void enter(ThreadState& thread, std::uint32_t index, const CuptiCall& data) {
    const CallInfo& call = call_at(index);
    check_order(thread, index, data, state.generation.load(kRelaxed));
    const bool nested = thread.pending_count > 0;
    note_graphs(call.kind);
    PendingCall* const made = push_at_gate(thread, index);
    if (made == nullptr) return begin_unmarked(index);
    // Not before: the gate is shut while a window begins or ends.
    const std::uint32_t generation = state.generation.load(kRelaxed);
    const bool full = in_mode(ProbeMode::kFull);
    make_sure_of_end(index);
    PendingCall& pending = *made;
    pending.correlation = data.correlation;
    pending.generation = generation;
    if (full && gives_work(call.kind)) note_work(thread, generation);
    pending.quiet = !full || nested;
    pending.site = 0;
    pending.word = 0;
    if (nested) {
        state.nested.fetch_add(1, kRelaxed);
        pending.begin = 0;
        if (!full || !is_sampled()) return;
        const std::uint64_t started = now();
        take_arguments(thread, call, data, thread.pending[0].correlation);
        header()->state.own_ns.fetch_add(now() - started, kRelaxed);
        return;
    }
    if (call.domain == kDriverDomain && state.direct[index].load(kRelaxed) < kDirectEnough)
        state.direct[index].fetch_add(1, kRelaxed);
    if (!full && !is_memory_call(call)) return count_pulse(call.kind);
    const std::uint64_t started = now();
    const bool sampled = full && is_sampled();
    if (full) header()->state.calls.fetch_add(1, kRelaxed);
    count_pulse(call.kind);
    if (full && state.with_sites && (sampled || wants_site(call.kind))) pending.site = site_number(thread);
    if (sampled && call.kind == CallKind::kLaunch) header()->state.sampled_launches.fetch_add(1, kRelaxed);
    if (sampled) take_arguments(thread, call, data, data.correlation);
    if (sampled && (call.kind == CallKind::kCopy || call.kind == CallKind::kCopyAsync)) {
        const CallFacts facts = facts_of(call, data.parameters);
        if (facts.source != 0 && !in_range(facts.source)) pending.word = content_hash(facts.source, facts.bytes);
    }
    // The address may belong to another thread before this call has returned.
    if (call.shape == Shape::kGive) pending.word = remove_range(facts_of(call, data.parameters).address);
    pending.begin = now();
    if (full) header()->state.own_ns.fetch_add(pending.begin - started, kRelaxed);
}

Record memory_record(const ThreadState& thread, CallKind kind, std::uint64_t address, std::uint64_t bytes, std::uint64_t begin,
                     std::uint64_t end) {
    Record memory;
    memory.kind = RecordKind::kMemory;
    memory.what = static_cast<std::uint8_t>(kind);
    memory.thread = thread.thread;
    memory.begin = begin;
    memory.end = end;
    memory.bytes = bytes;
    memory.extra = address;
    return memory;
}

void write_memory(ThreadState& thread, const CallInfo& call, const CuptiCall& data, const PendingCall& pending,
                  std::uint64_t end) {
    ++thread.memory_told;
    CallFacts facts = facts_of(call, data.parameters);
    if (call.shape == Shape::kTake) {
        const std::uint64_t* given;
        ::memcpy(&given, data.parameters, sizeof given);
        if (given == nullptr) return;
        facts.address = *given;
        add_range(facts.address, facts.bytes);
    }
    if (call.shape == Shape::kGive) facts.bytes = pending.word;
    if (call.kind == CallKind::kOther || facts.address == 0) return;
    Record memory = memory_record(thread, call.kind, facts.address, facts.bytes, pending.begin, end);
    memory.correlation = data.correlation;
    memory.site = pending.site;
    append(thread, &memory, 1);
}

void write_call(ThreadState& thread, std::uint32_t index, const CuptiCall& data, const PendingCall& pending, std::uint64_t end) {
    const CallInfo& call = call_at(index);
    const CallFacts facts = facts_of(call, data.parameters);
    Record made;
    made.kind = RecordKind::kCall;
    made.what = static_cast<std::uint8_t>(call.kind);
    made.from = static_cast<std::uint8_t>(facts.from);
    made.to = static_cast<std::uint8_t>(facts.to);
    made.thread = thread.thread;
    made.correlation = data.correlation;
    made.begin = pending.begin;
    made.end = end;
    made.id = name_of(thread, index);
    made.site = pending.site;
    made.stream = facts.has_stream ? stream_number(data, facts.stream) : 0;
    made.grid = facts.grid;
    made.bytes = call.shape == Shape::kGive ? pending.word : facts.bytes;
    if (call.kind == CallKind::kCopy || call.kind == CallKind::kCopyAsync) made.extra = pending.word;
    if (concerns_event(call.kind)) made.extra = facts.address;
    if (data.result != nullptr && *static_cast<const int*>(data.result) != 0) made.flags = record::kFailedCall;
    if (thread.tracked > 0) made.flags |= record::kLedCall;
    append(thread, &made, 1);
}

void leave(ThreadState& thread, std::uint32_t index, const CuptiCall& data) {
    std::uint32_t place = thread.pending_count;
    while (place > 0 && !(thread.pending[place - 1].call == index && thread.pending[place - 1].correlation == data.correlation))
        --place;
    if (place == 0) return end_unmarked(index);  // or it began before the subscription
    const PendingCall pending = thread.pending[place - 1];
    pop_calls(thread, place - 1);
    if (place > 1 || (pending.quiet && !is_memory_call(call_at(index)))) return;
    const std::uint64_t end = now();
    const bool failed = data.result == nullptr || *static_cast<const int*>(data.result) != 0;
    if (!pending.quiet) write_call(thread, index, data, pending, end);
    if (!pending.quiet && !failed && call_at(index).kind == CallKind::kLaunch) state.launches.fetch_add(1, kRelaxed);
    if (is_memory_call(call_at(index)) && !failed) write_memory(thread, call_at(index), data, pending, end);
    if (!pending.quiet) header()->state.own_ns.fetch_add(now() - end, kRelaxed);
}

}  // namespace

void wake_controller() {
    state.wake.fetch_add(1, std::memory_order_release);
    ::syscall(SYS_futex, &state.wake, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

CallbackState& callback_state() { return state; }

void note_graphs(CallKind kind) {
    if (kind == CallKind::kGraphLaunch || kind == CallKind::kCapture) state.graphs.store(true, kRelaxed);
}

bool graphs_forbid() { return state.graphs.load() && !state.graphs_too; }

void count_tracked(CallKind kind) {
    if (state.pulse_led.load(kRelaxed)) count_call(kind);
}

void memory_given(CallKind kind, std::uint64_t address, std::uint64_t bytes, std::uint64_t begin) {
    ThreadState* const thread = address != 0 && state.alive.load(kRelaxed) ? this_thread() : nullptr;
    if (thread == nullptr) return;
    const Record memory = memory_record(*thread, kind, address, bytes, begin, now());
    append(*thread, &memory, 1);
}

void memory_taken(CallKind kind, std::uint64_t address, std::uint64_t bytes, std::uint64_t begin) {
    if (address == 0 || !state.alive.load(kRelaxed)) return;
    add_range(address, bytes);
    memory_given(kind, address, bytes, begin);
}

void on_call(void*, std::uint32_t domain, std::uint32_t number, const CuptiCall* data) {
    if (!state.alive.load(kRelaxed)) return;
    const std::uint32_t index = call_index(domain, number);
    if (index >= call_count() || data == nullptr) return;
    ThreadState* thread = this_thread();
    if (data->site == kEnter) return thread != nullptr ? enter(*thread, index, *data) : begin_unmarked(index);
    if (thread == nullptr) return end_unmarked(index);
    leave(*thread, index, *data);
}

}  // namespace millrace::probe
