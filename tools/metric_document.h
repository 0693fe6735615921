#pragma once
#include <string>

namespace millrace::record {

/// docs/metrics.md: every metric with its key, unit, kind, name for Prometheus and meaning.
std::string metric_document();

}  // namespace millrace::record
