#include "report/watch_summary.h"

#include <gtest/gtest.h>

#include "report/made_up.h"
#include "report/svg_text.h"

namespace millrace::report {
namespace {

TEST(PlotSvg, HasAPanelPerSubjectWithUnitsAndLegend) {
    const auto record = made_up_record(1, [](sense::Sample& sample) { sample.gpus[0].sm_active = 40; });
    const std::string svg = plot_svg(record, "python train.py");
    EXPECT_TRUE(is_balanced(svg));
    for (const char* part :
         {"GPU 0: activity", "GPU 0 Some GPU", "power and temperature", ">Memory<", "CPU, 4 cores",
          "kernel resident (mean 95.0 %)", "SM (mean 40.0 %)", "tensor: no reading", "VRAM of 24.0 GiB (mean 25.0 %)",
          "power (mean 150.0 W)", ">W<", "prefers-color-scheme:dark", "python train.py"})
        EXPECT_NE(svg.find(part), std::string::npos) << part;
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(PlotSvg, WithoutAGpuItSaysWhy) {
    const std::string svg = plot_svg(made_up_record(0, [](sense::Sample&) {}), "");
    EXPECT_TRUE(is_balanced(svg));
    EXPECT_NE(svg.find("no GPU: no driver"), std::string::npos);
    EXPECT_EQ(svg.find("power", svg.find("</style>")), std::string::npos);
    EXPECT_EQ(svg.find("kernel resident"), std::string::npos);
}

TEST(PlotSvg, AbsentSamplesBreakTheLine) {
    const auto whole = plot_svg(made_up_record(
                                    1, [](sense::Sample&) {}, false),
                                "");
    const auto broken = plot_svg(made_up_record(
                                     1,
                                     [](sense::Sample& sample) {
                                         if (sample.sequence == 10) sample.gpus[0].utilization.reset();
                                     },
                                     false),
                                 "");
    EXPECT_EQ(count_of(broken, "<polyline"), count_of(whole, "<polyline") + 1);
    const auto lone = plot_svg(made_up_record(
                                   1,
                                   [](sense::Sample& sample) {
                                       if (sample.sequence != 10) sample.gpus[0].utilization.reset();
                                   },
                                   false),
                               "");
    EXPECT_EQ(count_of(lone, "<circle"), 1u);
}

TEST(PlotSvg, CountersThatTheDriverRefreshesSlowlyStayOneLine) {
    for (const auto& [interval, circles] :
         {std::pair{std::chrono::milliseconds{50}, 0u}, std::pair{std::chrono::milliseconds{500}, 10u}}) {
        WatchRecord record(made_up_facts(1), interval);
        for (std::uint64_t tick = 0; tick < 20; ++tick) {
            sense::Sample sample = made_up_sample(tick, 1);
            if (tick % 2 == 0) sample.gpus[0].sm_active = 40;
            record.add(sample);
        }
        EXPECT_EQ(count_of(plot_svg(record, ""), "<circle"), circles) << interval.count();
    }
}

TEST(PlotSvg, NothingAndOneSampleStillDraw) {
    for (const std::uint64_t samples : {0u, 1u, 2u}) {
        const std::string svg = plot_svg(made_up_record(
                                             2, [](sense::Sample&) {}, true, samples),
                                         "");
        EXPECT_TRUE(is_balanced(svg)) << samples;
        EXPECT_EQ(svg.find("nan"), std::string::npos) << samples;
    }
}

TEST(PlotSvg, HoursOfSamplesStayBounded) {
    const auto noisy = [](sense::Sample& sample) {
        sample.cpu.utilization = static_cast<double>(sample.sequence * 7919 % 101);
        sample.gpus[0].utilization = static_cast<double>(sample.sequence * 104729 % 101);
    };
    const std::string svg = plot_svg(made_up_record(1, noisy, true, 20011), "");
    EXPECT_TRUE(is_balanced(svg));
    EXPECT_LT(svg.size(), 400u << 10);
    EXPECT_GT(count_of(svg, "<polygon"), 0u);
}

TEST(PlotSvg, HostileSubjectIsMadeHarmless) {
    const std::string svg =
        plot_svg(made_up_record(0, [](sense::Sample&) {}), "</svg><script>alert(1)</script>" + std::string(5000, 'x'));
    EXPECT_TRUE(is_balanced(svg));
    EXPECT_EQ(svg.find("<script"), std::string::npos);
    EXPECT_LT(svg.size(), 30000u);
}

}  // namespace
}  // namespace millrace::report
