#pragma once
// What would have been: host and device of one window as a small model that can be changed and played again.
//
// The line of calls is one thread: host work before a call, the call's own time, and, for calls that wait, the end of what they
// wait for. The device is a set of streams that work in order; a job begins when its stream is free, when what it depends on has
// ended, and not before its launch has arrived. The host cannot run ahead by more launches than a device takes.
// Nothing here knows of causes: a cure is a change of the model (diagnose/replay/cures.h), its gain the difference of two plays.

#include <cstddef>
#include <vector>

#include "diagnose/answer/policy.h"
#include "diagnose/program/line.h"

namespace millrace::diagnose {

/// A call of the line.
struct Act {
    Time gap = 0;  ///< host work since the call before
    /// It does not begin before this long after act `ready_after` began, or (kNoIndex) before this moment, whatever the host does
    /// (a batch that others make, one after the other); 0: no such thing.
    Time ready = 0;
    std::uint32_t ready_after = kNoIndex;
    Time own = 0;                             ///< its own time before it waits
    Time tail = 0;                            ///< its own time after; below 0: it returns so long before what it waits for ends
    std::uint32_t first_wait = 0, waits = 0;  ///< entries of Model::waits: tasks, all of which it waits for
    bool queues = false;                      ///< waits for room among launched tasks
};

/// A job of the device.
struct Task {
    std::uint32_t act = kNoIndex;  ///< launched by it; of other threads' tasks the act that began last before
    Time lag = 0;                  ///< from the act's begin to the earliest begin of the task
    Time fixed = 0;                ///< launched before the window: begins no earlier than this; `act` is kNoIndex
    Time pause = 0;                ///< after the task before it on its stream
    bool queued = false;           ///< its launch had returned before its stream was free: the pause is the device's own
    Time duration = 0;
    std::uint32_t previous = kNoIndex, depends = kNoIndex;  ///< on its stream; on another one
};

struct Model {
    Time begin = 0;  ///< of the first act, less its gap
    std::vector<Act> acts;
    std::vector<Task> tasks;  ///< as Lane::jobs
    std::vector<std::uint32_t> waits;
    std::size_t queue_limit = 0;
    Time launch_cost = 0;    ///< a launch that waits for nothing
    Time operator_cost = 0;  ///< host work before a launch: median
    Time pace = 0;           ///< of a loader: no step is shorter than a batch takes its workers; 0: no such thing
};

struct Played {
    std::vector<Time> act_begin, act_end, task_begin, task_end;
};

Model build_model(const Timeline& timeline, const Lane& lane);
Played play(const Model& model);

/// Sum over the steps of their length, in nanoseconds.
Time steps_time(const Played& played, const std::vector<Step>& steps);

/// The same of what stands between steps.
Time phases_time(const Played& played, const std::vector<Step>& phases);

/// Idle time of the device right before each task, 0 where it was busy.
std::vector<Time> idle_before(const Played& played);

}  // namespace millrace::diagnose
