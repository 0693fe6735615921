#include "diagnose/simulated_cases.h"

namespace millrace::diagnose {
namespace {

TEST(RepeatedWork, ATableComputedInEachStepIsFound) {
    for (const int layers : {1, 7})  // the second fills the queue: the host is as slow as the device lets it
        expect_case(
            [=](SimulatedProgram& p, int step, bool cured) {
                p.at({user_line(29)});
                p.launch("distribution_elementwise_grid_stride_kernel", 30, kStream, {0x100},
                         static_cast<std::uint64_t>(step) + 1);
                for (int layer = 0; layer < layers; ++layer) {
                    // Buffers move: the allocator hands out others in each step.
                    const std::uint64_t base = 0x10000u + static_cast<std::uint64_t>((step * 3 + layer) % 5) * 0x1000;
                    if (!cured) {
                        p.at({user_line(11, "positions"), user_line(30)});
                        p.launch("elementwise_kernel_with_index_arange", 4, kStream, {base}, 5);
                        p.at({user_line(13, "positions"), user_line(30)});
                        p.launch("vectorized_elementwise_kernel_sin", 210, kStream, {base + 0x100, base}, 6);
                        p.launch("vectorized_elementwise_kernel_mul", 150, kStream, {base + 0x200, base + 0x100, base}, 7);
                    }
                    p.at({user_line(30)});
                    p.launch("vectorized_elementwise_kernel_add", 90, kStream, {0x900, 0x800, base + 0x200}, 8);
                    p.launch("gemm_bf16", 700, kStream, {0x800, 0x900, 0xa00}, 9);
                }
                train(p, {3, 300});
            },
            Kind::kRepeatedWork, 13, {}, layers == 1 ? 60 : 150);
}

TEST(RepeatedWork, LosesAsMuchInAWindowThatBeginsWithAFullQueue) {
    const StepBody body = [](SimulatedProgram& p, int step, bool cured) {
        p.at({user_line(29)});
        p.launch("distribution_elementwise_grid_stride_kernel", 30, kStream, {0x100}, static_cast<std::uint64_t>(step) + 1);
        for (std::uint64_t layer = 0; layer < 2; ++layer) {
            if (!cured) {
                p.at({user_line(13, "positions"), user_line(30)});
                p.launch("elementwise_kernel_with_index_arange", 4, kStream, {0x1000}, 5);
                p.launch("vectorized_elementwise_kernel_sin", 900, kStream, {0x2000, 0x1000}, 6);
            }
            p.at({user_line(30)});
            p.launch("gemm_bf16", 700, kStream, {0x800, 0x900, 0xa00}, 9);
        }
        train(p, {6, 300});
    };
    SimulatedProgram::Traits traits;
    traits.queue = 250;
    const Simulation sick = simulate(body, false, 120, traits), cured = simulate(body, true, 120, traits);
    const Diagnosis diagnosis = diagnose(begun_late(sick.timeline));
    const double truth = sick.step_ms - cured.step_ms;
    SCOPED_TRACE(fmt::format("truth {:.3f} of {:.3f} ms\n{}", truth, sick.step_ms, told(diagnosis)));
    ASSERT_EQ(diagnosis.findings.size(), 1u);
    EXPECT_EQ(diagnosis.findings[0].kind, Kind::kRepeatedWork);
    EXPECT_NEAR(diagnosis.findings[0].lost_ms_per_step, truth, 0.05 * truth);
}

TEST(RepeatedWork, ParametersThatEndAmidAStepLeaveNoKernelOut) {
    const StepBody body = [](SimulatedProgram& p, int step, bool cured) {
        // Parameters are taken in seven steps and a third of the next.
        const auto given = [&](int place, std::vector<std::uint64_t> pointers) {
            return step < 10 || (step == 10 && place < 3) ? pointers : std::vector<std::uint64_t>{};
        };
        p.at({user_line(29)});
        p.launch("distribution_elementwise_grid_stride_kernel", 30, kStream, given(0, {0x100}), static_cast<std::uint64_t>(step));
        for (std::uint64_t layer = 0; layer < 9 && !cured; ++layer) {
            p.at({user_line(13, "positions"), user_line(30)});
            p.launch("elementwise_kernel_with_index_arange", 4, kStream, given(static_cast<int>(layer), {0x1000}), 5);
            p.launch("vectorized_elementwise_kernel_sin", 210, kStream, given(static_cast<int>(layer), {0x2000, 0x1000}), 6);
        }
        train(p, {6, 300});
    };
    expect_case(body, Kind::kRepeatedWork, 13, {}, 23);
}

TEST(RepeatedWork, KernelsOfDataAndParametersAreNot) {
    const Diagnosis diagnosis = diagnose(
        simulate(
            [](SimulatedProgram& p, int step, bool) {
                p.at(20);
                p.launch("distribution_elementwise_grid_stride_kernel", 30, kStream, {0x100}, static_cast<std::uint64_t>(step));
                p.launch("vectorized_elementwise_kernel", 300, kStream, {0x200, 0x100}, 4);  // of random numbers
                p.launch("vectorized_elementwise_kernel", 300, kStream, {0x300, 0x200}, 4);
                p.launch("FillFunctor_elementwise_kernel", 200, kStream, {0x400}, 3);  // a buffer to add into
                p.launch("gemm_bf16", 400, kStream, {0x500, 0x600, 0x700}, 9);
                p.launch("vectorized_elementwise_kernel", 300, kStream, {0x800, 0x500}, 4);  // gelu of a product
                train(p, {4, 300});
            },
            false)
            .timeline);
    EXPECT_TRUE(diagnosis.findings.empty()) << told(diagnosis);
}

TEST(RepeatedWork, TheSameBytesUploadedAgainAreNoPageableCopyToo) {
    const StepBody body = [](SimulatedProgram& p, int, bool cured) {
        p.at(35);
        if (!cured) {
            p.upload(40e6, false, 77);
            p.stream_sync();
        }
        train(p, {8, 300});
    };
    expect_case(body, Kind::kRepeatedWork, 35);
    EXPECT_EQ(diagnose(simulate(body, false).timeline).findings.size(), 1u);
}

TEST(RepeatedWork, UploadsWhoseContentWasNotTakenCountLikeThoseOfTheirLine) {
    for (const std::uint64_t later : {0, 5}) {  // not taken; another, of other size
        const StepBody body = [later](SimulatedProgram& p, int step, bool cured) {
            p.at(35);
            const bool taken = step % 10 < 4;
            if (!cured || (later != 0 && !taken))
                p.upload(taken || later == 0 ? 400e6 : 100e6, true, taken ? 77 : later * static_cast<std::uint64_t>(step + 1));
            train(p, {8, 300});
        };
        expect_case(body, Kind::kRepeatedWork, 35);
    }
}

TEST(RepeatedWork, WithoutParametersTheDoctorAbstains) {
    const Diagnosis diagnosis = diagnose(simulate([](SimulatedProgram& p, int, bool) { train(p, {4, 300}); }, false).timeline);
    EXPECT_TRUE(std::any_of(diagnosis.remarks.begin(), diagnosis.remarks.end(), [](const std::string& remark) {
        return remark.find("repeated kernels were not looked for") != std::string::npos;
    }));
}

}  // namespace
}  // namespace millrace::diagnose
