#pragma once
// Networks for simulated programs, and what is expected of a diagnosis of them.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <unordered_set>

#include "diagnose/diagnose.h"
#include "diagnose/simulated_program.h"

namespace millrace::diagnose {

/// Sizes of a network as the host sees it.
struct Network {
    int layers = 12;
    double kernel_us = 400;
};

/// Forward and loss at line 20, backward at 21 on the framework's own thread, optimizer at 22.
inline void train(SimulatedProgram& p, Network net, bool update = true) {
    p.at(20);
    for (int i = 0; i < net.layers; ++i) {
        p.launch("gemm_bf16", net.kernel_us);
        p.launch("gelu_elementwise_kernel", net.kernel_us / 8);
    }
    p.launch("softmax", net.kernel_us / 20);
    p.begin_backward(21);
    for (int i = 0; i < net.layers; ++i) {
        p.launch("dgelu_elementwise_kernel", net.kernel_us / 8);
        p.launch("gemm_dgrad", net.kernel_us);
        p.launch("gemm_wgrad", net.kernel_us);
    }
    p.end_backward();
    if (!update) return;
    p.at({torch_line("optim/adamw.py", "step"), user_line(22)});
    p.launch("multi_tensor_apply_kernel", net.kernel_us / 2);
}

inline double sum_of(const Diagnosis& diagnosis) {
    return std::accumulate(diagnosis.breakdown_ms.begin(), diagnosis.breakdown_ms.end(), 0.0);
}

inline std::string told(const Diagnosis& diagnosis) {
    std::string text =
        fmt::format("step {:.3f} ms, busy {:.3f}, {} steps\n", diagnosis.step_ms, diagnosis.busy_share, diagnosis.steps);
    for (std::size_t i = 0; i < kOwners; ++i)
        if (diagnosis.breakdown_ms[i] > 0)
            text += fmt::format("  {} {:.3f}\n", name_of(static_cast<Owner>(i)), diagnosis.breakdown_ms[i]);
    for (const Finding& finding : diagnosis.findings)
        text += fmt::format("  {} line {} lost {:.3f}: {}\n", name_of(finding.kind), finding.where ? finding.where->line : -1,
                            finding.lost_ms_per_step, finding.evidence);
    for (const std::string& remark : diagnosis.remarks) text += "  remark: " + remark + "\n";
    return text;
}

/// What the project promises: first finding right in kind and line, cost within a quarter of the truth or 2 % of the step.
inline void expect_case(const StepBody& body, Kind kind, int line, SimulatedProgram::Traits traits = {}, int steps = 60) {
    const Simulation sick = simulate(body, false, steps, traits), cured = simulate(body, true, steps, traits);
    const Diagnosis diagnosis = diagnose(sick.timeline);
    const double truth = sick.step_ms - cured.step_ms;
    SCOPED_TRACE(fmt::format("truth {:.3f} of {:.3f} ms\n{}", truth, sick.step_ms, told(diagnosis)));
    ASSERT_FALSE(diagnosis.findings.empty());
    const Finding& first = diagnosis.findings.front();
    EXPECT_EQ(name_of(first.kind), name_of(kind));
    ASSERT_TRUE(first.where);
    EXPECT_EQ(first.where->line, line);
    EXPECT_NEAR(first.lost_ms_per_step, truth, std::max(0.25 * truth, 0.02 * sick.step_ms));
    EXPECT_FALSE(diagnosis.healthy);
    EXPECT_FALSE(first.evidence.empty());
    EXPECT_FALSE(first.fix.empty());
    EXPECT_NEAR(
        sum_of(diagnosis),
        std::accumulate(diagnosis.recorded.begin(), diagnosis.recorded.end(), 0.0,
                        [](double sum, const auto& step) { return sum + static_cast<double>(step.second - step.first) * 1e-6; }) /
            static_cast<double>(diagnosis.steps),
        1e-6);
    EXPECT_LT(diagnosis.breakdown_ms[static_cast<std::size_t>(Owner::kUnexplained)], 0.1 * diagnosis.step_ms);
}

inline void expect_healthy(const StepBody& body, SimulatedProgram::Traits traits = {}, int steps = 60) {
    const Diagnosis diagnosis = diagnose(simulate(body, true, steps, traits).timeline);
    SCOPED_TRACE(told(diagnosis));
    EXPECT_TRUE(diagnosis.healthy);
    EXPECT_TRUE(diagnosis.findings.empty());
}

/// The same program as a window shows it that begins in the middle of it: what was launched before is not there, though the GPU
/// is busy with it for a while.
inline Timeline begun_late(Timeline timeline, Time begin) {
    std::erase_if(timeline.calls, [&](const Call& call) { return call.begin < begin; });
    std::unordered_set<std::uint32_t> kept;
    for (const Call& call : timeline.calls) kept.insert(call.correlation);
    std::erase_if(timeline.work, [&](const Work& work) { return !kept.contains(work.correlation); });
    std::erase_if(timeline.arguments, [&](const Arguments& given) { return !kept.contains(given.correlation); });
    std::erase_if(timeline.samples, [&](const auto& sample) { return sample.time < begin; });
    timeline.windows.front().begin = begin;
    return timeline;
}
inline Timeline begun_late(Timeline timeline) {
    const Time begin = timeline.calls[timeline.calls.size() / 2].begin;
    return begun_late(std::move(timeline), begin);
}

inline const Finding* finding_of(const Diagnosis& diagnosis, Kind kind) {
    const auto found = std::find_if(diagnosis.findings.begin(), diagnosis.findings.end(),
                                    [&](const Finding& finding) { return finding.kind == kind; });
    return found == diagnosis.findings.end() ? nullptr : &*found;
}

/// The pace after the last window: so many blocks of `steps` in `ms` each.
inline void add_blocks(Timeline& timeline, int count, double steps, double ms) {
    const auto length = static_cast<Time>(ms * 1e6);
    Time begin = timeline.windows.back().end + 1'000'000;
    for (int i = 0; i < count; ++i, begin += length) timeline.blocks.push_back({begin, begin + length, steps});
    timeline.run = {0, begin, timeline.windows.back().process};
}

}  // namespace millrace::diagnose
