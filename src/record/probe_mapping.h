#pragma once
// The memory that the probe and `millrace record` share: one file per probed process, `<folder>/<pid>.probe`, where the folder is
// in MILLRACE_PROBE_DIR. The probe creates and maps it (sparse: pages come when touched), `record` maps what appears there, obeys
// nothing in it without bounds checks, and removes it when the process is gone and everything was read.
//
// Lanes are rings with one writer (a thread of the host that claimed it) and one reader (`record`). A lane that is full loses new
// records and counts them; no thread waits. Since the mapping outlives its process, a killed process loses nothing it had
// written.

#include <atomic>
#include <cstdint>

#include "record/probe_records.h"

namespace millrace::record {

constexpr std::uint64_t kProbeMagic = 0x65626f7270726d07;  ///< ends in the layout's version
constexpr std::uint32_t kLanes = 32;
constexpr std::uint32_t kLaneSlots = 1u << 16;  ///< 4 MiB; a lane of CUPTI's buffers is no different
constexpr std::uint64_t kKeeperTimeout = 3'000'000'000;

enum class ProbeMode : std::uint32_t {
    kOff = 0,    ///< nothing but allocations and frees
    kPulse = 1,  ///< entries of one kind of call are counted, and some of them timed
    kFull = 2,   ///< a window: calls, work, sites
};

enum class ProbeFault : std::uint32_t {
    kNone = 0,
    kNoCupti = 1,      ///< no library that matches was found
    kOtherClient = 2,  ///< another profiler holds CUPTI; `incumbent` has its name
    kCuptiFailed = 3,  ///< `fault_code` has CUPTI's result
    kNoMemory = 4,
    kHandedOver = 5,  ///< recorded until the program began to use CUPTI itself; `incumbent`: which library of it, where known
    kUnheard = 6,     ///< recorded until `record` had not listened for kKeeperTimeout
};

/// Of a CUPTI that was asked to leave the process.
enum class CuptiPresence : std::uint32_t {
    kThere = 0,  ///< not yet
    kGone = 1,   ///< there will be no more windows
    kStays = 2,  ///< it cannot
};

/// What became of the arguments of a launch that was looked into.
enum class ArgumentFate : std::uint32_t {
    kTaken = 0,
    kTakenFromBuffer = 1,  ///< the program gave them as one block
    kNone = 2,             ///< the kernel has none
    kNotGiven = 3,         ///< CUPTI reported the call without a function or without arguments
    kUnknown = 4,          ///< the driver is too old to be asked
    kRefused = 5,          ///< the driver does not describe this function
    kNoRoom = 6,           ///< the table of functions is full, or another thread is asking
};
constexpr std::uint32_t kArgumentFates = 7;

/// Written by `record`, read by the probe.
struct ProbeControl {
    std::atomic<std::uint32_t> mode;        ///< ProbeMode wanted from now on
    std::atomic<std::uint32_t> pulse_call;  ///< CallKind counted in kPulse; kOther: none
    std::atomic<std::uint32_t>
        full_calls;  ///< in kFull: after so many calls of pulse_call the probe leaves to kPulse by itself; 0 never
    std::atomic<std::uint32_t>
        sites_calls;                   ///< of those, so many have sites and arguments for every launch, from the window's start
    std::atomic<std::uint32_t> epoch;  ///< raised by one with each change of the words here, which are written before it
    std::atomic<std::uint32_t> pulse_stride;  ///< in kPulse: every so many counted calls leave a record; 0: all do
    std::atomic<std::uint64_t>
        keeper_time;  ///< `record` lives: CLOCK_MONOTONIC; older than kKeeperTimeout: the probe goes to kOff for good
    std::atomic<std::uint32_t> pulse_led;   ///< 1: pulse_call is counted where the program imports it, not by CUPTI
    std::atomic<std::uint32_t> detach;      ///< 1: CUPTI leaves the process for good: silent, it still costs each call
    std::atomic<std::uint32_t> leads;       ///< 1: imports of the runtime's calls lead through the probe, so that it can
    std::atomic<std::uint32_t> pulse_site;  ///< the site at which pulse_call is counted; 0: any
};

/// Calls of one kind that were made at one site.
struct SiteCount {
    std::atomic<std::uint32_t> key;  ///< site_key(); 0: free
    std::atomic<std::uint32_t> calls;
};
constexpr std::uint32_t kSiteCounts = 1024;
/// Of a site that has no number: 0.
constexpr std::uint32_t site_key(CallKind kind, std::uint32_t site) {
    return std::uint32_t{static_cast<std::uint8_t>(kind)} << 24 | site;
}

/// Written by the probe, read by `record`.
struct ProbeState {
    std::atomic<std::uint64_t> magic;  ///< kProbeMagic once the rest is valid
    std::uint32_t pid, parent;
    std::uint64_t started;
    std::uint32_t cupti_version, driver_version;
    std::atomic<std::uint32_t> fault, fault_code;
    std::atomic<std::uint32_t> mode;    ///< in force
    std::atomic<std::uint32_t> epoch;   ///< of the control words in force
    std::atomic<std::uint64_t> pulses;  ///< calls of pulse_call so far, in kPulse and kFull
    std::atomic<std::uint64_t> calls;   ///< all calls seen in kFull
    std::atomic<std::uint32_t> ended;   ///< 1: the process came to its end in order
    std::atomic<std::uint64_t> own_ns;  ///< time spent inside the probe's callbacks in kFull
    std::uint64_t python_runtime;       ///< address of _PyRuntime, 0 without an interpreter
    std::uint32_t python_version;       ///< PY_VERSION_HEX, 0 without
    char incumbent[128];
    std::atomic<std::uint64_t> unended;                    ///< calls whose end was never reported
    std::atomic<std::uint64_t> stale;                      ///< calls with the number of the call before: CUPTI missed an end
    std::atomic<std::uint64_t> sampled_launches;           ///< of which arguments were wanted
    std::atomic<std::uint64_t> arguments[kArgumentFates];  ///< by ArgumentFate: what became of them
    std::atomic<std::uint32_t> argument_refusal;           ///< the driver's last answer when it refused
    std::atomic<std::uint32_t> presence;                   ///< CuptiPresence, once it was asked to leave
    SiteCount sites[kSiteCounts];  ///< all calls of pulse_call since one site of it is counted, from site_key() % kSiteCounts on
    std::atomic<std::uint32_t> unplaced;  ///< calls that found no room there
};

struct ProbeLane {
    alignas(64) std::atomic<std::uint64_t> written;  ///< records ever put in; slot is written % kLaneSlots
    std::atomic<std::uint64_t> lost;
    std::atomic<std::uint32_t> thread;            ///< owner; 0: free
    alignas(64) std::atomic<std::uint64_t> read;  ///< records ever taken out
};

struct ProbeHeader {
    ProbeState state;
    alignas(64) ProbeControl control;
    ProbeLane lanes[kLanes];
};

constexpr std::uint64_t kHeaderBytes = 64 * 1024;
static_assert(sizeof(ProbeHeader) <= kHeaderBytes);
constexpr std::uint64_t kMappingBytes = kHeaderBytes + std::uint64_t{kLanes} * kLaneSlots * sizeof(Record);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace millrace::record
