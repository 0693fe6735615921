#include "bench/gpu_activity.h"

namespace millrace::bench {

GpuActivityMeter::GpuActivityMeter(std::unique_ptr<sense::Source> source, const base::Clock& clock)
    : source_(std::move(source)), clock_(clock) {}

void GpuActivityMeter::begin() { (void)since_begin(); }

GpuActivity GpuActivityMeter::since_begin() {
    if (!source_ || source_->facts().gpus.empty()) return {};
    sense::Sample sample;
    source_->read(clock_.now(), sample);  // activities are over the time since the reading before
    if (sample.gpus.empty()) return {};
    return {sample.gpus.front().sm_active, sample.gpus.front().tensor_active};
}

}  // namespace millrace::bench
