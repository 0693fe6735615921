#include "diagnose/answer/diagnosis.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "diagnose/answer/policy.h"

namespace millrace::diagnose {
namespace {

constexpr std::array<std::string_view, kOwners> kOwnerNames{
    "compute",      "communication", "copy", "loader-wait", "host-sync", "allocator-churn", "pageable-copy",
    "launch-bound", "python-work",   "gc",   "file-output", "other",     "unexplained"};
constexpr std::array<std::string_view, kKinds> kKindNames{
    "host-sync",   "allocator-churn", "loader-wait", "launch-bound",    "pageable-copy", "repeated-work", "python-work",
    "file-output", "no-tensor-cores", "small-batch", "slow-evaluation", "memory-edge",   "throttled",     "straggler"};
constexpr double kUneven = 0.05;          ///< of the median step, by which the mean is another
constexpr double kMuchEvaluation = 0.02;  ///< what `compare` calls no difference
constexpr std::array<std::string_view, kActivities> kActivityNames{"start_up",   "compiling",   "training",
                                                                   "evaluation", "checkpoints", "other"};
constexpr std::array<std::string_view, 3> kSeverityNames{"note", "warning", "critical"};

}  // namespace

std::string_view name_of(Owner owner) { return kOwnerNames.at(static_cast<std::size_t>(owner)); }
std::string_view name_of(Kind kind) { return kKindNames.at(static_cast<std::size_t>(kind)); }
std::string_view name_of(Activity activity) { return kActivityNames.at(static_cast<std::size_t>(activity)); }
std::string_view name_of(Severity severity) { return kSeverityNames.at(static_cast<std::size_t>(severity)); }

double sum_of(const OwnerMs& ms) { return std::accumulate(ms.begin(), ms.end(), 0.0); }
double busy_of(const OwnerMs& ms) { return ms[0] + ms[1] + ms[2]; }

double mean_step_ms(const Diagnosis& diagnosis) {
    const double sum = sum_of(diagnosis.breakdown_ms);
    return sum > 0 ? sum : diagnosis.step_ms;
}

bool has_uneven_steps(const Diagnosis& diagnosis) {
    return std::abs(mean_step_ms(diagnosis) - diagnosis.step_ms) > kUneven * diagnosis.step_ms;
}

double lost_share(const Diagnosis& diagnosis, const Finding& finding) {
    const bool both = finding.kind == Kind::kSlowEvaluation;
    const double step = diagnosis.costed_step_ms > 0 ? diagnosis.costed_step_ms : mean_step_ms(diagnosis);
    const double whole = step + (both ? diagnosis.undisturbed_evaluation_ms.value_or(diagnosis.evaluation_ms) : 0);
    return whole > 0 ? finding.lost_ms_per_step / whole : 0;
}

double added_by_recording_ms(const Diagnosis& diagnosis) {
    if (!diagnosis.undisturbed_step_ms) return 0;
    const double recorded = std::min(mean_step_ms(diagnosis), diagnosis.step_ms),
                 added = recorded - *diagnosis.undisturbed_step_ms;
    return added > 0 && *diagnosis.undisturbed_step_ms >= kPolicy.fastest_pace * recorded ? added : 0;
}

std::optional<double> undisturbed_busy_share(const Diagnosis& diagnosis) {
    const double recorded = mean_step_ms(diagnosis);
    if (!diagnosis.undisturbed_step_ms || !std::isfinite(diagnosis.busy_share) || !(recorded > 0)) return std::nullopt;
    return std::min(1.0, diagnosis.busy_share * recorded / (recorded - added_by_recording_ms(diagnosis)));
}

double whole_step_ms(const Diagnosis& diagnosis) {
    return diagnosis.undisturbed_step_ms.value_or(diagnosis.step_ms) +
           diagnosis.undisturbed_evaluation_ms.value_or(diagnosis.evaluation_ms);
}

bool has_evaluation(const Diagnosis& diagnosis) { return diagnosis.evaluation_ms > kMuchEvaluation * diagnosis.step_ms; }

}  // namespace millrace::diagnose
