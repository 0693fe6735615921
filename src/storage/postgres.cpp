#include "storage/database.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <postgresql/libpq-fe.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <thread>

namespace millrace::storage {
namespace {

constexpr std::chrono::seconds kLongestWait{60};  // for a server that is not there, as one that restarts
constexpr Oid kInt2 = 21, kInt4 = 23, kInt8 = 20, kFloat4 = 700, kFloat8 = 701;
constexpr const char* kCreationLock = "SELECT pg_advisory_xact_lock(7310578029)::text";

// Loaded when a server is asked for: linked, it would bring thirty libraries (TLS, Kerberos, LDAP) into every program.
#define MILLRACE_LIBPQ(X) \
    X(PQclear) \
    X(PQconnectdb) \
    X(PQconninfoFree) \
    X(PQconninfoParse) \
    X(PQerrorMessage) \
    X(PQexecPrepared) \
    X(PQfinish) \
    X(PQfreemem) \
    X(PQftype) \
    X(PQgetisnull) \
    X(PQgetlength) \
    X(PQgetvalue) \
    X(PQnfields) \
    X(PQntuples) \
    X(PQprepare) \
    X(PQreset) \
    X(PQresultStatus) \
    X(PQsetNoticeProcessor) \
    X(PQstatus) \
    X(PQtransactionStatus)

struct Libpq {
#define MILLRACE_DECLARE(name) decltype(&::name) name = nullptr;
    MILLRACE_LIBPQ(MILLRACE_DECLARE)
#undef MILLRACE_DECLARE
    std::string absent;  ///< why it could not be loaded

