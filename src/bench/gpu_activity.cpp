#include "bench/gpu_activity.h"

namespace millrace::bench {

GpuActivity read_activity(sense::Source* source, const base::Clock& clock) {
    if (source == nullptr || source->facts().gpus.empty()) return {};
    sense::Sample sample;
    source->read(clock.now(), sample);
    if (sample.gpus.empty()) return {};
    return {sample.gpus.front().sm_active, sample.gpus.front().tensor_active};
}

}  // namespace millrace::bench
