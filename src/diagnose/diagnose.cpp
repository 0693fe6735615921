#include "diagnose/diagnose.h"

#include <algorithm>

#include "diagnose/steps.h"
#include "diagnose/stretches.h"

namespace millrace::diagnose {
namespace {

double milliseconds(Time time) { return static_cast<double>(time) * 1e-6; }

double median_of(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

}  // namespace

Diagnosis diagnose(const Timeline& timeline, const Policy& policy) {
    Diagnosis diagnosis;
    diagnosis.title = timeline.title;
    diagnosis.device_name = timeline.device_name;
    diagnosis.dropped_records = timeline.dropped;
    diagnosis.remarks = timeline.remarks;
    const auto launcher = find_launcher(timeline);
    if (!launcher) {
        diagnosis.remarks.push_back("no work of a GPU was recorded: nothing can be said about it");
        return diagnosis;
    }
    std::vector<double> lengths;
    double total = 0, busy = 0;
    bool first = true;
    for (const Window& window : windows_of(timeline, *launcher)) {
        const Lane lane = read_lane(timeline, *launcher, window.begin, window.end);
        const WindowSteps found = find_steps(timeline, *launcher, lane, first, policy);
        first = false;
        for (const Step& step : found.steps) {
            diagnosis.recorded.emplace_back(step.begin, step.end);
            lengths.push_back(milliseconds(step.end - step.begin));
            total += lengths.back();
            for (const Stretch& stretch : device_stretches(timeline, lane, step.begin, step.end)) {
                diagnosis.breakdown_ms[static_cast<std::size_t>(stretch.owner)] += milliseconds(stretch.end - stretch.begin);
                if (!stretch.idle) busy += milliseconds(stretch.end - stretch.begin);
            }
        }
    }
    if (lengths.empty()) {
        diagnosis.remarks.push_back("no steps were seen");
        return diagnosis;
    }
    diagnosis.steps = lengths.size();
    diagnosis.step_ms = median_of(lengths);
    diagnosis.busy_share = busy / total;
    for (double& owned : diagnosis.breakdown_ms) owned /= static_cast<double>(lengths.size());
    diagnosis.remarks.push_back("causes of idle time were not looked for");
    return diagnosis;
}

}  // namespace millrace::diagnose
