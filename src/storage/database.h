#pragma once
// What a study needs of a database. Statements are SQL that SQLite and PostgreSQL share; parameters are $1, $2, ... in the order
// of their first use.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"

namespace millrace::storage {

using base::Error;
using base::Result;
using base::Status;

/// monostate is NULL.
using Value = std::variant<std::monostate, int64_t, double, std::string>;
using Row = std::vector<Value>;

class Database {
public:
    virtual ~Database() = default;

    /// Executes one statement and returns all of its rows. `sql` is prepared once and kept.
    virtual base::Result<std::vector<Row>> run(const std::string& sql, const std::vector<Value>& values = {}) = 0;

    /// A transaction that writes: no other one writes until it ends. Waits for a while when another process holds the lock.
    virtual base::Status begin() = 0;
    virtual base::Status commit() = 0;
    virtual void rollback() = 0;

    /// The last transaction lost its connection. Nothing of it is stored, or all of it, where only the answer to commit() is
    /// missing. begin() connects anew.
    [[nodiscard]] virtual bool was_cut_off() const { return false; }

    /// UTC by the server's clock as time_text writes it; empty when the database has no clock of its own.
    virtual base::Result<std::string> time() { return std::string(); }

    /// The file or the URL without its password, for errors.
    [[nodiscard]] virtual const std::string& place() const = 0;
};

/// Rolls back at the end of its life what was not committed.
class Transaction {
public:
    static base::Result<Transaction> begin(Database& database) {
        MILLRACE_TRY(database.begin());
        return Transaction{database};
    }
    Transaction(Transaction&& other) noexcept : database_(std::exchange(other.database_, nullptr)) {}
    Transaction& operator=(Transaction&&) = delete;
    ~Transaction() {
        if (database_ != nullptr) database_->rollback();
    }
    base::Status commit() {
        MILLRACE_TRY(database_->commit());
        database_ = nullptr;
        return base::ok();
    }

private:
    explicit Transaction(Database& database) : database_(&database) {}
    Database* database_;
};

/// Whether this build has SQLite.
bool has_sqlite();

/// A study's database as one file, not on network file systems: SQLite's locks do not hold there. Opens the file or creates it
/// with the tables of schema.h. Refuses, without changing it, a file that is no database, one of another program and one with
/// another version of the schema. Writes ahead (journal mode WAL); each commit is synced. A connection belongs to the process
/// that opened it: fork before, not after.
base::Result<std::unique_ptr<Database>> open_sqlite(const std::string& file);

/// Whether this build has libpq.
bool has_postgres();

/// A study's database on a server, for workers on several machines. Connects to
/// postgresql://[user[:password]@]host[:port]/database and creates the tables of schema.h where there are none. What the URL
/// leaves out comes from libpq's environment (PGHOST, PGPASSWORD, ...) and ~/.pgpass; a password is never printed. Refuses a
/// database with tables of others. A connection that was lost is made again when the next transaction begins, which waits up to a
/// minute for the server; the transaction in which it was lost fails and has written nothing.
base::Result<std::unique_ptr<Database>> open_postgres(const std::string& url);

/// A database by the URL of a server (postgresql:// or postgres://) or by the name of a SQLite file.
base::Result<std::unique_ptr<Database>> open_database(const std::string& place);

// The tables of a study in the schema of Optuna 3.2 and later (revision v3.2.0.a, version 12), so that Optuna and its dashboard
// open the database. Enumerations are stored by name.

inline constexpr const char* kSchemaRevision = "v3.2.0.a";
inline constexpr int64_t kSchemaVersion = 12;

/// The statements that make all tables in an empty database, with the rows that say their version.
std::vector<std::string> sqlite_schema();

/// The same for PostgreSQL, where enumerations are types and keys count by themselves.
std::vector<std::string> postgres_schema();

/// Whether the database is new. `tables` is the statement that lists its tables in order. Refuses tables of others and other
/// revisions, naming what would be right.
base::Result<bool> is_new(Database& database, const std::string& tables);

}  // namespace millrace::storage
