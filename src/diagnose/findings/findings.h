#pragma once
// The rules. Each looks at the study and names what it suspects; which of them are told of, and at what cost, is weighed in
// causes.h. Rules whose cost is no matter of the replay enter findings themselves.

#include <span>
#include <string>

#include "diagnose/causes/causes.h"

namespace millrace::diagnose {

/// What to do about a finding, in the words of the framework that the program uses.
enum class Topic : std::uint8_t {
    kRead,
    kReadTogether,  ///< many values that one line reads in each step
    kLaunches,
    kPageable,
    kFlush,   ///< memory is given back and taken again
    kShapes,  ///< memory is taken without being given back
    kPrecision,
    kMemory,
    kPythonWork,
    kConstant,  ///< computed in every step
    kNoWorkers,
    kFewWorkers,
    kPacking,
    kIdleWorkers,
    kEvaluation,  ///< launches little at a time
};

const char* advice_for(Topic topic, Framework framework);

/// By the frames under which `launcher` launches, then those that its main thread was seen in, then names of kernels.
Framework framework_of(const Timeline& timeline, const Launcher& launcher);

struct Chart {
    /// `sure`: of its confidence, for reasons of the rule's own.
    Finding finding(Kind kind, std::uint32_t place, double lost_ms, Words words, double sure = 1) const;
    /// Sets what it costs and returns at most.
    void rate(Finding& finding, double lost_ms) const;
    double confidence() const;  ///< in any finding, by what is known of the steps
    double share(double ms) const { return study.costed_ms() > 0 ? ms / study.costed_ms() : 0; }
    /// Names what may be to blame; `tell` is asked once it is known what that costs.
    using Tell = std::function<Finding(const Chart&, const Judgement&)>;
    void suspect(Kind kind, Breadth breadth, Cure cure, Tell tell, const Site* site = nullptr, double unseen_ms = 0);
    const char* advice(Topic topic) const { return advice_for(topic, framework); }
    /// What a cure returns alone, and no more than it still returns after all that was found.
    double cost_of(const Cure& cure) const;

    const Study& study;
    const Roles& roles;
    Framework framework;
    Diagnosis& diagnosis;                          ///< with its breakdown
    std::vector<Cause> causes{};                   ///< suspected so far
    std::vector<const Cure*> cured{};              ///< of those that became findings
    std::vector<std::uint32_t> repeated_places{};  ///< uploads there are repeated work: whatever else they are
    std::vector<Finding>& findings = diagnosis.findings;
    std::vector<std::string>& remarks = diagnosis.remarks;
};

void find_repeated_work(Chart& chart);
void find_memory_waits(Chart& chart);  ///< pageable copies, the allocator
void find_loader_wait(Chart& chart);
void find_host_syncs(Chart& chart);
void find_host_work(Chart& chart);  ///< reads asleep, file output, Python, launches
void find_missing_tensor_cores(Chart& chart);
void find_small_batch(Chart& chart, double occupied_share);  ///< of the step that the GPU is busy or pauses by itself
void find_slow_evaluation(Chart& chart);
void find_machine_limits(Chart& chart);  ///< of clocks and memory
void find_stragglers(Chart& chart);

/// All of them, in their order; most lost first. `pauses`: share of the step in which the GPU had work queued and ran none.
void examine(Chart& chart, double pauses);

/// What samples of the machine say by themselves: memory that is nearly full, a GPU that slows itself down.
struct MachineFigures {
    std::optional<double> utilization;  ///< mean, 0 to 1
    double utilization_samples = 0;
    double memory_share = 0;         ///< the most that was in use, of the device's; 0: not known
    double throttle_samples = 0;     ///< that say whether the GPU slows itself down
    double capped = 0;               ///< of them, those in which power alone does it: that is how a full GPU looks
    std::vector<Time> slow_moments;  ///< of the others in which it does
    std::string slow_reason;

    [[nodiscard]] double slowed_share() const {
        return throttle_samples > 0 ? static_cast<double>(slow_moments.size()) / throttle_samples : 0;
    }
};
MachineFigures figures_of(std::span<const MachineSample> samples);

/// Findings without a cost, a gain or a confidence; absent below their bands. `failed`: allocations.
std::optional<Finding> memory_edge(const MachineFigures& figures, std::size_t failed, const char* fix);
std::optional<Finding> throttled(const MachineFigures& figures);

Severity severity_of(double share, const Band& band);

/// "replayed without them a step takes 2.00 ms instead of 3.00 ms".
std::string replayed(const Judgement& verdict, const char* without);

inline constexpr const char* kHostWaits =
    "The host waits for the GPU, which then has nothing queued and idles while the host catches up.";

}  // namespace millrace::diagnose
