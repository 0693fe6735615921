#pragma once
// The findings of a diagnosis as cards: what happens, in which line, what to do.

#include <string>

#include "diagnose/answer/diagnosis.h"

namespace millrace::report {

/// HTML of the section; lines of source are quoted where they can be read.
std::string html_findings(const diagnose::Diagnosis& diagnosis);

/// The name of a file without its folders.
std::string file_name(const std::string& path);

}  // namespace millrace::report
