#include "storage/database.h"

#include "storage/made_up_study.h"

namespace millrace::storage {
namespace {

using std::chrono::seconds;

TEST(OpenDatabase, OtherUrlsAreRefusedWithoutTheirPassword) {
    for (const char* url : {"mysql://me:secret@host/db", "postgresql://me:secret@host:port/db", "postgresql://me:secret@[/db"}) {
        const auto opened = open_database(url);
        ASSERT_FALSE(opened.ok()) << url;
        EXPECT_EQ(opened.error().exit_status, 2);
        EXPECT_EQ(opened.error().text().find("secret"), std::string::npos) << opened.error().text();
    }
}

TEST(OpenDatabase, AServerThatIsNotThereIsNamedWithoutThePassword) {
    const auto opened = open_database("postgresql://me:secret@/db?host=/nowhere");
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error().text().find("secret"), std::string::npos) << opened.error().text();
    if (has_postgres()) {
        EXPECT_EQ(opened.error().place, "postgresql://me@/nowhere/db");
        EXPECT_NE(opened.error().message.find("cannot be reached"), std::string::npos);
    }
}

class Postgres : public testing::Test {
protected:
    void SetUp() override {
        if (!has_postgres()) GTEST_SKIP() << "built without libpq";
        if (PostgresServer::programs().empty()) GTEST_SKIP() << "needs Debian's postgresql";
        ASSERT_TRUE(PostgresServer::shared().is_running()) << "PostgreSQL does not start";
        place_ = PostgresServer::shared().new_database();
    }
    std::string place_;
    HandClock clock_;
};

TEST_F(Postgres, AStudyGoesOnAfterTheServerWasRestarted) {
    auto study = must(open_study(place_, one_objective(), "w1", clock_));
    must(study.add(std::vector<NewTrial>{{kInRange}}));
    ASSERT_TRUE(PostgresServer::shared().stop());
    ASSERT_TRUE(PostgresServer::shared().start());
    EXPECT_EQ(must(study.report(std::vector<Report>{{0, 1, {0.5}}})), Numbers{});
    EXPECT_EQ(must(study.trials())[0].trial.reports.at(1), search::Objectives{0.5});
}

TEST_F(Postgres, ATransactionThatIsCutOffSaysSoAndTheNextOneConnectsAnew) {
    auto database = must(open_postgres(place_));
    EXPECT_FALSE(database->was_cut_off());
    ASSERT_TRUE(database->begin().ok());
    EXPECT_FALSE(database->run("SELECT pg_terminate_backend(pg_backend_pid())").ok());
    EXPECT_TRUE(database->was_cut_off());
    database->rollback();
    ASSERT_TRUE(database->begin().ok());
    EXPECT_FALSE(database->run("SELECT nothing").ok());
    EXPECT_FALSE(database->was_cut_off()) << "a statement that is wrong stays wrong";
}

TEST_F(Postgres, WorkersCompareHeartbeatsByTheServersClock) {
    HandClock fast;
    fast.advance(seconds{3600});
    auto first = must(open_study(place_, one_objective(), "w1", clock_));
    auto second = must(open_study(place_, one_objective(), "w2", fast));
    must(first.add(std::vector<NewTrial>{{kInRange}}));
    EXPECT_EQ(must(second.claim(1, seconds{60})), Numbers{});
    fast.advance(seconds{90});
    EXPECT_EQ(must(second.claim(1, seconds{60})), Numbers{0});
}

TEST_F(Postgres, TablesOfOthersAreRefused) {
    const auto other = PostgresServer::shared().new_database();
    must(must(open_postgres(place_))->run("DROP TABLE trial_heartbeats"));
    const auto opened = open_postgres(place_);
    ASSERT_FALSE(opened.ok());
    EXPECT_NE(opened.error().message.find("lacks the table 'trial_heartbeats'"), std::string::npos);
    EXPECT_TRUE(open_postgres(other).ok());
}

}  // namespace
}  // namespace millrace::storage
