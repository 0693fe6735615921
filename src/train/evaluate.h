#pragma once
// Scores the best weights of a run.

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "data/batch_source.h"
#include "io/file.h"
#include "record/flow_trace.h"
#include "train/reports.h"

namespace millrace::train {

struct EvaluateReport {
    std::string run, model, preset, device, data;
    std::string unit;  ///< what a sample is: "images"
    data::Part part = data::Part::test;
    bool classifies = true;
    std::uint64_t step = 0;  ///< the weights are those after this step
    std::int64_t samples = 0, parameters = 0;
    std::vector<Score> members;
    std::size_t best = 0;  ///< the member that training chose
    double seconds = 0;    ///< of the evaluation itself
    std::optional<record::FlowTrace> trace;
};

/// Loads `run`/checkpoints/best with the recipe stored in it. `part` absent: test, or validation where the data has no test part.
/// `device` and `data_path` replace what the recipe says unless empty. `trace_sample`: also follows that sample of the part, from
/// 0, through the model; refused, before anything is scored, for models without flows and samples that are not there.
base::Result<EvaluateReport> evaluate_run(const io::Path& run, std::optional<data::Part> part, const std::string& device = {},
                                          const std::string& data_path = {}, std::optional<std::int64_t> trace_sample = {});

}  // namespace millrace::train
