#pragma once
// What happens when the program calls CUDA: callbacks of CUPTI become records.

#include <atomic>
#include <cstdint>

#include "probe/calls.h"
#include "probe/cupti_library.h"
#include "record/probe_mapping.h"

namespace millrace::probe {

/// CUPTI is finalised by a thread of the program, between calls, where the controller wishes it. It does not come back.
enum class Finalizing : std::uint32_t { kNot, kWanted, kRunning, kDone };

/// So many direct calls of the driver are no chance: the runtime's begin can be missed when callbacks go on under a running call.
constexpr std::uint32_t kDirectEnough = 16;

/// What callbacks go by. Written by the controller alone, except where said.
struct CallbackState {
    std::atomic<bool> alive{false};  ///< false: callbacks return at once
    std::atomic<std::uint32_t> mode{0};
    std::atomic<std::uint32_t> generation{1};  ///< raised with each change of mode
    std::atomic<std::uint32_t> pulse_call{0}, pulse_stride{1};
    std::atomic<std::uint32_t> pulse_site{0};  ///< 0: calls at any site are counted
    std::atomic<bool> pulse_led{false};        ///< tracked calls are counted, not CUPTI's
    std::atomic<bool> graphs{false};           ///< set by callbacks and tracked calls: the program captures or launches graphs
    std::atomic<bool> alone{false};            ///< CUPTI is on its way out or gone: it may not tell of memory
    bool graphs_too = false;                   ///< it goes though there are graphs
    std::atomic<std::uint32_t> full_calls{0}, sites_calls{0};
    std::atomic<std::uint32_t> window_pulses{0};  ///< counted by callbacks since the window began
    std::atomic<std::uint32_t> wake{0};           ///< raised by callbacks when the controller should look: a futex
    std::atomic<bool> window_over{false};         ///< set by callbacks: full_calls is reached
    std::atomic<Finalizing> finalizing{Finalizing::kNot};
    std::atomic<std::uint64_t> launches{0};  ///< of kernels, in windows, that did not fail; counted by callbacks
    std::atomic<std::uint64_t> nested{0};    ///< calls inside of calls, counted by callbacks
    /// By index of the call: how often (as far as kDirectEnough) the driver was called by other than the runtime. Counted by
    /// callbacks.
    std::atomic<std::uint32_t> direct[kMostCalls]{};
    /// By index of the call: whether CUPTI has to tell of it. Goes off before CUPTI is asked to stop, and on after it tells
    /// again.
    std::atomic<bool> told[kMostCalls]{};
    /// By index of the call: how many threads are inside of it without a mark, for want of a lane. Counted by callbacks.
    std::atomic<std::uint32_t> unmarked[kMostCalls]{};
    std::atomic<bool> surprised{false};          ///< set by callbacks: a thread is inside of a call that is not told any more
    std::atomic<std::uint32_t> gate{0};          ///< 1: no call may begin for the moment (CallSwitch::hold): a futex
    std::atomic<std::uint32_t> told_changes{0};  ///< raised when something goes on: a futex
    bool with_sites = true, with_arguments = true;
    Cupti cupti;
};
CallbackState& callback_state();

/// Lets the probe's own thread look at once.
void wake_controller();

/// Remembers that the program uses graphs, where a call of this kind says so.
void note_graphs(record::CallKind kind);
/// PyTorch's profiler does not let CUPTI go either where a program has graphs: they have crashed.
bool graphs_forbid();

/// Counts a tracked call, where those mark steps.
void count_tracked(record::CallKind kind);
/// Device memory that was taken or given back while CUPTI was gone; `begin`: of the call. Of what is given back the range is
/// removed before.
void memory_taken(record::CallKind kind, std::uint64_t address, std::uint64_t bytes, std::uint64_t begin);
void memory_given(record::CallKind kind, std::uint64_t address, std::uint64_t bytes, std::uint64_t begin);

/// CUPTI's callback for all calls.
void on_call(void* user, std::uint32_t domain, std::uint32_t number, const CuptiCall* data);

}  // namespace millrace::probe
