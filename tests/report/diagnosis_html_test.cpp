#include "report/diagnosis_forms.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <limits>

#include "browser_pages.h"
#include "report/html_page.h"
#include "report/html_sections.h"
#include "report/made_up_timeline.h"
#include "report/svg_text.h"

namespace millrace::report {
namespace {

bool page_holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

constexpr const char* kHostile =
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">'\"&";

/// Everything a recording can name is hostile.
diagnose::Diagnosis hostile_diagnosis(diagnose::Timeline& timeline) {
    diagnose::Diagnosis diagnosis = sick_diagnosis();
    diagnosis.title = diagnosis.device_name = kHostile;
    diagnosis.remarks = {kHostile};
    for (diagnose::Finding& finding : diagnosis.findings) {
        finding.where = diagnose::Frame{kHostile, 41, kHostile, false};
        finding.stack = {*finding.where};
        finding.what = finding.evidence = finding.fix = finding.assumption = kHostile;
    }
    timeline = sick_timeline(diagnosis);
    for (std::string& name : timeline.names) name = kHostile;
    timeline.stacks[1] = {*diagnosis.findings[0].where};
    return diagnosis;
}

/// A program whose line 41 is the one that sick_diagnosis() blames.
constexpr const char* kProgram = R"(    for step in range(steps):
        batch, target = next(batches)
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model(batch), target)
        loss.backward()
        optimizer.step()
        total += loss.item()  # waits for the GPU
        scheduler.step()

        torch.cuda.empty_cache()
)";

std::string program_text() {
    std::string text;
    for (int line = 1; line < 35; ++line) text += "# " + std::to_string(line) + "\n";
    return text + kProgram;
}

