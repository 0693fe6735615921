#pragma once
// Who launches: the threads of a process that take turns in feeding one device, read as one line of calls, and the jobs they gave
// it. PyTorch's backward pass runs on a thread of its own while the main thread waits for it, so both are one line; a thread that
// calls while the main thread does, too, is none of it, and its jobs come from outside. And where steps begin and end in that
// line.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "diagnose/timeline/timeline.h"
#include "record/step_finder.h"

namespace millrace::diagnose {

constexpr std::uint32_t kNoIndex = ~std::uint32_t{0};

struct Launcher {
    std::uint32_t process = 0;
    std::uint16_t device = 0;
    std::uint32_t main_thread = 0;       ///< has the user's frames
    std::vector<std::uint32_t> threads;  ///< main thread first
};

/// What one call set going: a kernel, a copy, a set; a launched graph with all its nodes is one job.
struct Job {
    Time begin = 0, end = 0;
    Time busy = 0;                  ///< of that, time in which something ran: a graph pauses between its nodes
    std::uint32_t call = kNoIndex;  ///< position in Lane::calls; kNoIndex: another thread's or unknown
    Time launched = 0;              ///< when its call began; the window's begin where no call is known
    std::uint32_t stream = 0;
    std::uint32_t first_work = 0;            ///< in Timeline::work
    std::vector<std::uint32_t> more_work{};  ///< nodes, parts of a copy
};

/// The line of calls inside one window.
struct Lane {
    Time begin = 0, end = 0;
    std::vector<std::uint32_t> calls;         ///< in Timeline::calls; outermost ones, by begin
    std::vector<Job> jobs;                    ///< in the order in which they were launched
    std::vector<std::uint32_t> jobs_of_call;  ///< [calls.size() + 1]: jobs of call i are [i], ..., [i + 1] - 1 among `own_jobs`
    std::vector<std::uint32_t> own_jobs;
    std::size_t rejoined = 0;  ///< jobs whose call was found by order, since the recorded number was another's

    [[nodiscard]] std::span<const std::uint32_t> jobs_of(std::uint32_t call) const {
        return std::span(own_jobs).subspan(jobs_of_call[call], jobs_of_call[call + 1] - jobs_of_call[call]);
    }
};

/// Of entries in the order of their `moment`, those in [begin, end).
template <class Entry>
std::span<const Entry> within(const std::vector<Entry>& entries, Time Entry::*moment, Time begin, Time end) {
    const auto first = std::ranges::lower_bound(entries, begin, {}, moment);
    return {first, std::ranges::lower_bound(first, entries.end(), end, {}, moment)};
}

/// The process and device with most work; absent where no device worked.
std::optional<Launcher> find_launcher(const Timeline& timeline);

/// Calls and jobs of the launcher in [begin, end).
Lane read_lane(const Timeline& timeline, const Launcher& launcher, Time begin, Time end);

/// Windows of that process, or the whole timeline where none is marked; ascending, without overlap.
std::vector<Window> windows_of(const Timeline& timeline, const Launcher& launcher);

/// Of training, or what is none between two of them: an evaluation. Times are the device's: a step lasts from the begin of its
/// first job to the begin of the next step's first job, so that steps follow each other without holes and their mean is the
/// program's speed, however far the host runs ahead.
struct Step {
    Time begin = 0, end = 0;
    std::uint32_t first_job = 0, end_job = 0;  ///< in Lane::jobs; end_job is the first of what follows
    bool before_phase = false;                 ///< something that is no step follows: it ends with its last job, end_job - 1
};

using record::is_launch;
using record::StepSource;

struct WindowSteps {
    StepSource source = StepSource::kNone;
    double match = 0;                 ///< how well the sequence returns
    std::uint64_t loop = 0;           ///< whose turns they are (record::Turn::loop); 0: it is not known
    bool trains = false;              ///< they have an optimizer, or most have graphs or launches of other threads: autograd's
    std::vector<Step> steps{};        ///< steady ones, ascending; neighbours touch unless a phase lies between
    std::vector<Step> evaluations{};  ///< stretches between steps that are none
};

/// Where a stack stands among the program's loops.
std::optional<record::StepPlace> place_of(const Timeline& timeline, std::uint32_t stack);

/// `first_window`: the program starts in it, its first steps are start-up.
WindowSteps find_steps(const Timeline& timeline, const Launcher& launcher, const Lane& lane, bool first_window);

}  // namespace millrace::diagnose
