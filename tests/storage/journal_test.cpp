#include "storage/study.h"

#include <cstdio>
#include <limits>

#include "storage/made_up_study.h"

namespace millrace::storage {
namespace {

using search::TrialState;

/// What a Python program prints; its arguments are files.
std::string printed_by(const std::string& program, const std::filesystem::path& script, const std::filesystem::path& file) {
    std::FILE* output = ::popen((program + " " + script.string() + " " + file.string() + " 2>&1").c_str(), "r");
    if (output == nullptr) return "cannot be started";
    std::string text;
    char part[4096];
    for (size_t got = 0; (got = std::fread(part, 1, sizeof part, output)) > 0;) text.append(part, got);
    ::pclose(output);
    return text;
}

const char* const kPython = "/usr/bin/python3";  // Debian's: other interpreters do not see its packages

bool has_optuna() { return std::system("/usr/bin/python3 -c 'import optuna' > /dev/null 2>&1") == 0; }

/// Six trials, one of each state that Optuna has and a paused one of a study that ended.
void fill(Study& study, HandClock& clock) {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    must(study.add(std::vector<NewTrial>{
        {kInRange, false, {{"run", "runs/\"0\""}}}, {kWithAlternative}, {kInRange}, {kInRange}, {kInRange, true}, {kInRange}}));
    must(
        study.report(std::vector<Report>{{0, 1, {-0.5}, 0}, {0, 2, {-0.75}}, {2, 1, {kNan}}, {2, 3, {-0.125}}, {5, 1, {-0.25}}}));
    clock.advance(std::chrono::seconds{5});
    must(study.finish(std::vector<Outcome>{{0, TrialState::complete, {-0.75}, {-1, 0.5}, {}},
                                           {1, TrialState::complete, {-0.875}, {}, {}},
                                           {2, TrialState::pruned, {-0.125}, {}, {}},
                                           {3, TrialState::failed, {}, {}, {}},
                                           {5, TrialState::paused, {}, {}, {}}}));
    ASSERT_TRUE(study.prune_paused().ok());
}

const char* const kExpected = R"(study one directions ['MAXIMIZE'] metrics ['accuracy']
0 COMPLETE 0.75 {1: 0.5, 2: 0.75} {'run': 'runs/"0"'}
1 COMPLETE 0.875 {} {}
2 PRUNED 0.125 {1: nan, 3: 0.125} {}
3 FAIL None {} {}
4 WAITING None {} {}
5 PRUNED 0.25 {1: 0.25} {}
best 1 [('model.dropout', 0.0), ('model.shape', 0.5), ('model.width', 16), ('optim.lr', 0.1), ('optim.weight_decay:or', 0.0)]
first [('model.dropout', 0.25), ('model.shape', 'r"elué'), ('model.width', 8), ('optim.lr', 0.001), ('optim.weight_decay', 0.0001), ('optim.weight_decay:or', 'range')]
constraints [-1.0, 0.5] rung 0.5 took 5.0
asked 4
)";

TEST_F(SqliteFile, OptunaOpensTheJournal) {
    if (!has_optuna()) GTEST_SKIP() << "needs Debian's python3-optuna";
    Study study = open(one_objective());
    fill(study, clock_);
    const auto journal = folder_ / "journal.log";
    const auto written = write_journal(journal, study.description(), must(study.trials()));
    ASSERT_TRUE(written.ok()) << written.error().text();
    EXPECT_EQ(printed_by(kPython, std::filesystem::path(MILLRACE_SOURCE_ROOT) / "tests/storage/open_study.py", journal),
              kExpected);
}

TEST_F(SqliteFile, APausedTrialOfTheJournalRunsUntilItsStudyHasEnded) {
    Study study = open(one_objective());
    must(study.add(std::vector<NewTrial>{{kInRange}}));
    must(study.report(std::vector<Report>{{0, 1, {-0.25}}}));
    must(study.finish(std::vector<Outcome>{{0, TrialState::paused, {}, {}, {}}}));
    const auto text = [&] {
        const auto journal = folder_ / "journal.log";
        EXPECT_TRUE(write_journal(journal, study.description(), must(study.trials())).ok());
        return must(io::read_text(journal));
    };
    EXPECT_NE(text().find("\"state\":0,\"value\":null"), std::string::npos) << text();
    ASSERT_TRUE(study.prune_paused().ok());
    EXPECT_NE(text().find("\"state\":2,\"value\":0.25"), std::string::npos) << text();
    EXPECT_NE(text().find("datetime_complete"), std::string::npos) << text();
}

TEST_F(SqliteFile, OptunaOpensTheDatabase) {
    if (!has_optuna()) GTEST_SKIP() << "needs Debian's python3-optuna";
    {
        Study study = open(one_objective());
        fill(study, clock_);
    }
    EXPECT_EQ(printed_by(kPython, std::filesystem::path(MILLRACE_SOURCE_ROOT) / "tests/storage/open_study.py", file()),
              kExpected);
    Study again = open(one_objective());
    const auto trials = again.trials();
    ASSERT_TRUE(trials.ok()) << trials.error().text();
    EXPECT_FALSE(trials->at(4).is_waiting) << "Optuna has taken it";
}

TEST_F(SqliteFile, AJournalThatCannotBeWrittenIsAnError) {
    Study study = open(one_objective());
    const auto written = write_journal(folder_ / "missing" / "journal.log", study.description(), must(study.trials()));
    ASSERT_FALSE(written.ok());
    EXPECT_NE(written.error().text().find("missing"), std::string::npos);
}

}  // namespace
}  // namespace millrace::storage
