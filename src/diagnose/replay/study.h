#pragma once
// Everything that rules look at, worked out once: lanes, steps, what the host did, the model that is played again.

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "diagnose/program/host_work.h"
#include "diagnose/replay/replay.h"

namespace millrace::diagnose {

/// Waiting for data that windows do not show. Samples are taken all through the run, so they are the unbiased estimate of what a
/// step waits; windows are too few to catch a loader that is late every twenty seconds.
struct UnseenLoading {
    double ms = 0;                   ///< per step, more than windows show; a step takes at least as much longer outside of them
    std::uint32_t place = kNoPlace;  ///< at which most of it is loaded
    bool waits = false;              ///< asleep there, until others have made the data
    std::size_t samples = 0;         ///< outside of windows, loading
};

/// Changes the model of one lane so that a cause is gone.
using Cure = std::function<void(std::size_t lane, Model& model)>;

struct Study {
    Study(const Timeline& timeline, const Launcher& launcher);
    Study(const Study&) = delete;
    Study& operator=(const Study&) = delete;

    /// Mean step in milliseconds after cures, in their order.
    double step_with(std::span<const Cure* const> cures) const;
    double gain_of(const Cure& cure) const {
        const Cure* const only[] = {&cure};
        return base_ms - step_with(only);
    }

    const Call& call(std::size_t lane, std::uint32_t act) const { return timeline.calls[lanes[lane].calls[act]]; }
    /// Whether a call lies in the steady steps of its lane.
    bool is_steady(std::size_t lane, std::uint32_t act) const { return act >= steady[lane].first && act < steady[lane].second; }
    /// Whether the host was on its way through a training step then: ahead of the device, and in no evaluation.
    bool trains_at(Time time) const;
    /// What its copies or sets move.
    std::uint64_t bytes_of(const Job& job) const {
        std::uint64_t bytes = timeline.work[job.first_work].bytes;
        for (const std::uint32_t more : job.more_work) bytes += timeline.work[more].bytes;
        return bytes;
    }
    /// Whether it is of the thread that has the user's frames.
    bool is_main(const Sample& sample) const {
        return sample.process == launcher.process && sample.thread == launcher.main_thread;
    }
    /// Whether another profiler noted calls, operators and functions.
    bool has_profiler() const { return timeline.source == Source::kKineto; }
    /// Whether that made the steps much longer.
    bool is_profiled() const { return has_profiler() && recorded_ms - base_ms > kPolicy.much_profiling * recorded_ms; }
    /// Whether nothing returns in any window: each counts as one step.
    bool is_shapeless() const { return std::ranges::find(steps, StepSource::kWindow, &WindowSteps::source) != steps.end(); }
    /// The model's counterpart of evaluation_ms.
    double replayed_evaluation_ms() const;
    /// Outside of windows against inside, with evaluations where the pace has them.
    std::optional<double> pace() const;
    /// When the host launched it; what comes before the first launch of an evaluation behind it is no training.
    std::pair<Time, Time> host_span(std::size_t lane, const Step& step) const {
        const std::vector<Job>& jobs = lanes[lane].jobs;
        return {jobs[step.first_job].launched, jobs[step.before_phase ? step.end_job - 1 : step.end_job].launched};
    }
    std::span<const Job> jobs_in(std::size_t lane, const Step& step) const {
        return std::span(lanes[lane].jobs).subspan(step.first_job, step.end_job - step.first_job);
    }
    /// `use(lane, number, job)` for each job of training steps, or of evaluations.
    template <class Use>
    void for_each_job(std::vector<Step> WindowSteps::*which, Use use) const {
        for (std::size_t lane = 0; lane < lanes.size(); ++lane)
            for (const Step& step : steps[lane].*which)
                for (std::uint32_t job = step.first_job; job < step.end_job; ++job) use(lane, job, lanes[lane].jobs[job]);
    }
    /// `use(lane, act, portion, ms)` for each portion of the host's work in steady steps; milliseconds per step.
    template <class Use>
    void for_each_portion(Use use) const {
        for (std::size_t lane = 0; lane < lanes.size(); ++lane)
            for (std::uint32_t act = std::max(1u, steady[lane].first); act < steady[lane].second; ++act)
                for (const Portion& portion : host.portions(lane, act))
                    use(lane, act, portion, per_step(portion.share * ms_of(host_gap(lane, act))));
    }
    double per_step(double sum) const { return sum / static_cast<double>(step_count); }
    /// The user's line that launched it. Lines are taken in some steps only; the others' calls have the last place that was
    /// known, which may be another.
    std::uint32_t place_of(std::size_t lane, const Job& job) const {
        const bool known = job.call != kNoIndex && call(lane, job.call).stack != kNoStack;
        return known ? host.place_of(lane, job.call) : kNoPlace;
    }
    /// Of a step outside of windows, waiting for data that they do not show.
    double unseen_loading_ms() const { return unseen ? unseen->ms : 0; }
    /// What shares of a step are of: the model's, with that.
    double costed_ms() const { return base_ms + unseen_loading_ms(); }
    /// Recorded host time before a call, without collections and another profiler's notes.
    Time host_gap(std::size_t lane, std::uint32_t act) const;

