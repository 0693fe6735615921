#pragma once
// Those who make batches beside the training thread, as samples show them.

#include <optional>
#include <string>

namespace millrace::diagnose {

struct Chart;
struct Study;

/// Why they are late, in a sentence with numbers, and what to do about it.
struct LoaderReason {
    std::string evidence, fix;
};
LoaderReason loader_reason(const Chart& chart, bool waiting);

/// The share of their time in which the workers of a loader make batches: in steps shorter than that they would be too slow.
/// Absent where none were seen, or not often enough.
std::optional<double> busy_share_of_loader(const Study& study);

}  // namespace millrace::diagnose
