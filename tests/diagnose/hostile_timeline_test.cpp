#include <cmath>

#include "diagnose/simulated_cases.h"

namespace millrace::diagnose {
namespace {

/// Anything at all, as a damaged file may have it.
TEST(Hostile, NoTimelineEndsTheDoctor) {
    std::uint64_t seed = 99;
    const auto draw = [&](std::uint64_t below) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        return (seed >> 33) % below;
    };
    const auto time = [&] {
        return draw(40) == 0 ? static_cast<Time>(draw(~0ull)) * (draw(2) ? 1 : -1) : static_cast<Time>(draw(100'000'000));
    };
    for (int round = 0; round < 200; ++round) {
        Timeline timeline;
        if (round % 3) timeline.names = {"", "a", "multi_tensor_apply", "vectorized_elementwise_kernel"};
        if (round % 5) timeline.stacks = {{}, {user_line(3)}, {torch_line("nn/a.py", "f"), user_line(4)}};
        for (std::uint64_t i = draw(300); i-- > 0;) {
            Call call;
            call.begin = time(), call.end = call.begin + static_cast<Time>(draw(1'000'000));
            if (draw(50) == 0) call.end = time();
            call.process = static_cast<std::uint32_t>(draw(3)), call.thread = static_cast<std::uint32_t>(draw(4));
            call.kind = static_cast<CallKind>(draw(25));
            call.name = static_cast<std::uint32_t>(draw(5)), call.stack = static_cast<std::uint32_t>(draw(4));
            call.correlation = static_cast<std::uint32_t>(draw(200)), call.content = draw(3), call.event = draw(3);
            call.stream = static_cast<std::uint32_t>(draw(3));
            timeline.calls.push_back(call);
            Work work{time(),
                      0,
                      call.process,
                      static_cast<std::uint16_t>(draw(2)),
                      static_cast<WorkKind>(draw(3)),
                      draw(9) == 0,
                      draw(9) == 0,
                      static_cast<std::uint32_t>(draw(3)),
                      static_cast<std::uint32_t>(draw(5)),
                      static_cast<std::uint32_t>(draw(200))};
            work.end = work.begin + static_cast<Time>(draw(2'000'000)) - (draw(50) == 0 ? 5'000'000 : 0);
            timeline.work.push_back(work);
            timeline.samples.push_back({time(), call.process, call.thread, "RSD?"[draw(4)], static_cast<std::uint32_t>(draw(4)),
                                        static_cast<std::uint32_t>(draw(5))});
            if (draw(4) == 0)
                timeline.ranges.push_back({time(), time(), call.process, call.thread, static_cast<std::uint32_t>(draw(5))});
            if (draw(9) == 0) timeline.collections.push_back({time(), time(), call.process, call.thread, 0});
            if (draw(3) == 0)
                timeline.arguments.push_back(
                    {call.process, call.correlation, std::vector<std::uint64_t>(draw(4), draw(9)), draw(2)});
            if (draw(60) == 0) timeline.windows.push_back({time(), time(), static_cast<std::uint32_t>(draw(3))});
            if (draw(60) == 0) timeline.blocks.push_back({time(), time(), static_cast<double>(draw(100))});
        }
        const Diagnosis diagnosis = diagnose(timeline);
        EXPECT_TRUE(std::isfinite(sum_of(diagnosis)));
        EXPECT_TRUE(std::isfinite(diagnosis.busy_share));
        for (const Finding& finding : diagnosis.findings) EXPECT_TRUE(std::isfinite(finding.lost_ms_per_step));
    }
}

}  // namespace
}  // namespace millrace::diagnose
