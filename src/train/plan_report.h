#pragma once
// What a training step will do, kernel by kernel, before it is run: `millrace plan`.

#include <string>
#include <vector>

#include "tape/program.h"
#include "train/setup.h"

namespace millrace::train {

struct PlanReport {
    std::string recipe, device, precision;
    std::int64_t parameters = 0;
    std::int32_t batch = 0, micro_batch = 0;
    MemoryNeeds memory;
    std::int64_t taken = 0;  ///< bytes that setting up took
    std::vector<tape::KernelPlan> kernels;
    std::vector<double> microseconds;  ///< of each kernel alone; empty: not measured
};

/// Of the regular step. `timed` runs every kernel, which leaves parameters and counters as those runs leave them.
base::Result<PlanReport> report_plan(Setup& setup, const std::string& recipe, bool timed);

std::string plan_text(const PlanReport& report);
std::string plan_json(const PlanReport& report);

}  // namespace millrace::train
