#include "report/machine_view.h"

#include <gtest/gtest.h>

#include <cmath>

#include "report/made_up.h"
#include "report/terminal.h"

namespace millrace::report {
namespace {

ViewState state_of(std::size_t gpus, std::uint64_t samples = 5) {
    ViewState state;
    state.facts = made_up_facts(gpus);
    state.interval = std::chrono::seconds{1};
    state.elapsed = std::chrono::seconds{5};
    for (std::uint64_t tick = 0; tick < samples; ++tick) {
        state.newest = made_up_sample(tick, gpus);
        state.history.add(state.newest);
    }
    state.samples = samples;
    return state;
}

std::string joined(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    return text;
}

/// Columns of a line, colour left out.
std::size_t columns_of(const std::string& line) {
    std::size_t columns = 0;
    for (std::size_t at = 0; at < line.size(); ++at) {
        if (line[at] == '\033')
            at = line.find('m', at);
        else if ((static_cast<unsigned char>(line[at]) & 0xc0) != 0x80)
            ++columns;
    }
    return columns;
}

TEST(MachineView, ShowsEveryFigure) {
    ViewState state = state_of(1);
    state.left = std::chrono::seconds{55};
    state.missed = 2;
    state.newest.gpus[0].sm_active = 41.5;
    state.newest.gpus[0].throttle = sense::kThrottleThermal;
    state.newest.process.count = 3;
    state.newest.cpu.process_utilization = 150;
    const std::string text = joined(machine_view(state, {100, 40}));
    for (const char* part : {"mill",
                             "every 1s",
                             "55.0s left",
                             "5 samples, 2 missed",
                             "GPU 0  Some GPU",
                             "95.0 %",
                             "41.5 %",
                             "6.0/24.0 GiB (25.0 %)",
                             "150/300 W (50 %)",
                             "60 C",
                             "SM 1500 MHz",
                             "memory 2000 MHz",
                             "thermal",
                             "4 cores",
                             "load 0.50 - -",
                             "20.0 %",
                             "16.0/64.0 GiB (25.0 %)",
                             "swap 0.0/8.0 GiB",
                             "150 % of a core",
                             "3 processes"})
        EXPECT_NE(text.find(part), std::string::npos) << part << " is not in:\n" << text;
}

TEST(MachineView, AbsentValuesAreDashesNeverZeros) {
    ViewState state = state_of(1);
    state.newest = {};
    state.newest.gpus.resize(1);
    const std::string text = joined(machine_view(state, {100, 40}));
    EXPECT_NE(text.find("-/- GiB (- %)"), std::string::npos) << text;
    EXPECT_NE(text.find("-/- W (- %)  - C  SM - MHz"), std::string::npos) << text;
    EXPECT_NE(text.find("load - - -"), std::string::npos) << text;
    const std::string body = text.substr(text.find('\n') + 1);  // the header counts samples
    for (const char* zero : {"0 %", "0.0", "0/", "/0", "0 W", "0 C", "0 MHz"})
        EXPECT_EQ(body.find(zero), std::string::npos) << body;
    state.newest.cpu.utilization = std::nan("");
    EXPECT_EQ(joined(machine_view(state, {100, 40})).find("nan"), std::string::npos);
}

TEST(MachineView, FitsEveryWindow) {
    for (const std::size_t gpus : {0u, 1u, 2u, 8u})
        for (const int width : {1, 7, 20, 40, 80, 300})
            for (const int height : {0, 1, 2, 5, 11, 24, 60})
                for (const bool colour : {false, true}) {
                    const auto lines = machine_view(state_of(gpus, 400), {width, height, true, colour});
                    ASSERT_LE(lines.size(), static_cast<std::size_t>(std::max(height, 1))) << gpus << " " << width;
                    for (const std::string& line : lines) ASSERT_LE(columns_of(line), static_cast<std::size_t>(width)) << line;
                }
}

TEST(MachineView, DetailGoesBeforeGpusDo) {
    const auto short_lines = machine_view(state_of(8), {100, 12});
    const std::string text = joined(short_lines);
    for (int gpu = 0; gpu < 8; ++gpu) EXPECT_NE(text.find("GPU " + std::to_string(gpu)), std::string::npos) << gpu;
    EXPECT_NE(joined(machine_view(state_of(8), {100, 5})).find("more lines"), std::string::npos);
}

TEST(MachineView, AsciiAndNoColourWhereAsked) {
    const std::string plain = joined(machine_view(state_of(1), {80, 24, false, false}));
    for (const char letter : plain) EXPECT_LT(static_cast<unsigned char>(letter), 0x80);
    EXPECT_EQ(plain.find('\033'), std::string::npos);
    EXPECT_NE(joined(machine_view(state_of(1), {80, 24, true, true})).find("\033["), std::string::npos);
}

TEST(MachineView, HostileNamesCannotDriveTheTerminal) {
    ViewState state = state_of(1);
    state.facts.gpus[0].name = "\033]0;owned\007GPU\n";
    const std::string text = joined(machine_view(state, {80, 24, true, false}));
    EXPECT_EQ(text.find('\033'), std::string::npos);
    EXPECT_EQ(text.find('\007'), std::string::npos);
}

TEST(MachineView, LostAndMissingGpusAreNamed) {
    ViewState state = state_of(1);
    state.newest.gpus[0] = {};
    state.newest.gpus[0].lost = true;
    EXPECT_NE(joined(machine_view(state, {80, 24})).find("lost"), std::string::npos);
    EXPECT_NE(joined(machine_view(state_of(0), {80, 24})).find("none: no driver"), std::string::npos);
}

TEST(Sparkline, ScalesAndLeavesGaps) {
    EXPECT_EQ(sparkline({0.0, 50.0, 100.0, std::nullopt, 12.0}, 10, true), "▁▅█ ▁");
    EXPECT_EQ(sparkline({0.0, 50.0, 100.0, std::nullopt, 250.0, -3.0}, 10, false), "_+@ @_");
    EXPECT_EQ(sparkline({1.0, 2.0, 99.0}, 1, false), "@");
    EXPECT_EQ(sparkline({}, 5, true), "");
    EXPECT_EQ(sparkline({1.0}, 0, true), "");
}

TEST(Bar, FillsItsShare) {
    EXPECT_EQ(bar(0.5, 10, false), "[####----]");
    EXPECT_EQ(bar(2.0, 6, false), "[####]");
    EXPECT_EQ(bar(std::nullopt, 7, false), "[  -  ]");
    EXPECT_EQ(bar(0.5, 2, false), "");
}

TEST(Terminal, LocaleDecidesAboutUtf8) {
    EXPECT_TRUE(utf8_locale(nullptr, nullptr, "en_GB.UTF-8"));
    EXPECT_TRUE(utf8_locale("", "C.utf8", "C"));
    EXPECT_FALSE(utf8_locale("C", nullptr, "en_GB.UTF-8"));
    EXPECT_FALSE(utf8_locale(nullptr, nullptr, nullptr));
    EXPECT_FALSE(utf8_locale(nullptr, "en_GB.ISO-8859-1", nullptr));
}

}  // namespace
}  // namespace millrace::report
