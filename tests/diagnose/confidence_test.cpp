#include "diagnose/simulated_cases.h"

namespace millrace::diagnose {
namespace {

TEST(Confidence, MoreWindowsOfTheSameStepsAreNoLessSure) {
    const StepBody body = [](SimulatedProgram& p, int step, bool) {
        // No two steps are alike but for their update.
        p.at({user_line(11, "build_tree")});
        p.work(2'000);
        p.at(20);
        for (int i = 0; i < 8 + step * 7 % 13; ++i) {
            p.launch("gemm", 200);
            p.launch("act" + std::to_string(i * step % 3), 60);
        }
        p.at(22);
        p.launch("multi_tensor_apply_kernel", 100);
        p.at(31);
        p.item();
    };
    Timeline timeline = simulate(body, false, 240).timeline;
    const Window whole = timeline.windows.front();
    const auto confidence = [&](int parts) {
        timeline.windows.clear();
        for (Time part = 0, length = (whole.end - whole.begin) / parts; part < parts; ++part)
            timeline.windows.push_back({whole.begin + part * length, whole.begin + (part + 1) * length, kProcess});
        const Diagnosis diagnosis = diagnose(timeline);
        const Finding* finding = finding_of(diagnosis, Kind::kHostSync);
        return finding ? finding->confidence : 0;
    };
    const double one = confidence(1);
    EXPECT_GT(one, 0.5);
    EXPECT_NEAR(confidence(8), one, 0.05);
}

}  // namespace
}  // namespace millrace::diagnose
