#pragma once
// Diagnoses and timelines as the doctor would make them, small enough to know every figure.

#include "diagnose/answer/diagnosis.h"

namespace millrace::report {

inline double& ms_of(diagnose::Diagnosis& diagnosis, diagnose::Owner owner) {
    return diagnosis.breakdown_ms[static_cast<std::size_t>(owner)];
}

/// As of a program that keeps the GPU busy.
inline diagnose::KernelTable made_up_kernels() {
    using diagnose::Units;
    diagnose::KernelTable table;
    table.gpu_ms = 1000;
    const diagnose::Frame line{"/home/ada/project/model.py", 7, "forward", false};
    table.rows = {
        {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_execute", 1200, 600, line, "bf16", Units::kTensor, 3.25},
        {"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int, float)", 9600, 250, line,
         "f32", Units::kPlain, std::nullopt},
        {"my_own_kernel", 12, 100, std::nullopt, "", Units::kUnsaid, std::nullopt}};
    table.chains = {{line, {table.rows[1].name, "void gelu<c10::Half>(int)"}, 4800, 240}};
    return table;
}

/// A program that reads its loss in every step, and clears the cache besides.
inline diagnose::Diagnosis sick_diagnosis() {
    using diagnose::Owner;
    diagnose::Diagnosis diagnosis;
    diagnosis.busy_share = 0.79;
    diagnosis.steps = 1500;
    diagnosis.step_ms = 28.0;
    diagnosis.undisturbed_step_ms = 27.6;
    diagnosis.overhead_share = 0.004;
    diagnosis.window_overhead_share = 0.061;
    diagnosis.title = "python3 train.py 1500";
    diagnosis.device_name = "NVIDIA H200";
    ms_of(diagnosis, Owner::kCompute) = 21.5;
    ms_of(diagnosis, Owner::kCopy) = 0.62;
    ms_of(diagnosis, Owner::kHostSync) = 4.48;
    ms_of(diagnosis, Owner::kAllocatorChurn) = 1.0;
    ms_of(diagnosis, Owner::kPythonWork) = 0.3;
    ms_of(diagnosis, Owner::kUnexplained) = 0.1;

    diagnose::Finding sync;
    sync.kind = diagnose::Kind::kHostSync;
    sync.severity = diagnose::Severity::kCritical;
    sync.where = diagnose::Frame{"/home/ada/project/train.py", 41, "train", false};
    sync.stack = {{"/usr/lib/python3/dist-packages/torch/_tensor.py", 981, "item", false},
                  {"/home/ada/project/train.py", 41, "train", false},
                  {"/home/ada/project/train.py", 60, "<module>", false}};
    sync.lost_ms_per_step = 4.48;
    sync.gain_upper_bound = 0.16;
    sync.assumption = "the host keeps its pace";
    sync.confidence = 0.92;
    sync.what = "`loss.item()` waits for the GPU to finish the step; the GPU then idles while the next step is being launched.";
    sync.evidence = "50 of 50 steps wait here, 19.2 ms each; replayed without the wait a step takes 23.5 ms instead of 28.0 ms.";
    sync.fix = "Add the loss up on the GPU (`total += loss.detach()`) and read it once every 100 steps.";
    diagnosis.findings.push_back(sync);

    diagnose::Finding churn;
    churn.kind = diagnose::Kind::kAllocatorChurn;
    churn.severity = diagnose::Severity::kWarning;
    churn.where = diagnose::Frame{"/home/ada/project/train.py", 44, "train", false};
    churn.lost_ms_per_step = 1.0;
    churn.gain_upper_bound = 0.036;
    churn.confidence = 0.8;
    churn.what = "`torch.cuda.empty_cache()` gives memory back that the next step takes again.";
    churn.evidence = "12 cudaFree and 12 cudaMalloc calls per step.";
    churn.fix = "Take the call out; the cache is reused without it.";
    diagnosis.findings.push_back(churn);
    return diagnosis;
}

inline diagnose::Diagnosis healthy_diagnosis() {
    diagnose::Diagnosis diagnosis;
    diagnosis.healthy = true;
    diagnosis.busy_share = 0.99;
    diagnosis.steps = 150;
    diagnosis.step_ms = 23.3;
    diagnosis.breakdown_ms[0] = 23.1;
    diagnosis.breakdown_ms[12] = 0.2;
    diagnosis.title = "python3 healthy.py";
    return diagnosis;
}

}  // namespace millrace::report
