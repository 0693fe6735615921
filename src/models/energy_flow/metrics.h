#pragma once
#include <span>

#include "record/metric_table.h"

namespace millrace::models {

/// What training and scoring an energy flow measures beside loss and speed.
std::span<const record::MetricInfo> flow_metrics();

}  // namespace millrace::models
