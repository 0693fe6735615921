#pragma once
// The rules. Each looks at the study and names what it suspects; which of them are told of, and at what cost, is weighed in
// causes.h. Rules whose cost is no matter of the replay enter findings themselves.

#include <optional>
#include <string>
#include <vector>

#include "diagnose/answer/diagnosis.h"
#include "diagnose/causes/causes.h"
#include "diagnose/causes/owners.h"
#include "diagnose/findings/advice.h"

namespace millrace::diagnose {

struct Chart {
    Chart(const Study& study, const Roles& roles);

    /// A finding with place, severity, cost, gain and confidence filled in.
    Finding finding(Kind kind, std::uint32_t place, double lost_ms) const;
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
    const Framework framework;
    std::vector<Cause> causes;                   ///< suspected so far
    std::vector<Cure> cured;                     ///< of those that became findings
    std::vector<std::uint32_t> repeated_places;  ///< uploads there are repeated work: whatever else they are
    std::vector<Finding> findings;
    std::vector<std::string> remarks;
};

void find_repeated_uploads(Chart& chart);
void find_repeated_kernels(Chart& chart);
void find_pageable_copies(Chart& chart);
void find_allocator_churn(Chart& chart);
void find_loader_wait(Chart& chart);
void find_host_syncs(Chart& chart);
void find_sleeping_reads(Chart& chart);
void find_file_output(Chart& chart);
void find_python_work(Chart& chart);
void find_launch_bound(Chart& chart);
void find_missing_tensor_cores(Chart& chart);
void find_small_batch(Chart& chart, double occupied_share);  ///< of the step that the GPU is busy or pauses by itself
void find_slow_evaluation(Chart& chart, const Breakdown& breakdown);
void find_memory_edge(Chart& chart);
void find_throttling(Chart& chart);
void find_stragglers(Chart& chart);

/// All of them, in their order; most lost first. `pauses`: share of the step in which the GPU had work queued and ran none.
void examine(Chart& chart, const Breakdown& breakdown, double pauses);

inline constexpr const char* kHostWaits =
    "The host waits for the GPU, which then has nothing queued and idles while the host catches up.";

}  // namespace millrace::diagnose
