// Run directories of sweeps: what --resume finds in them, and what the end of a sweep says.
#include "io/pending_file.h"
#include "record/run_directory.h"
#include "sweep/fake_lanes.h"
#include "sweep/report.h"

namespace millrace::sweep {
namespace {

class SweepRun : public Sweeps {
protected:
    base::Result<RunReport> go(const StudyFile& of, bool resume = false, const std::string& journal = "") {
        RunRequest request;
        request.out = folder_ / "run";
        request.resume = resume;
        request.journal = journal;
        request.lanes = 4;
        request.command = {"millrace", "sweep"};
        return run_study(of, request, factory_);
    }
};

TEST_F(SweepRun, ADatabaseThatIsGoneIsNotBegunAnew) {
    const StudyFile of = study("sampler = \"random\"\ntrials = 4\nfinalists = 1\nreplicates = 1\n");
    ASSERT_TRUE(go(of).ok());
    const auto database = folder_ / "run/sweep.db";
    const int epochs = log_.epochs;
    for (const bool is_there : {true, false}) {
        std::filesystem::remove(database);
        if (is_there) std::ofstream(database).flush();
        const auto again = go(of, true);
        ASSERT_FALSE(again.ok());
        EXPECT_EQ(again.error().exit_status, 2);
        EXPECT_NE(again.error().text().find("sweep.db"), std::string::npos) << again.error().text();
        EXPECT_NE(again.error().text().find(is_there ? "is empty" : "is missing"), std::string::npos) << again.error().text();
        EXPECT_EQ(std::filesystem::exists(database), is_there) << "nothing is made in its place";
    }
    EXPECT_EQ(log_.epochs, epochs);
}

TEST_F(SweepRun, ARunThatWasKilledIsKnownByItsEvents) {
    const StudyFile of = study("sampler = \"random\"\ntrials = 4\nfinalists = 0\n");
    {  // killed before it had a database: nothing was lost
        auto killed = record::RunDirectory::open(folder_ / "run", record::RunStart::kNew, {});
        ASSERT_TRUE(killed.ok());
    }
    log_.fails_at = 2;
    ASSERT_FALSE(go(of, true).ok());
    std::filesystem::remove(folder_ / "run/sweep.db");
    log_.fails_at = std::numeric_limits<int>::max();
    const auto again = go(of, true);
    ASSERT_FALSE(again.ok());
    EXPECT_NE(again.error().text().find("is missing"), std::string::npos) << again.error().text();
}

TEST_F(SweepRun, AJournalThatCannotBeWrittenIsToldBeforeTheWork) {
    const auto refused = go(study("trials = 2\n"), false, (folder_ / "absent/study.log").string());
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().text().find("absent: there is no such folder"), std::string::npos) << refused.error().text();
    EXPECT_EQ(log_.epochs, 0);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

TEST_F(SweepRun, WithoutFinalistsTheEndSaysSo) {
    const StudyFile of = study("sampler = \"random\"\ntrials = 2\nfinalists = 0\n");
    const auto report = go(of);
    ASSERT_TRUE(report.ok()) << report.error().text();
    const std::string text = report_text(of, *report);
    EXPECT_EQ(text.find("none is complete"), std::string::npos) << text;
    EXPECT_NE(text.find("finalists = 0"), std::string::npos) << text;
    EXPECT_NE(text.find("best    trial "), std::string::npos) << text;
}

TEST_F(SweepRun, FewTrialsOfAshaEndWithABest) {
    const StudyFile of = study("sampler = \"random\"\nscheduler = \"asha\"\nrungs = { last = 9 }\ntrials = 8\nreplicates = 1\n");
    const auto report = go(of);
    ASSERT_TRUE(report.ok()) << report.error().text();
    EXPECT_TRUE(std::filesystem::exists(folder_ / "run/best.toml"));
    const std::string text = report_text(of, *report);
    EXPECT_NE(text.find("was trained to its end; --trials 9 or more bring one there by themselves"), std::string::npos) << text;
    EXPECT_NE(text.find("7 paused early (pruned"), std::string::npos) << text;
    std::ifstream in(folder_ / "run/sweep.html");
    const std::string page{std::istreambuf_iterator<char>(in), {}};
    EXPECT_NE(page.find("The best of 8 trials and 1 rerun of finalists:"), std::string::npos);
    EXPECT_NE(page.find("On the test part: test_loss "), std::string::npos);
}

}  // namespace
}  // namespace millrace::sweep
