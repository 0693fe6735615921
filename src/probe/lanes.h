#pragma once
// The shared mapping as the probe writes it: creation, lanes of threads, appending. A thread owns its lane from its first record
// to its end; no thread waits for another.

#include <cstdint>

#include "record/probe_mapping.h"

namespace millrace::probe {

/// A call that has begun and not ended yet.
struct PendingCall {
    std::uint64_t begin;
    std::uint64_t word;  ///< of uploads: hash of the bytes, 0 not taken; of memory given back: its size
    std::uint32_t correlation;
    std::uint32_t call;  ///< index in the table of calls
    std::uint32_t site;
    std::uint32_t generation;  ///< of the mode in which it began
    bool quiet;                ///< only its memory counts: it began outside of windows
};

/// A range the program has begun (program_ranges.cpp).
struct OpenRange {
    std::uint64_t begin;
    std::uint32_t name;  ///< 0: it began outside of windows
};

/// What one thread has; reached through a key of the C library, so that it needs no thread-local storage of the loader's.
struct ThreadState {
    static constexpr std::uint32_t kMostPending = 8, kMostRanges = 16;

    record::ProbeLane* lane;
    record::Record* slots;
    std::uint64_t written, read_seen, usable;  ///< `usable`: slots of the ring whose memory exists
    std::uint64_t lost;                        ///< records lost since the last one that fitted
    std::uint32_t thread;
    std::uint32_t nameless_site;     ///< for calls without frames; 0: not made yet
    std::uint32_t last_correlation;  ///< of the last call that was not inside of another
    std::uint32_t tracked;           ///< calls under way that lead through the probe (tracked_calls.h), counted inside of windows
    std::uint32_t memory_told;       ///< calls about memory that CUPTI has told of
    std::uint32_t begun;             ///< calls so far that it has marked, for other threads to read
    std::uint32_t gave_work;  ///< the generation of the mode in which it last gave a device work in a window, for them, too
    std::uint32_t pending_count;
    PendingCall pending[kMostPending];
    /// The same for other threads to read (open_call): index of the call and one, 0 none.
    std::uint8_t open[kMostPending];
    std::uint32_t range_depth;
    OpenRange ranges[kMostRanges];
};

/// Creates and maps `<folder>/<pid>.probe`; false when that fails. After exec the name is taken: `<pid>-1.probe` and so on.
bool create_mapping(const char* folder);
record::ProbeHeader* header();

/// The calling thread's state with a lane; null when all lanes have owners, which counts as a lost record.
ThreadState* this_thread();
/// Whether every thread that has asked for its state so far has got one.
bool had_all_lanes();
std::uint32_t thread_number();

/// Makes a call the thread's innermost; null when it is inside of too many. What the thread reads afterwards is younger than
/// that.
PendingCall* push_call(ThreadState& thread, std::uint32_t call);
/// Takes calls away until `depth` are left.
void pop_calls(ThreadState& thread, std::uint32_t depth);
/// Any thread may ask: the call that the thread of a lane is inside of at a depth; kNoCall none.
constexpr std::uint32_t kNoCall = ~0u;
std::uint32_t open_call(std::uint32_t lane, std::uint32_t depth);
/// How many calls it has marked so far.
std::uint32_t begun_calls(std::uint32_t lane);
/// Notes that the thread gives a device work, in a window of this generation.
void note_work(ThreadState& thread, std::uint32_t generation);
/// Whether a lane has a thread that did so in the window of that generation.
bool gave_work(std::uint32_t lane, std::uint32_t generation);

/// Appends `count` slots that belong together (a record and its parts); false when they do not fit, which is counted once.
bool append(ThreadState& thread, const record::Record* slots, std::uint32_t count);
/// Whether `count` slots would fit now.
bool has_room(ThreadState& thread, std::uint32_t count);

}  // namespace millrace::probe
