#pragma once
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "storage/database.h"
#include "storage/postgres_server.h"
#include "storage/study.h"
#include "temporary_folder.h"

namespace millrace::storage {

/// Stands still until it is told to go on.
class HandClock final : public base::Clock {
public:
    [[nodiscard]] std::chrono::nanoseconds now() const override { return wall_.time_since_epoch(); }
    [[nodiscard]] std::chrono::system_clock::time_point wall() const override { return wall_; }
    void advance(std::chrono::seconds by) { wall_ += by; }

private:
    std::chrono::system_clock::time_point wall_{std::chrono::seconds{1'790'000'000} + std::chrono::microseconds{250'001}};
};

/// One parameter of each kind.
inline search::Space every_kind() {
    const auto entries = base::read_toml(
        "[space]\n\"optim.lr\" = { log = [1e-5, 0.1] }\n"
        "\"optim.weight_decay\" = { log = [1e-6, 0.1], or = 0 }\n"
        "\"model.dropout\" = { uniform = [0.0, 0.5] }\n"
        "\"model.width\" = { int = [4, 16], step = 4 }\n"
        "\"model.shape\" = { choice = [32, 'r\"elu\xc3\xa9', true, 0.5] }\n",
        "study.toml");
    return search::parse_space(entries.value()).value();
}

/// An accuracy to maximize and a time to minimize.
inline StudyDescription two_objectives() {
    return {.name = "two", .space = every_kind(), .objectives = {{"accuracy", true}, {"step_ms", false}}};
}
inline StudyDescription one_objective() { return {.name = "one", .space = every_kind(), .objectives = {{"accuracy", true}}}; }

inline base::Result<Study> open_study(const std::string& place, const StudyDescription& description, const std::string& worker,
                                      const base::Clock& clock) {
    MILLRACE_LET(database, open_database(place));
    return Study::open(std::move(database), description, worker, clock);
}

/// The value, or a failed test that ends here: nothing after it would make sense.
template <class T>
T must(base::Result<T> result) {
    if (!result.ok()) throw std::runtime_error(result.error().text());
    return std::move(result).value();
}

inline const search::Configuration kInRange = {1e-3, 1e-4, 0.25, 8, 1};
inline const search::Configuration kWithAlternative = {0.1, 0, 0, 16, 3};

class SqliteFile : public ::testing::Test {
protected:
    void SetUp() override {
        if (!has_sqlite()) GTEST_SKIP() << "built without SQLite";
    }
    Study open(const StudyDescription& description, const std::string& worker = "w1") {
        return must(open_study(file(), description, worker, clock_));
    }
    [[nodiscard]] std::string file() const { return (folder_ / "sweep.db").string(); }

    test::TemporaryFolder folder_;
    HandClock clock_;
};

/// Runs on each kind of database: "sqlite", "postgres".
class StudyTest : public ::testing::TestWithParam<std::string> {
protected:
    void SetUp() override {
        if (GetParam() == "sqlite") {
            if (!has_sqlite()) GTEST_SKIP() << "built without SQLite";
            place_ = (folder_ / "sweep.db").string();
            return;
        }
        if (!has_postgres()) GTEST_SKIP() << "built without libpq";
        if (PostgresServer::programs().empty()) GTEST_SKIP() << "needs Debian's postgresql";
        ASSERT_TRUE(PostgresServer::shared().is_running()) << "PostgreSQL does not start";
        place_ = PostgresServer::shared().new_database();
    }
    Study open(const StudyDescription& description, const std::string& worker = "w1") {
        return must(open_study(place_, description, worker, clock_));
    }

    test::TemporaryFolder folder_;
    HandClock clock_;
    std::string place_;
};

using Numbers = std::vector<int64_t>;

}  // namespace millrace::storage
