#include "storage/database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <chrono>
#include <map>
#include <thread>

namespace millrace::storage {
namespace {

constexpr int kBusyMilliseconds = 60'000;
constexpr int kLongestValue = 64 << 20;  // bytes of a text or a row
constexpr const char* kTableNames = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name";

struct CloseConnection {
    void operator()(sqlite3* connection) const { sqlite3_close_v2(connection); }
};
struct FinalizeStatement {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};

class SqliteDatabase final : public Database {
public:
    explicit SqliteDatabase(std::string file) : file_(std::move(file)) {}

    Status open() {
        sqlite3* raw = nullptr;
        const int opened =
            sqlite3_open_v2(file_.c_str(), &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
        connection_.reset(raw);
        if (opened != SQLITE_OK) return error("cannot be opened", opened);
        sqlite3_extended_result_codes(raw, 1);
        sqlite3_busy_timeout(raw, kBusyMilliseconds);
        // A database may come from anywhere: its own triggers and views are not run.
        sqlite3_db_config(raw, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
        sqlite3_db_config(raw, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
        sqlite3_db_config(raw, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
        sqlite3_db_config(raw, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
        sqlite3_limit(raw, SQLITE_LIMIT_LENGTH, kLongestValue);
        // Looked at before anything is written, so that a file of another program stays as it is.
        MILLRACE_LET(is_empty, is_new(*this, kTableNames));
        MILLRACE_TRY(write_ahead());
        MILLRACE_TRY(run("PRAGMA foreign_keys = ON"));
        // A commit outlives every process. Power that fails may take the last ones, whose trials then run again.
        MILLRACE_TRY(run("PRAGMA synchronous = NORMAL"));
        return is_empty ? create() : base::ok();
    }

    Result<std::vector<Row>> run(const std::string& sql, const std::vector<Value>& values = {}) override {
        MILLRACE_LET(statement, prepared(sql));
        const struct Reset {
            sqlite3_stmt* statement;
            ~Reset() {
                sqlite3_reset(statement);
                sqlite3_clear_bindings(statement);
            }
        } reset{statement};
        for (size_t i = 0; i < values.size(); ++i) {
            const int position = sqlite3_bind_parameter_index(statement, fmt::format("${}", i + 1).c_str());
            MILLRACE_ASSERT(position > 0, sql);
            if (const int bound = bind(statement, position, values[i]); bound != SQLITE_OK) return error(sql, bound);
        }
        std::vector<Row> rows;
        int stepped = sqlite3_step(statement);
        for (; stepped == SQLITE_ROW; stepped = sqlite3_step(statement)) rows.push_back(row_of(statement));
        if (stepped != SQLITE_DONE) return error("cannot be used", stepped);
        return rows;
    }

    Status begin() override { return done(run("BEGIN IMMEDIATE")); }
    Status commit() override { return done(run("COMMIT")); }
    void rollback() override {
        if (sqlite3_get_autocommit(connection_.get()) == 0) (void)run("ROLLBACK");
    }
    [[nodiscard]] const std::string& place() const override { return file_; }

private:
    static Status done(const Result<std::vector<Row>>& result) { return result.ok() ? base::ok() : Status{result.error()}; }

    [[nodiscard]] Error error(const std::string& what, int code) const {
        const char* said = connection_ != nullptr ? sqlite3_errmsg(connection_.get()) : sqlite3_errstr(code);
        const int kind = code & 0xff;
        if (kind == SQLITE_NOTADB) return Error{"is not a SQLite database; name a new file or one that holds studies", file_};
        if (kind == SQLITE_BUSY)
            return Error{
                fmt::format("is locked by another process for more than {} s (SQLite: {})", kBusyMilliseconds / 1000, said),
                file_, 1};
        const bool is_input = kind == SQLITE_CANTOPEN || kind == SQLITE_CORRUPT || kind == SQLITE_READONLY || kind == SQLITE_PERM;
        return Error{fmt::format("{}: SQLite says: {}", what, said), file_, is_input ? 2 : 1};
    }

    Result<sqlite3_stmt*> prepared(const std::string& sql) {
        auto& statement = statements_[sql];
        if (statement == nullptr) {
            sqlite3_stmt* raw = nullptr;
            const int code = sqlite3_prepare_v3(connection_.get(), sql.c_str(), static_cast<int>(sql.size()) + 1,
                                                SQLITE_PREPARE_PERSISTENT, &raw, nullptr);
            if (code != SQLITE_OK) return error("cannot be used", code);
            statement.reset(raw);
        }
        return statement.get();
    }

    static int bind(sqlite3_stmt* statement, int position, const Value& value) {
        if (const auto* whole = std::get_if<int64_t>(&value)) return sqlite3_bind_int64(statement, position, *whole);
        if (const auto* number = std::get_if<double>(&value)) return sqlite3_bind_double(statement, position, *number);
        if (const auto* text = std::get_if<std::string>(&value))
            return sqlite3_bind_text64(statement, position, text->data(), text->size(), SQLITE_TRANSIENT, SQLITE_UTF8);
        return sqlite3_bind_null(statement, position);
    }

    static Row row_of(sqlite3_stmt* statement) {
        Row row(static_cast<size_t>(sqlite3_column_count(statement)));
        for (size_t i = 0; i < row.size(); ++i) {
            const int column = static_cast<int>(i);
            switch (sqlite3_column_type(statement, column)) {
                case SQLITE_INTEGER: row[i] = static_cast<int64_t>(sqlite3_column_int64(statement, column)); break;
                case SQLITE_FLOAT: row[i] = sqlite3_column_double(statement, column); break;
                case SQLITE_NULL: break;
                default: {
                    const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement, column));
                    const auto size = static_cast<size_t>(sqlite3_column_bytes(statement, column));
                    row[i] = bytes != nullptr ? std::string(bytes, size) : std::string();
                }
            }
        }
        return row;
    }

    /// SQLite does not wait when two processes change the mode at once, so this does.
    Status write_ahead() {
        for (int waited = 0;; waited += 10) {
            const auto mode = run("PRAGMA journal_mode = WAL");
            if (mode.ok()) {
                if (*mode == std::vector<Row>{{Value{"wal"}}}) return base::ok();
                return Error{"cannot be written ahead (journal mode WAL): is it on a network file system?", file_};
            }
            const int kind = sqlite3_errcode(connection_.get()) & 0xff;
            if ((kind != SQLITE_BUSY && kind != SQLITE_LOCKED) || waited >= kBusyMilliseconds) return mode.error();
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
    }

    Status create() {
        MILLRACE_LET(transaction, Transaction::begin(*this));
        MILLRACE_LET(is_empty, is_new(*this, kTableNames));  // another process may have been first
        if (is_empty)
            for (const std::string& statement : sqlite_schema()) MILLRACE_TRY(run(statement));
        return transaction.commit();
    }

    std::string file_;
    std::unique_ptr<sqlite3, CloseConnection> connection_;
    std::map<std::string, std::unique_ptr<sqlite3_stmt, FinalizeStatement>, std::less<>> statements_;
};

}  // namespace

bool has_sqlite() { return true; }

Result<std::unique_ptr<Database>> open_sqlite(const std::string& file) {
    auto database = std::make_unique<SqliteDatabase>(file);
    MILLRACE_TRY(database->open());
    return std::unique_ptr<Database>(std::move(database));
}

}  // namespace millrace::storage
