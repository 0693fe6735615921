#pragma once
// What the doctor says. The JSON of `millrace diagnose --json` takes its keys from here; docs/doctor-reports.md lists them.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "diagnose/timeline/kernel_names.h"
#include "diagnose/timeline/timeline.h"

namespace millrace::diagnose {

/// Who had a stretch of a step. Priority in this order: a moment in which a kernel computes is compute, whatever else happens.
enum class Owner : std::uint8_t {
    kCompute,
    kCommunication,
    kCopy,
    // the GPU idles, because of
    kLoaderWait,
    kHostSync,
    kAllocatorChurn,
    kPageableCopy,
    kLaunchBound,
    kPythonWork,
    kGarbageCollection,
    kFileOutput,
    kOther,
    kUnexplained,
};
constexpr std::size_t kOwners = 13;
std::string_view name_of(Owner owner);  ///< "compute", "loader-wait", ...: the keys of `breakdown`
constexpr std::size_t index_of(Owner owner) { return static_cast<std::size_t>(owner); }
/// The GPU computes, communicates or copies.
constexpr bool is_busy(Owner owner) { return owner <= Owner::kCopy; }

/// Who has the time of a piece of work.
constexpr Owner owner_of(const Work& work) {
    if (work.communication) return Owner::kCommunication;
    return work.kind == WorkKind::kKernel ? Owner::kCompute : Owner::kCopy;
}

using OwnerMs = std::array<double, kOwners>;  ///< milliseconds by owner
double sum_of(const OwnerMs& ms);
double busy_of(const OwnerMs& ms);

enum class Kind : std::uint8_t {
    kHostSync,
    kAllocatorChurn,
    kLoaderWait,
    kLaunchBound,
    kPageableCopy,
    kRepeatedWork,
    kPythonWork,
    kFileOutput,
    kNoTensorCores,
    kSmallBatch,
    kSlowEvaluation,
    kMemoryEdge,
    kThrottled,
    kStraggler,
};
constexpr std::size_t kKinds = 14;
std::string_view name_of(Kind kind);  ///< "host-sync": the stable key

enum class Severity : std::uint8_t { kNote, kWarning, kCritical };
std::string_view name_of(Severity severity);  ///< "note", "warning", "critical"

/// A line of the function that a finding is about.
struct LineShare {
    Frame frame;
    double ms = 0;                   ///< per step
    std::optional<double> launches;  ///< likewise, of launch-bound
};

struct Words {
    std::string what, evidence, fix;  ///< sentences
    std::string assumption;           ///< under which the gain holds
};

struct Finding : Words {
    Kind kind = Kind::kHostSync;
    Severity severity = Severity::kNote;
    std::optional<Frame> where{};    ///< innermost frame of the user's own code
    Stack stack{};                   ///< the rest, for the report
    std::vector<LineShare> lines{};  ///< of its function, those with most launches or most of the host's time first
    double lost_ms_per_step = 0;
    std::optional<double> gain_upper_bound{};  ///< share of the step's time that its cure returns at most
    double confidence = 0;                     ///< 0 to 1
};

/// All kernels of one name.
struct KernelRow {
    std::string name;
    std::uint64_t calls = 0;
    double ms = 0;               ///< of them all
    std::optional<Frame> where;  ///< the user's line with most of the time whose line is known
    std::string_view data_type;  ///< "bf16"; empty: the name does not say
    Units units = Units::kUnsaid;
    std::optional<double> waves;  ///< mean by time: 1 fills the GPU once
};

/// Element-wise kernels that one function launches right after each other on one stream, with no wait and nothing else on the
/// stream in between.
struct KernelChain {
    std::optional<Frame> where;      ///< line of the first
    std::vector<std::string> names;  ///< in their order
    std::uint64_t times = 0;         ///< seen, among launches whose line is known
    double ms = 0;                   ///< of all recorded kernels, as much as its share of those whose line is known
};

struct KernelTable {
    double gpu_ms = 0;                ///< kernels, copies and sets, what runs side by side counted twice
    std::vector<KernelRow> rows;      ///< most time first
    std::vector<KernelChain> chains;  ///< most time first
};

enum class Activity : std::uint8_t { kStartUp, kCompiling, kTraining, kEvaluation, kCheckpoints, kOther };
constexpr std::size_t kActivities = 6;
std::string_view name_of(Activity activity);  ///< "start_up", "compiling", ...: the keys of `run` with _s behind

struct RunLedger {
    std::optional<double> wall_s;                            ///< from the command's first process to its last moment
    std::optional<std::array<double, kActivities>> seconds;  ///< sum to wall_s; absent: not sampled, or no training was seen
};

/// One step for the report's timeline.
struct StepView {
    Time begin = 0, end = 0;
    OwnerMs ms{};
    std::vector<std::pair<std::pair<Time, Time>, Owner>> stretches;  ///< cover [begin, end)
};

struct Diagnosis {
    bool healthy = false;     ///< steps were seen and nothing is worth changing
    double busy_share = 0;    ///< of the step's time in which the GPU computed, communicated or copied; NaN: not measured
    std::uint64_t steps = 0;  ///< that were looked at
    double step_ms = 0;       ///< median
    /// Mean that costs are measured against: without what recording added, with what windows do not show; 0: as recorded.
    double costed_step_ms = 0;
    /// Of a mean step, waiting for data that was seen outside of windows only; the breakdown has it.
    double unseen_loading_ms = 0;
    double evaluation_ms = 0;  ///< that phases between steps add to each, in the mean; part of neither step nor breakdown
    OwnerMs evaluation_breakdown_ms{};                ///< sums to that
    std::size_t evaluations = 0;                      ///< phases between steps
    std::optional<double> undisturbed_step_ms;        ///< outside windows: what a step takes without recording
    std::optional<double> undisturbed_evaluation_ms;  ///< the same of evaluation_ms, where that is known
    std::optional<double> overhead_share;             ///< of recording on the whole run; absent: not measured
    std::optional<double> window_overhead_share;      ///< inside windows
    std::uint64_t dropped_records = 0;
    OwnerMs breakdown_ms{};                       ///< mean per step; sums to the mean step (unseen_loading_ms included)
    std::vector<Finding> findings;                ///< by lost time, most first
    std::vector<std::string> remarks;             ///< what was left unsaid, and why: the doctor abstains
    std::vector<std::pair<Time, Time>> recorded;  ///< begin and end of each step that was looked at, by begin
    std::vector<Block> blocks;  ///< speed outside of windows, in steps such as these; none: as the timeline has it
    KernelTable kernels;
    RunLedger run;
    std::optional<StepView> typical, worst;
    std::string title, device_name;
};

/// Of the breakdown, where there is one; else the median.
double mean_step_ms(const Diagnosis& diagnosis);
/// Whether mean and median step tell different stories: some steps are much longer than most.
bool has_uneven_steps(const Diagnosis& diagnosis);
/// What a finding loses of the mean time from step to step without recording: of the step, or, where it is about evaluation, of
/// both. 0 unknown.
double lost_share(const Diagnosis& diagnosis, const Finding& finding);
/// What recording added to a step; 0 where it is not known, or so much that steps outside of windows must be other ones. By the
/// median, where the mean is larger: pauses that come now and then are the program's own.
double added_by_recording_ms(const Diagnosis& diagnosis);
/// busy_share of a step without recording: the same work in less time. Where it takes longer the reason is unknown, and the
/// share is that of the recorded one. Absent where it is not known.
std::optional<double> undisturbed_busy_share(const Diagnosis& diagnosis);
/// Milliseconds from one training step to the next with what stands between them, at the speed without recording where known.
double whole_step_ms(const Diagnosis& diagnosis);
/// Whether evaluation takes so much that a step alone does not tell the program's speed.
bool has_evaluation(const Diagnosis& diagnosis);

}  // namespace millrace::diagnose
