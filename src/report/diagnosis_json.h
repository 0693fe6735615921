#pragma once
// `millrace diagnose --json`: the stable form of a diagnosis for programs. Keys are added, never renamed;
// docs/doctor-reports.md lists them.

#include <string>

#include "diagnose/answer/diagnosis.h"

namespace millrace::report {

constexpr int kDiagnosisSchema = 1;

/// One object, indented, with a newline at its end. What was not measured is null, never 0.
std::string diagnosis_json(const diagnose::Diagnosis& diagnosis);

}  // namespace millrace::report
