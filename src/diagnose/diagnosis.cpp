#include "diagnose/diagnosis.h"

#include "base/result.h"

namespace millrace::diagnose {
namespace {

constexpr std::array<std::string_view, kOwners> kOwnerNames{
    "compute",      "communication", "copy", "loader-wait", "host-sync", "allocator-churn", "pageable-copy",
    "launch-bound", "python-work",   "gc",   "file-output", "other",     "unexplained"};
constexpr std::array<std::string_view, kKinds> kKindNames{
    "host-sync",   "allocator-churn", "loader-wait", "launch-bound",    "pageable-copy", "repeated-work", "python-work",
    "file-output", "no-tensor-cores", "small-batch", "slow-evaluation", "memory-edge",   "throttled",     "straggler"};
constexpr std::array<std::string_view, 3> kSeverityNames{"note", "warning", "critical"};

template <class Names>
std::string_view name_in(const Names& names, std::size_t at) {
    MILLRACE_ASSERT(at < names.size(), std::to_string(at));
    return names[at];
}

}  // namespace

std::string_view name_of(Owner owner) { return name_in(kOwnerNames, static_cast<std::size_t>(owner)); }
std::string_view name_of(Kind kind) { return name_in(kKindNames, static_cast<std::size_t>(kind)); }
std::string_view name_of(Severity severity) { return name_in(kSeverityNames, static_cast<std::size_t>(severity)); }

}  // namespace millrace::diagnose
