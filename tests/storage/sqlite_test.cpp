#include "storage/database.h"

#include <fstream>
#include <iterator>

#include "storage/made_up_study.h"

namespace millrace::storage {
namespace {

std::string content_of(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Sqlite, AnErrorSaysWhichFileAndWhy) {
    const auto opened = open_sqlite("/nowhere/sweep.db");
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error().place, "/nowhere/sweep.db");
    EXPECT_EQ(opened.error().exit_status, 2);
    const char* const reason = has_sqlite() ? "SQLite says: unable to open database file" : "install Debian's libsqlite3-dev";
    EXPECT_NE(opened.error().message.find(reason), std::string::npos) << opened.error().message;
}

/// The error of opening the file, which stays as it was.
std::string refusal_of(const std::filesystem::path& file) {
    const std::string before = content_of(file);
    const auto opened = open_sqlite(file.string());
    EXPECT_EQ(content_of(file), before) << "a refused file is left alone";
    EXPECT_FALSE(opened.ok());
    if (opened.ok()) return {};
    EXPECT_EQ(opened.error().exit_status, 2);
    EXPECT_EQ(opened.error().place, file.string());
    return opened.error().message;
}

TEST_F(SqliteFile, WritesAhead) {
    EXPECT_EQ(must(must(open_sqlite(file()))->run("PRAGMA journal_mode")), (std::vector<Row>{{"wal"}}));
}

TEST_F(SqliteFile, WhatIsNoDatabaseIsRefused) {
    std::ofstream(file()) << std::string(5000, 'x');
    EXPECT_NE(refusal_of(file()).find("is not a SQLite database"), std::string::npos);
    const auto folder = open_sqlite(folder_.path().string());
    ASSERT_FALSE(folder.ok());
    EXPECT_EQ(folder.error().exit_status, 2);
}

TEST_F(SqliteFile, DatabasesOfOthersAreRefused) {
    ASSERT_EQ(std::system(("/usr/bin/python3 -c \"import sqlite3; c = sqlite3.connect('" + file() +
                           "'); c.execute('CREATE TABLE cookies (a)'); c.commit()\"")
                              .c_str()),
              0);
    EXPECT_NE(refusal_of(file()).find("a table 'cookies'"), std::string::npos);
}

TEST_F(SqliteFile, OtherRevisionsAndMissingTablesAreRefused) {
    {
        const auto database = must(open_sqlite(file()));
        must(database->run("UPDATE alembic_version SET version_num = 'v3.0.0.d'"));
    }
    EXPECT_NE(refusal_of(file()).find("has revision 'v3.0.0.d' of Optuna's schema, v3.2.0.a is needed"), std::string::npos);
    for (const std::string newer : {"v3.2.1.a", "v3.10.0.a", "v5.0.0.b"}) {
        const auto theirs = folder_ / (newer + ".db");
        must(must(open_sqlite(theirs.string()))->run("UPDATE alembic_version SET version_num = '" + newer + "'"));
        const std::string said = refusal_of(theirs);
        EXPECT_NE(said.find("written by a newer Optuna: revision '" + newer + "'"), std::string::npos) << said;
        EXPECT_EQ(said.find("upgrade"), std::string::npos) << "that would not make it older";
    }
    const auto other = folder_ / "other.db";
    {
        const auto database = must(open_sqlite(other.string()));
        must(database->run("DROP TABLE trial_heartbeats"));
    }
    EXPECT_NE(refusal_of(other).find("lacks the table 'trial_heartbeats'"), std::string::npos);
}

TEST_F(SqliteFile, DamagedFilesAndRowsAreErrors) {
    must(open(one_objective()).add(std::vector<NewTrial>(40, NewTrial{kInRange})));
    const std::string whole = content_of(file());
    ASSERT_GT(whole.size(), 8192U);
    // Every page but the first overwritten, one after the other: an error or a study, never a crash.
    int refused = 0;
    for (size_t at = 4096; at + 4096 <= whole.size(); at += 4096) {
        const auto copy = folder_ / "copy.db";
        std::string broken = whole;
        broken.replace(at, 4096, std::string(4096, '\x5a'));
        std::ofstream(copy, std::ios::binary) << broken;
        auto study = open_study(copy.string(), one_objective(), "w2", clock_);
        if (!study.ok() || !study->trials().ok()) ++refused;
        std::filesystem::remove(folder_ / "copy.db-wal");
        std::filesystem::remove(folder_ / "copy.db-shm");
    }
    EXPECT_GT(refused, 3);
    const auto hostile = [&](const std::string& sql) {
        std::filesystem::remove(folder_ / "row.db");
        std::ofstream(folder_ / "row.db", std::ios::binary) << whole;
        {
            const auto database = must(open_sqlite((folder_ / "row.db").string()));
            must(database->run(sql));
        }
        auto study = open_study((folder_ / "row.db").string(), one_objective(), "w2", clock_);
        if (!study.ok()) return study.error().message;
        const auto trials = study->trials();
        return trials.ok() ? std::string() : trials.error().message;
    };
    EXPECT_EQ(hostile("SELECT 1"), "");
    for (const char* sql :
         {"UPDATE trials SET number = 'x' WHERE number = 3", "UPDATE trials SET number = 7 WHERE number = 3",
          "UPDATE trials SET state = 'ASLEEP' WHERE number = 3", "UPDATE trials SET state = 'COMPLETE' WHERE number = 3",
          "UPDATE trial_params SET param_value = 'x' WHERE param_name = 'optim.lr'",
          "UPDATE trial_params SET param_value = 99 WHERE param_name = 'optim.lr'", "DELETE FROM trial_params WHERE param_id = 5",
          "INSERT INTO trial_values (trial_id, objective, value, value_type) VALUES (1, 7, 0.5, 'FINITE')",
          "INSERT INTO trial_intermediate_values (trial_id, step, intermediate_value_type) VALUES (1, 7, 'FINITE')",
          "INSERT INTO trial_system_attributes (trial_id, key, value_json) VALUES (1, 'constraints', '{')",
          "UPDATE study_system_attributes SET value_json = '[[[' WHERE key = 'millrace:space'",
          "UPDATE study_system_attributes SET value_json = '[1]' WHERE key = 'study:metric_names'",
          "DELETE FROM study_system_attributes", "DELETE FROM study_directions"})
        EXPECT_NE(hostile(sql), "") << sql;
}

}  // namespace
}  // namespace millrace::storage
