#pragma once
// What a comparison of two runs says, for people and for programs.

#include <optional>
#include <string>

#include "diagnose/compare/compare.h"
#include "report/diagnosis_forms.h"

namespace millrace::report {

constexpr int kComparisonSchema = 1;

/// The gate of `--fail-if-slower`: how much slower the later run may be, and whether it is slower than that.
struct SpeedGate {
    double allowed = 0;
    bool failed = false;
};

struct ComparisonReport {
    diagnose::CompareSide before, after;
    diagnose::Comparison comparison;
    diagnose::CompareSettings settings;
    std::optional<SpeedGate> gate;
};

/// Speed, busy share and owners side by side, the verdict and what it rests on.
std::string compare_text(const ComparisonReport& report, const TextOptions& options);
/// One object with a newline at its end; what was not measured is null.
std::string compare_json(const ComparisonReport& report);

}  // namespace millrace::report