    Libpq() {
        void* const handle = ::dlopen("libpq.so.5", RTLD_NOW | RTLD_LOCAL);  // never closed: it lives as long as the program
        if (handle == nullptr) {
            absent = ::dlerror();
            return;
        }
#define MILLRACE_LOAD(name) \
    name = reinterpret_cast<decltype(name)>(::dlsym(handle, #name)); \
    if (name == nullptr) absent = "libpq.so.5 lacks " #name;
        MILLRACE_LIBPQ(MILLRACE_LOAD)
#undef MILLRACE_LOAD
    }
};

const Libpq& libpq() {
    static const Libpq library;
    return library;
}

struct CloseServer {
    void operator()(PGconn* connection) const { libpq().PQfinish(connection); }
};
struct ClearAnswer {
    void operator()(PGresult* answer) const { libpq().PQclear(answer); }
};
using Answer = std::unique_ptr<PGresult, ClearAnswer>;

/// libpq ends its messages with a line break and may repeat them for each address.
std::string first_line(const char* text) {
    const std::string line(text == nullptr ? "" : text);
    return line.substr(0, line.find('\n'));
}

class PostgresDatabase final : public Database {
public:
    explicit PostgresDatabase(std::string url) : url_(std::move(url)) {}

    Status open() {
        MILLRACE_TRY(name_place());
        connection_.reset(libpq().PQconnectdb(url_.c_str()));
        if (libpq().PQstatus(connection_.get()) != CONNECTION_OK)
            return Error{fmt::format("cannot be reached: {}", first_line(libpq().PQerrorMessage(connection_.get()))), place_};
        libpq().PQsetNoticeProcessor(
            connection_.get(), [](void*, const char*) {}, nullptr);  // errors are returned, not printed
        // No table is there to lock yet; another process may be creating them.
        MILLRACE_TRY(run("BEGIN"));
        const auto created = create();
        MILLRACE_TRY(run(created.ok() ? "COMMIT" : "ROLLBACK"));
        return created;
    }

    Result<std::vector<Row>> run(const std::string& sql, const std::vector<Value>& values = {}) override {
        MILLRACE_LET(name, prepared(sql));
        std::vector<std::string> texts(values.size());
        std::vector<const char*> parameters(values.size(), nullptr);
        for (size_t i = 0; i < values.size(); ++i) {
            if (const auto* whole = std::get_if<int64_t>(&values[i])) texts[i] = fmt::format("{}", *whole);
            if (const auto* number = std::get_if<double>(&values[i])) texts[i] = fmt::format("{}", *number);
            if (const auto* text = std::get_if<std::string>(&values[i])) texts[i] = *text;
            if (!std::holds_alternative<std::monostate>(values[i])) parameters[i] = texts[i].c_str();
        }
        const Answer answer(libpq().PQexecPrepared(connection_.get(), name.c_str(), static_cast<int>(values.size()),
                                                   parameters.data(), nullptr, nullptr, 0));
        const auto status = libpq().PQresultStatus(answer.get());
        if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) return error();
        std::vector<Row> rows(static_cast<size_t>(libpq().PQntuples(answer.get())));
        for (size_t row = 0; row < rows.size(); ++row) {
            rows[row].resize(static_cast<size_t>(libpq().PQnfields(answer.get())));
            for (size_t column = 0; column < rows[row].size(); ++column)
                rows[row][column] = cell(answer.get(), static_cast<int>(row), static_cast<int>(column));
        }
        return rows;
    }

    Status begin() override {
        has_begun_ = false;
        const auto until = std::chrono::steady_clock::now() + kLongestWait;
        for (;;) {
            const auto begun = run("BEGIN");
            if (begun.ok()) {
                // Optuna's own workers lock a row of this table before they take a number, so they wait, too.
                const auto locked = run("LOCK TABLE studies IN EXCLUSIVE MODE");
                has_begun_ = locked.ok();
                if (locked.ok()) return base::ok();
                if (libpq().PQstatus(connection_.get()) == CONNECTION_OK) {
                    rollback();
                    return locked.error();
                }
            }
            if (std::chrono::steady_clock::now() > until) return error();
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            libpq().PQreset(connection_.get());
            statements_.clear();  // they belonged to the lost connection
        }
    }
    Status commit() override {
        MILLRACE_TRY(run("COMMIT"));
        return base::ok();
    }
    void rollback() override {
        if (libpq().PQtransactionStatus(connection_.get()) != PQTRANS_IDLE) (void)run("ROLLBACK");
    }
    [[nodiscard]] bool was_cut_off() const override {
        return has_begun_ && libpq().PQstatus(connection_.get()) == CONNECTION_BAD;
    }
    Result<std::string> time() override {
        MILLRACE_LET(rows, run("SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')"));
        return std::get<std::string>(rows.front().front());
    }
    [[nodiscard]] const std::string& place() const override { return place_; }

private:
    [[nodiscard]] Error error() const {
        return Error{fmt::format("cannot be used: PostgreSQL says: {}", first_line(libpq().PQerrorMessage(connection_.get()))),
                     place_, 1};
    }

    /// The URL without what may be secret.
    Status name_place() {
        place_ = "postgresql://";
        if (!libpq().absent.empty())
            return Error{fmt::format("cannot be reached without libpq; install Debian's libpq5 ({})", libpq().absent), place_};
        char* said = nullptr;
        PQconninfoOption* const options = libpq().PQconninfoParse(url_.c_str(), &said);
        if (options == nullptr) {
            // Its message repeats parts of the URL, and with them perhaps the password.
            libpq().PQfreemem(said);
            return Error{"is no URL that libpq reads; postgresql://USER@HOST:PORT/DATABASE would be", place_};
        }
        std::map<std::string, std::string> parts;
        for (const auto* option = options; option->keyword != nullptr; ++option)
            if (option->val != nullptr) parts[option->keyword] = option->val;
        libpq().PQconninfoFree(options);
        if (!parts["user"].empty()) place_ += parts["user"] + "@";
        place_ += parts["host"];
        if (!parts["port"].empty()) place_ += ":" + parts["port"];
        place_ += "/" + parts["dbname"];
        return base::ok();
    }

    Result<std::string> prepared(const std::string& sql) {
        const auto found = statements_.find(sql);
        if (found != statements_.end()) return found->second;
        const std::string name = fmt::format("s{}", statements_.size());
        const Answer answer(libpq().PQprepare(connection_.get(), name.c_str(), sql.c_str(), 0, nullptr));
        if (libpq().PQresultStatus(answer.get()) != PGRES_COMMAND_OK) return error();
        statements_[sql] = name;
        return name;
    }

    static Value cell(const PGresult* answer, int row, int column) {
        if (libpq().PQgetisnull(answer, row, column) != 0) return {};
        std::string text(libpq().PQgetvalue(answer, row, column), static_cast<size_t>(libpq().PQgetlength(answer, row, column)));
        const Oid type = libpq().PQftype(answer, column);
        if (type == kInt2 || type == kInt4 || type == kInt8) return static_cast<int64_t>(std::strtoll(text.c_str(), nullptr, 10));
        if (type == kFloat4 || type == kFloat8) return std::strtod(text.c_str(), nullptr);
        return text;
    }

    Status create() {
        MILLRACE_TRY(run(kCreationLock));
        MILLRACE_LET(is_empty, is_new(*this,
                                      "SELECT table_name::text FROM information_schema.tables "
                                      "WHERE table_schema = current_schema() ORDER BY table_name"));
        if (!is_empty) return base::ok();
        for (const std::string& statement : postgres_schema()) MILLRACE_TRY(run(statement));
        return base::ok();
    }

    std::string url_, place_;
    std::unique_ptr<PGconn, CloseServer> connection_;
    bool has_begun_ = false;                         ///< the last transaction
    std::map<std::string, std::string> statements_;  ///< the server's names of prepared ones, by their text
};

}  // namespace

bool has_postgres() { return true; }

Result<std::unique_ptr<Database>> open_postgres(const std::string& url) {
    auto database = std::make_unique<PostgresDatabase>(url);
    MILLRACE_TRY(database->open());
    return std::unique_ptr<Database>(std::move(database));
}

}  // namespace millrace::storage
