#pragma once
// What sick_diagnosis() could have come from: steps of 28 ms that launch a hundred kernels and read the loss.

#include <cmath>

#include "diagnose/timeline/timeline.h"
#include "report/made_up_diagnosis.h"

namespace millrace::report {

struct MadeUpStep {
    diagnose::Time begin = 0;
    double idle_ms = 4.48;  ///< after the read of the loss, while the host launches
};

/// Adds one step's kernels and calls and gives the view of it.
inline diagnose::StepView add_step(diagnose::Timeline& timeline, const MadeUpStep& how) {
    using diagnose::Owner;
    const auto at = [&](double ms) { return how.begin + static_cast<diagnose::Time>(ms * 1e6); };
    diagnose::StepView view;
    view.begin = how.begin;
    const auto stretch = [&](double from, double to, Owner owner) {
        view.stretches.push_back({{at(from), at(to)}, owner});
        view.ms[static_cast<std::size_t>(owner)] += to - from;
    };
    const auto call = [&](double from, double to, record::CallKind kind, std::uint32_t name) {
        timeline.calls.push_back({at(from), at(to), 7, 7, kind, false, name, 1});
    };
    double host = 0.4, gpu = how.idle_ms;
    stretch(0, 0.3, Owner::kPythonWork);
    stretch(0.3, 1.3, Owner::kAllocatorChurn);
    for (int i = 0; i < 6; ++i) call(0.3 + i * 0.16, 0.3 + i * 0.16 + 0.15, record::CallKind::kAlloc, 5);
    stretch(1.3, gpu, Owner::kHostSync);
    host = 1.4;
    for (int kernel = 0; kernel < 96; ++kernel) {
        const double length = kernel % 8 == 0 ? 0.62 : 0.15 + 0.02 * (kernel % 5);
        call(host, host + 0.006, record::CallKind::kLaunch, 4);
        const std::uint32_t name = kernel % 8 == 0 ? 1 : 2;
        timeline.work.push_back({at(gpu), at(gpu + length - 0.004), 7, 0, record::WorkKind::kKernel, false, 7, name, 1});
        host += 0.055;
        gpu += length;
    }
    stretch(how.idle_ms, gpu, Owner::kCompute);
    timeline.work.push_back({at(gpu), at(gpu + 0.62), 7, 0, record::WorkKind::kCopy, false, 7, 3, 1});
    stretch(gpu, gpu + 0.62, Owner::kCopy);
    call(host, gpu + 0.66, record::CallKind::kStreamSync, 6);
    stretch(gpu + 0.62, gpu + 0.7, Owner::kUnexplained);
    view.end = at(gpu + 0.7);
    return view;
}

/// Sets the two steps of `diagnosis`, too.
inline diagnose::Timeline sick_timeline(diagnose::Diagnosis& diagnosis) {
    diagnose::Timeline timeline;
    timeline.title = diagnosis.title;
    timeline.device_name = diagnosis.device_name;
    timeline.names = {"",
                      "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64",
                      "vectorized_elementwise_kernel",
                      "Memcpy DtoH",
                      "cudaLaunchKernel",
                      "cudaMalloc",
                      "cudaStreamSynchronize"};
    timeline.stacks = {
        {}, {diagnosis.findings.empty() ? diagnose::Frame{"train.py", 41, "train", false} : *diagnosis.findings[0].where}};
    diagnosis.typical = add_step(timeline, {0, 5.36});
    diagnosis.worst = add_step(timeline, {100'000'000, 17.9});
    for (int second = 0; second < 240; ++second) {
        diagnose::MachineSample sample;
        sample.time = second * std::int64_t{1'000'000'000};
        const double wave = std::sin(second * 0.35) * 3 + std::sin(second * 1.7) * 1.5;
        const bool checkpoint = second % 60 >= 56;
        sample.gpu_utilization = (checkpoint ? 31 + wave : 93 + wave) / 100;
        sample.sm_active = (checkpoint ? 12 : 62 + wave) / 100;
        sample.tensor_active = (checkpoint ? 4 : 28 + 0.5 * wave) / 100;
        sample.cpu_utilization = (13 + wave) / 100;
        sample.power_watts = checkpoint ? 210 : 480 + 8 * wave;
        sample.memory_total_bytes = 140.0 * (1 << 30);
        sample.memory_used_bytes = std::min(61.0, 20.0 + second) * (1 << 30);
        if (second < 100 || second > 112) timeline.machine.push_back(sample);
    }
    return timeline;
}

}  // namespace millrace::report
