#pragma once
// The rows of metrics.jsonl: flat objects whose `kind` is "interval", "epoch", "components" or "test". Values are means over the
// members; with several members each one's own follow as "member_003/loss".

#include <vector>

#include "models/model.h"
#include "record/metrics.h"
#include "tape/instrument.h"
#include "train/reports.h"
#include "train/step_sums.h"

namespace millrace::train {

using Row = std::vector<record::Metric>;

/// `seconds`: training time since this start; `time`: seconds since 1970.
struct RowTime {
    double seconds = 0, time = 0;
};

Row interval_row(const IntervalReport& report, const StepSums& sums, RowTime when);
Row epoch_row(const EpochReport& report, RowTime when);
/// An instrumented step; `components` are the model's, in the order of times.components.
Row components_row(const tape::PhaseTimes& times, const std::vector<models::Component>& components, std::uint64_t step,
                   std::uint32_t epoch, RowTime when);
Row test_row(const RunResult& result, RowTime when);

}  // namespace millrace::train