    const Timeline& timeline;
    Launcher launcher;
    Places places;
    std::vector<Lane> lanes;
    std::vector<WindowSteps> steps;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> steady;  ///< calls [first, second) of each lane
    HostWork host;
    std::vector<Block> blocks;  ///< speed outside of windows, in training steps
    std::vector<Model> models;  ///< without what recording added to each call
    std::vector<Time> lengths;  ///< of all steps
    std::size_t step_count = 0;
    std::size_t shapeless = 0;                        ///< windows left out since nothing returns in them, as it does in others
    double recorded_ms = 0;                           ///< mean step in the windows
    double base_ms = 0;                               ///< the model's mean step
    double replayed_ms = 0;                           ///< the same before anything was taken off
    double replay_error = 0;                          ///< |replayed - recorded| / recorded, before anything was taken off
    std::optional<double> undisturbed_ms;             ///< mean step outside of windows, without presence_ms
    bool pace_has_evaluation = false;                 ///< it was told from that of steps and evaluations together
    double evaluation_ms = 0;                         ///< that phases between steps add to each in the windows
    std::optional<double> undisturbed_evaluation_ms;  ///< the same outside of them, where the pace has it
    std::optional<UnseenLoading> unseen;              ///< waiting for data that windows do not show
    double presence_ms = 0;                           ///< of a step outside of windows: what CUPTI took there, by our estimate
    Time call_cost = 0;                               ///< that recording added to each call
    /// Power above idling while kernels run all the time, as a share of what the limit leaves for that; where both were measured.
    std::optional<double> power;
    std::optional<double> copy_bytes_per_second;  ///< of pinned copies
    bool copy_speed_is_assumed = false;           ///< by the kind of GPU

private:
    void leave_out_shapeless();
    void take_evaluation_off();
    void remove_profiler();
    void remove_recording_cost();
    void remove_presence();
};

/// Those who make batches beside the training thread, as samples show them.
enum class Chore : std::uint8_t { kIdle, kTransform, kRead, kCollate, kPickle };

struct WorkerTally {
    std::map<Chore, std::size_t> chores;  ///< samples
    std::map<Chore, std::map<std::uint32_t, std::size_t>> places;
    std::set<std::uint32_t> workers;
    std::size_t total = 0;
    std::size_t in_loader = 0;  ///< samples of processes with a loader's frames

    double share(Chore chore) const {
        const auto found = chores.find(chore);
        return found == chores.end() ? 0.0 : static_cast<double>(found->second) / static_cast<double>(total);
    }
};

/// Children without a GPU that work while the training loop waits for a batch; where none are seen to, all of them. Where the
/// program has none, its other threads that are not the framework's own. `late`: what they do meanwhile, not all the time: who is
/// too slow works then, and who waits then is waited for in vain.
WorkerTally tally_workers(const Study& study, bool late);

/// The share of their time in which the workers of a loader make batches: in steps shorter than that they would be too slow.
/// Absent where none were seen, or not often enough.
std::optional<double> busy_share_of_loader(const Study& study);

/// Absent where windows show it all, or nothing is known of the rest.
std::optional<UnseenLoading> unseen_loading(const Study& study);

/// The same in words.
std::string remark_of(const UnseenLoading& unseen, const Study& study);

/// The timeline's blocks, without those that count something else than the steps of windows (all from one evaluation to the next,
/// turns of a loop inside of a step): nothing is made of a pace that two counters do not agree about.
std::vector<Block> in_training_steps(const Study& study);

/// What blocks say of a step, by their steps.
struct BlockSpeed {
    double steps = 0, ms = 0;       ///< of all blocks
    double median_ms = 0;           ///< of a step
    std::optional<double> wait_ms;  ///< of a step, for its data, where the program measures that
};
BlockSpeed speed_of(std::span<const Block> blocks);

/// Mean step outside of windows in milliseconds: the median over the steps, since blocks also hold evaluations. Absent where less
/// than record::kLeastUnrecordedSeconds or ...Steps ran unrecorded: too little to tell.
std::optional<double> undisturbed_step_ms(std::span<const Block> unrecorded);

/// By what share recording made the run of `process` longer: by what its windows added to their steps, what counting steps
/// outside of them takes, as far as that is known, and `presence_ms`, which CUPTI adds to each of these. `undisturbed_ms` is
/// without it.
std::optional<double> overhead_share(const Timeline& timeline, std::uint32_t process, double recorded_ms,
                                     std::optional<double> undisturbed_ms, double presence_ms);

/// Lines of Python that training steps in windows run through, the frameworks' own among them.
std::set<Line> lines_of_training(const Study& study);

/// The line of an evaluation. It runs through the same model as training does, so the innermost frame of its launches is mostly
/// the model's; what a person changes is the code that is the evaluation's own.
/// The innermost of these with kPolicy.launches_under of the evaluations' launches that have a stack (where hardly any has: of
/// the samples of the main thread):
/// - a line that training steps do not run through, or the busiest of such lines in one function;
/// - where all lines are shared (one loop for both): the busiest line of the innermost function in which training also runs
///   through others, as that is where the two part;
/// - any line.
/// Absent where no frames are known, or only native ones.
std::optional<Spot> place_of_evaluation(const Study& study);

}  // namespace millrace::diagnose
