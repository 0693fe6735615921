#include "report/diagnosis_forms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "places.h"
#include "report/doctor_words.h"
#include "report/made_up_diagnosis.h"
#include "report/terminal.h"

namespace millrace::report {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

std::size_t columns(const std::string& line) {
    return static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

void expect_fits(const std::string& text, std::size_t width = 80, std::size_t height = 24) {
    const auto lines = lines_of(text);
    EXPECT_LT(lines.size(), height) << text;
    for (const std::string& line : lines) EXPECT_LE(columns(line), width) << line;
}

bool text_holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(DiagnosisText, WhatRecordingMadeTheGpuIdleIsSaid) {
    diagnose::Diagnosis diagnosis = sick_diagnosis();
    const double busy = diagnosis.busy_share * diagnose::mean_step_ms(diagnosis);
    diagnosis.undisturbed_step_ms = busy / 0.9;
    ASSERT_TRUE(diagnose::undisturbed_busy_share(diagnosis));
    EXPECT_NEAR(*diagnose::undisturbed_busy_share(diagnosis), 0.9, 0.004);
    const std::string text = diagnosis_text(diagnosis, {});
    expect_fits(text);
    EXPECT_TRUE(text_holds(text, "The GPU worked 79 % of the time: 1,500 steps of 28.0 ms\n")) << text;
    EXPECT_TRUE(text_holds(text, "While nothing was recorded it worked 90 % of the time, a step took 24.6 ms\n")) << text;
    EXPECT_TRUE(text_holds(diagnosis_markdown(diagnosis), "(90 % of the time, 24.6 ms while nothing was recorded)"));
    EXPECT_TRUE(text_holds(diagnosis_html(diagnosis, {}), "While nothing was recorded it worked about 90 % of the time."));
    EXPECT_TRUE(text_holds(diagnosis_json(diagnosis), "\"undisturbed_busy_share\": 0.")) << diagnosis_json(diagnosis);

    diagnosis.undisturbed_step_ms = busy / 1.1;  // windows had more work by chance
    EXPECT_DOUBLE_EQ(*diagnose::undisturbed_busy_share(diagnosis), 1);
    diagnosis.undisturbed_step_ms = 40;  // copies take longer there, or it idles: nobody knows
    EXPECT_DOUBLE_EQ(*diagnose::undisturbed_busy_share(diagnosis), 0.79);
    EXPECT_TRUE(text_holds(diagnosis_text(diagnosis, {}), "(40.0 ms unrecorded)"));
    diagnosis.undisturbed_step_ms.reset();
    EXPECT_FALSE(diagnose::undisturbed_busy_share(diagnosis));
    diagnosis = sick_diagnosis();
    diagnosis.step_ms = 20;  // most steps, and some are much longer
    diagnosis.undisturbed_step_ms = 18;
    EXPECT_FALSE(text_holds(diagnosis_text(diagnosis, {}), "While nothing was recorded it worked"));
    diagnosis = {};  // steps of no length
    diagnosis.undisturbed_step_ms = 5;
    EXPECT_FALSE(diagnose::undisturbed_busy_share(diagnosis));
}

TEST(DiagnosisText, WhereWindowsAreTooFastTheStepIsThatOfTheRun) {
    diagnose::Diagnosis diagnosis = sick_diagnosis();
    diagnosis.unseen_loading_ms = 10;
    diagnosis.breakdown_ms[static_cast<std::size_t>(diagnose::Owner::kLoaderWait)] += 10;
    diagnosis.undisturbed_step_ms = 38;
    const std::string text = diagnosis_text(diagnosis, {});
    expect_fits(text);
    EXPECT_TRUE(text_holds(text, "The GPU worked 79 % of the time: steps of 38.0 ms (28.0 ms in 1,500 recorded)\n")) << text;
    EXPECT_TRUE(text_holds(diagnosis_markdown(diagnosis), ": steps of 38.0 ms (28.0 ms in 1,500 recorded).\n"));
    EXPECT_TRUE(text_holds(diagnosis_html(diagnosis, {}), " takes 38.0 ms on average (28.0 ms in 1,500 recorded)."));
    diagnosis.undisturbed_step_ms = 45;  // of which loading explains the smaller part
    EXPECT_TRUE(text_holds(diagnosis_text(diagnosis, {}), "While nothing was recorded a step took 45.0 ms\n"))
        << diagnosis_text(diagnosis, {});
}

TEST(DiagnosisText, SickProgramSaysWhatWhereAndWhatToDo) {
    const std::string text = diagnosis_text(sick_diagnosis(), {});
    expect_fits(text);
    EXPECT_TRUE(text_holds(text, "The GPU worked 79 % of the time: 1,500 steps of 28.0 ms (27.6 ms unrecorded)"));
    EXPECT_TRUE(text_holds(text, " 1. host-sync  loses 4.48 ms per step (16.0 %)"));
    EXPECT_TRUE(text_holds(text, "/home/ada/project/train.py:41 in train"));
    EXPECT_TRUE(text_holds(text, "> Add the loss up on the GPU"));
    EXPECT_TRUE(text_holds(text, " 2. allocator-churn"));
    EXPECT_TRUE(text_holds(text, "recording cost 0.4 % of the run (6.1 % inside its windows); no record was lost"));
    EXPECT_LT(text.find("computing"), text.find("host waits for GPU"));
    EXPECT_LT(text.find("host waits for GPU"), text.find("allocating memory"));
    EXPECT_FALSE(text_holds(text, "\033"));
}

TEST(DiagnosisText, TheScreenIsTheOneThatWasAgreedOn) {
    std::ifstream in(testing::source_root() / "tests/goldens/doctor/sick.txt");
    const std::string golden{std::istreambuf_iterator<char>(in), {}};
    EXPECT_EQ(diagnosis_text(sick_diagnosis(), {}), golden);
}

TEST(DiagnosisText, ManyLongFindingsStillFitOneScreen) {
    diagnose::Diagnosis diagnosis = sick_diagnosis();
    for (auto& ms : diagnosis.breakdown_ms) ms = 2;
    for (auto& finding : diagnosis.findings)
        for (std::string* text : {&finding.what, &finding.fix})
            for (int i = 0; i < 4; ++i) *text += " " + *text;
    while (diagnosis.findings.size() < 40) diagnosis.findings.push_back(diagnosis.findings.back());
    diagnosis.remarks = {std::string(700, 'r') + " words", "second", "third"};
    diagnosis.dropped_records = 123456;
    const std::string text = diagnosis_text(diagnosis, {});
    expect_fits(text);
    EXPECT_TRUE(text_holds(text, "> Add the loss up")) << text;
    EXPECT_TRUE(text_holds(text, "more: see with --all"));
    EXPECT_TRUE(text_holds(text, "123,456 records were lost"));
    EXPECT_TRUE(text_holds(text, "all else"));
    for (std::size_t remarks = 0; remarks <= 3; ++remarks)
        for (std::size_t findings = 1; findings <= 8; ++findings) {
            diagnosis.remarks.resize(std::min<std::size_t>(diagnosis.remarks.size(), remarks));
            diagnose::Diagnosis fewer = diagnosis;
            fewer.findings.resize(findings);
            expect_fits(diagnosis_text(fewer, {}));
        }
}

TEST(DiagnosisText, AllShowsEveryFindingWithEvidenceAndStack) {
    diagnose::Diagnosis diagnosis = sick_diagnosis();
    diagnosis.remarks = {"one", "two"};
    TextOptions options;
    options.all = true;
    const std::string text = diagnosis_text(diagnosis, options);
    EXPECT_TRUE(text_holds(text, "= 12 cudaFree and 12 cudaMalloc calls per step."));
    EXPECT_TRUE(text_holds(text, "called from /usr/lib/python3/dist-packages/torch/_tensor.py:981 in item"));
    EXPECT_TRUE(text_holds(text, "+ at most 16.0 % of a step comes back, if the host keeps its pace"));
    EXPECT_TRUE(text_holds(text, "note: two"));
}

TEST(DiagnosisText, HealthyProgramGetsACleanBill) {
    const std::string text = diagnosis_text(healthy_diagnosis(), {});
    expect_fits(text);
    EXPECT_TRUE(text_holds(text, "Nothing here is worth changing: a clean bill."));
    EXPECT_TRUE(text_holds(text, "what recording cost was not measured"));
    EXPECT_FALSE(text_holds(text, " 1. "));
}

TEST(DiagnosisText, WithoutStepsNoFigureIsMadeUp) {
    const std::string text = diagnosis_text({}, {});
    EXPECT_TRUE(text_holds(text, "No training steps on a GPU were found"));
    EXPECT_FALSE(text_holds(text, "0 %"));
    EXPECT_FALSE(text_holds(text, "clean bill"));
}

TEST(DiagnosisText, WithoutAGpuThereIsSpeedAlone) {
    diagnose::Diagnosis diagnosis;
    diagnosis.steps = 2000;
    diagnosis.step_ms = 10;
    diagnosis.undisturbed_step_ms = 10;
    diagnosis.busy_share = std::nan("");
    const std::string text = diagnosis_text(diagnosis, {});
    EXPECT_TRUE(text.starts_with("How busy a GPU was is not measured: 2,000 steps of 10.0 ms\n")) << text;
    EXPECT_FALSE(text_holds(text, "nan"));
    EXPECT_FALSE(text_holds(text, "computing"));
}

TEST(DiagnosisText, EvaluationIsSaidBesideTheStep) {
    diagnose::Diagnosis diagnosis = sick_diagnosis();
    EXPECT_FALSE(text_holds(diagnosis_text(diagnosis, {}), "Evaluation"));
    diagnosis.evaluation_ms = 12.4;
    diagnosis.findings[0].kind = diagnose::Kind::kSlowEvaluation;
    diagnosis.findings[0].lost_ms_per_step = 10.1;
    const std::string text = diagnosis_text(diagnosis, {});
    EXPECT_TRUE(text_holds(text, "The GPU worked 79 % of the time in training: 1,500 steps of 28.0 ms")) << text;
    EXPECT_TRUE(text_holds(text, "Evaluation adds 12.4 ms to each: 25 steps per second\n")) << text << "1000 / (27.6 + 12.4)";
    EXPECT_TRUE(text_holds(text, "slow-evaluation  loses 10.1 ms per step (25.0 %)")) << text << "of 28.0 + 12.4 ms";
    diagnosis.undisturbed_evaluation_ms = 4.4;
    EXPECT_TRUE(text_holds(diagnosis_text(diagnosis, {}),
                           "Evaluation adds 12.4 ms to each (4.40 ms unrecorded): 31.2 steps per second\n"))
        << diagnosis_text(diagnosis, {}) << "1000 / (27.6 + 4.4)";
}

TEST(DiagnosisText, StepsThatDifferAreToldByTheirMeanAsTheBreakdownHasIt) {
    diagnose::Diagnosis diagnosis = sick_diagnosis();
    diagnosis.undisturbed_step_ms.reset();
    const double mean = diagnose::mean_step_ms(diagnosis);
    diagnosis.step_ms = 0.6 * mean;
    const std::string text = diagnosis_text(diagnosis, {});
    EXPECT_NE(text.find("steps of " + milliseconds_text(mean)), std::string::npos) << text;
    EXPECT_EQ(text.find("steps of " + milliseconds_text(diagnosis.step_ms)), std::string::npos);
    diagnosis.findings.front().lost_ms_per_step = 0.8 * mean;
    EXPECT_NEAR(lost_share(diagnosis, diagnosis.findings.front()), 0.8, 1e-9)
        << "more than the median step, but no more than there is";
    diagnosis.costed_step_ms = 0.9 * mean;  // without what recording added: costs are measured against that
    EXPECT_NEAR(lost_share(diagnosis, diagnosis.findings.front()), 0.8 / 0.9, 1e-9);
    diagnosis.costed_step_ms = 0;
    diagnosis.step_ms = 0.98 * mean;
    EXPECT_NE(diagnosis_text(diagnosis, {}).find("steps of " + milliseconds_text(diagnosis.step_ms)), std::string::npos);
}

TEST(DiagnosisText, HostileNamesReachTheTerminalHarmless) {
    diagnose::Diagnosis diagnosis = sick_diagnosis();
    diagnosis.title =
        "python \033]0;owned\007 x\xc2\x9b"
        "31m\x9b";
    diagnosis.findings[0].where->file = "a\033[2Jb\nc.py";
    diagnosis.findings[0].fix = "\033[31mred";
    diagnosis.remarks = {"\033[1;1H"};
    TextOptions options;
    for (const bool all : {false, true}) {
        options.all = all;
        const std::string text = diagnosis_text(diagnosis, options);
        EXPECT_FALSE(text_holds(text, "\033"));
        EXPECT_FALSE(text_holds(text, "\xc2\x9b"));
        EXPECT_FALSE(text_holds(text, "\007"));
        EXPECT_TRUE(text_holds(text, "a?[2Jb?c.py:41"));
    }
}

TEST(DiagnosisText, ColourAddsOnlySequences) {
    TextOptions plain, coloured;
    coloured.colour = true;
    std::string text = diagnosis_text(sick_diagnosis(), coloured), bare;
    EXPECT_TRUE(text_holds(text, "\033[31;1mhost-sync"));
    for (std::size_t at = 0; at < text.size(); ++at) {
        if (text[at] == '\033')
            at = text.find('m', at);
        else
            bare += text[at];
    }
    EXPECT_EQ(bare, diagnosis_text(sick_diagnosis(), plain));
}

TEST(DiagnosisText, WithoutUtf8BarsAreAscii) {
    TextOptions options;
    options.utf8 = false;
    const std::string text = diagnosis_text(sick_diagnosis(), options);
    EXPECT_TRUE(text_holds(text, "#####"));
    EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
}

TEST(Wrapped, WordsKeepWholeAndLongOnesAreCut) {
    EXPECT_EQ(wrapped("", 10), (std::vector<std::string>{""}));
    EXPECT_EQ(wrapped("one two three", 7), (std::vector<std::string>{"one two", "three"}));
    EXPECT_EQ(wrapped("abcdefgh", 3), (std::vector<std::string>{"abc", "def", "gh"}));
    EXPECT_EQ(wrapped("äöü ß", 3), (std::vector<std::string>{"äöü", "ß"}));
}

}  // namespace
}  // namespace millrace::report