TEST(DiagnosisHtml, SaysWhatShareWhereTheRestWentAndWhichLine) {
    diagnose::Diagnosis diagnosis = sick_diagnosis();
    const diagnose::Timeline timeline = sick_timeline(diagnosis);
    const std::string html = diagnosis_html(diagnosis, timeline);
    EXPECT_TRUE(page_holds(html, "The GPU worked 79 % of the time."));
    EXPECT_TRUE(page_holds(html, "<a href=\"#finding-1\">train.py line 41</a>"));
    EXPECT_TRUE(page_holds(html, "43.3 steps per second instead of 36.2"));
    EXPECT_TRUE(page_holds(html, "/home/ada/project/train.py:41 in train"));
    EXPECT_TRUE(page_holds(html, "host waits for GPU"));
    EXPECT_TRUE(page_holds(html, "A typical step: "));
    EXPECT_TRUE(page_holds(html, "The worst step: "));
    EXPECT_TRUE(page_holds(html, "cudaStreamSynchronize at /home/ada/project/train.py:41"));
    EXPECT_TRUE(page_holds(html, "multiprocessors at work"));
    EXPECT_TRUE(page_holds(html, "Recording cost 0.4 % of the run (6.1 % inside its windows)."));
    EXPECT_LT(html.size(), 400'000u);
}

TEST(DiagnosisHtml, LoadsNothing) {
    diagnose::Diagnosis diagnosis = sick_diagnosis();
    const std::string html = diagnosis_html(diagnosis, sick_timeline(diagnosis));
    for (const char* part : {"http://", "https://", "src=", "@import", "url(http", "//cdn"})
        EXPECT_FALSE(page_holds(html, part)) << part;
    EXPECT_TRUE(page_holds(html, "default-src 'none'"));
    EXPECT_EQ(count_of(html, "<script"), 1u);
}

TEST(DiagnosisHtml, HostileNamesStayText) {
    diagnose::Timeline timeline;
    const diagnose::Diagnosis diagnosis = hostile_diagnosis(timeline);
    const std::string html = diagnosis_html(diagnosis, timeline);
    EXPECT_EQ(count_of(html, "<script"), 1u);
    EXPECT_EQ(count_of(html, "</script"), 1u);
    EXPECT_EQ(count_of(html, "<img"), 0u);
    EXPECT_TRUE(page_holds(html, "&lt;/script&gt;&lt;script&gt;document.title=&#39;owned&#39;"));
}

TEST(DiagnosisHtml, HealthyAndEmptyOnesSaySo) {
    EXPECT_TRUE(page_holds(diagnosis_html(healthy_diagnosis(), {}), "A clean bill."));
    const std::string nothing = diagnosis_html({}, {});
    EXPECT_TRUE(page_holds(nothing, "No training steps on a GPU were found"));
    EXPECT_FALSE(page_holds(nothing, "class=\"ring\""));
    EXPECT_TRUE(page_holds(nothing, "not measured"));
    EXPECT_FALSE(page_holds(nothing, "nan"));
    diagnose::Diagnosis speed;
    speed.steps = 2000;
    speed.step_ms = 10;
    speed.busy_share = std::nan("");
    EXPECT_TRUE(page_holds(diagnosis_html(speed, {}), "A training step takes 10.0 ms."));
    EXPECT_FALSE(page_holds(diagnosis_html(speed, {}), "nan"));
}

TEST(DiagnosisHtml, ThreadsThatCallALotHaveALaneEach) {
    diagnose::Diagnosis diagnosis = sick_diagnosis();
    diagnose::Timeline timeline = sick_timeline(diagnosis);
    diagnosis.worst.reset();
    const diagnose::Time begin = diagnosis.typical->begin, length = (diagnosis.typical->end - begin) / 200;
    timeline.calls.clear();
    for (int at = 0; at < 200; ++at) {
        diagnose::Call call;
        call.begin = begin + at * length;
        call.end = call.begin + length / 2;
        call.thread = at == 150 ? 9 : at < 60 ? 7 : 8;  // the first calls less than the second, the third once
        call.kind = record::CallKind::kLaunch;
        timeline.calls.push_back(call);
    }
    const std::string html = diagnosis_html(diagnosis, timeline);
    EXPECT_EQ(count_of(html, ">program calls<"), 1u);
    EXPECT_EQ(count_of(html, ">other thread<"), 1u);
    EXPECT_LT(html.find("60 CUDA calls of one thread"), html.find("139 CUDA calls of another"));
    for (diagnose::Call& call : timeline.calls) call.thread = 8;
    EXPECT_EQ(count_of(diagnosis_html(diagnosis, timeline), ">other thread<"), 0u);
}

TEST(DiagnosisHtml, WhatTheMachineDidBeforeIsNotShown) {
    diagnose::Diagnosis diagnosis = sick_diagnosis();
    diagnose::Timeline timeline = sick_timeline(diagnosis);
    timeline.windows = {{5'000'000'000, 6'000'000'000, 0}};
    timeline.machine.assign(3, {});
    for (int at = 0; at < 3; ++at) {
        timeline.machine[at].time = (4 + at) * diagnose::Time{1'000'000'000};
        timeline.machine[at].power_watts = at == 0 ? 699 : 126;
    }
    EXPECT_TRUE(page_holds(diagnosis_html(diagnosis, timeline), "drawn: 126 W on average"));
}

TEST(DiagnosisHtml, AStepOfManyKernelsStaysSmall) {
    diagnose::Diagnosis diagnosis = sick_diagnosis();
    diagnose::Timeline timeline = sick_timeline(diagnosis);
    timeline.work.clear();
    for (int i = 0; i < 200'000; ++i)
        timeline.work.push_back({i * 100, i * 100 + 60 + i % 7, 7, 0, record::WorkKind::kKernel, false, 7, 1, 1});
    EXPECT_LT(diagnosis_html(diagnosis, timeline).size(), 1'000'000u);
}

TEST(Joined, SmallestGapsGoFirstAndColoursStayApart) {
    std::vector<LaneItem> items{{0, 10, 0, "a"}, {11, 20, 0, "b"}, {50, 60, 0, "c"}, {60, 70, 3, "d"}, {71, 80, 0, "e"}};
    EXPECT_EQ(joined(items, 5).size(), 5u);
    const auto fewer = joined(items, 4);
    ASSERT_EQ(fewer.size(), 4u);
    EXPECT_EQ(fewer[0].end, 20);
    EXPECT_EQ(fewer[0].count, 2u);
    EXPECT_EQ(fewer[0].what, "a");
    EXPECT_EQ(joined(items, 1).size(), 3u);
    EXPECT_TRUE(joined({}, 1).empty());
}

TEST(QuoteSource, LinesAroundTheOneThatWasAskedFor) {
    const test::TemporaryFolder folder;
    const std::filesystem::path path = folder.path() / "train.py";
    std::ofstream(path) << program_text();
    const auto lines = quote_source({path.string(), 41, "train", false}, 3);
    ASSERT_EQ(lines.size(), 7u);
    EXPECT_EQ(lines[0].number, 38);
    EXPECT_EQ(lines[3].text, "        total += loss.item()  # waits for the GPU");
    EXPECT_TRUE(lines[3].hit);
    EXPECT_EQ(quote_source({path.string(), 1, "", false}, 3).size(), 4u);
    EXPECT_EQ(quote_source({path.string(), 44, "", false}, 1).size(), 1u);  // the blank line before it says nothing
    for (const int line : {0, -3, 45, 100'000, std::numeric_limits<int>::max()})
        EXPECT_TRUE(quote_source({path.string(), line, "", false}, 3).empty()) << line;
}

TEST(QuoteSource, OpensSourceCodeAlone) {
    const test::TemporaryFolder folder;
    std::ofstream(folder.path() / "secret") << "password\n";
    EXPECT_TRUE(quote_source({(folder.path() / "secret").string(), 1, "", false}, 3).empty());
    EXPECT_TRUE(quote_source({(folder.path() / "absent.py").string(), 1, "", false}, 3).empty());
    std::filesystem::create_directory(folder.path() / "folder.py");
    EXPECT_TRUE(quote_source({(folder.path() / "folder.py").string(), 1, "", false}, 3).empty());
    ASSERT_EQ(mkfifo((folder.path() / "pipe.py").c_str(), 0600), 0);
    EXPECT_TRUE(quote_source({(folder.path() / "pipe.py").string(), 1, "", false}, 3).empty());
    std::ofstream(folder.path() / "long.py") << std::string(100'000, 'x');
    const auto lines = quote_source({(folder.path() / "long.py").string(), 1, "", false}, 3);
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_LE(lines[0].text.size(), 203u);
}

/// tests/tools/doctor_report_test.py opens what this writes in a browser, in the folder MILLRACE_REPORTS_TO.
TEST(DiagnosisHtml, WritesReportsForABrowser) {
    const test::BrowserPages pages(html_script(), html_script_hash());
    pages.write("train.py", program_text());
    diagnose::Diagnosis sick = sick_diagnosis();
    for (diagnose::Finding& finding : sick.findings) finding.where->file = (pages.folder() / "train.py").string();
    sick.remarks = {"Two of 1,500 steps were cut by the end of a window and left out."};
    const std::string page = diagnosis_html(sick, sick_timeline(sick));
    EXPECT_TRUE(page_holds(page, "# waits for the GPU")) << "the blamed line is quoted from train.py";
    pages.write_page("sick.html", page);
    diagnose::Diagnosis healthy = healthy_diagnosis();
    pages.write_page("healthy.html", diagnosis_html(healthy, {}));
    pages.write_page("empty.html", diagnosis_html({}, {}));
    diagnose::Timeline timeline;
    const diagnose::Diagnosis hostile = hostile_diagnosis(timeline);
    pages.write_page("hostile.html", diagnosis_html(hostile, timeline));
}

}  // namespace
}  // namespace millrace::report
