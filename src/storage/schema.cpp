#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "storage/database.h"

namespace millrace::storage {
namespace {

struct Table {
    const char* name;
    const char* columns;
};

// Word for word what SQLAlchemy writes for Optuna's models.
constexpr Table kTables[] = {
    {"studies", "study_id INTEGER NOT NULL, study_name VARCHAR(512) NOT NULL, PRIMARY KEY (study_id)"},
    {"version_info",
     "version_info_id INTEGER NOT NULL, schema_version INTEGER, library_version VARCHAR(256), PRIMARY KEY (version_info_id), "
     "CHECK (version_info_id = 1)"},
    {"study_directions",
     "study_direction_id INTEGER NOT NULL, direction VARCHAR(8) NOT NULL, study_id INTEGER NOT NULL, objective INTEGER NOT NULL, "
     "PRIMARY KEY (study_direction_id), UNIQUE (study_id, objective), FOREIGN KEY(study_id) REFERENCES studies (study_id)"},
    {"study_user_attributes",
     "study_user_attribute_id INTEGER NOT NULL, study_id INTEGER, \"key\" VARCHAR(512), value_json TEXT, "
     "PRIMARY KEY (study_user_attribute_id), UNIQUE (study_id, \"key\"), FOREIGN KEY(study_id) REFERENCES studies (study_id)"},
    {"study_system_attributes",
     "study_system_attribute_id INTEGER NOT NULL, study_id INTEGER, \"key\" VARCHAR(512), value_json TEXT, "
     "PRIMARY KEY (study_system_attribute_id), UNIQUE (study_id, \"key\"), FOREIGN KEY(study_id) REFERENCES studies (study_id)"},
    {"trials",
     "trial_id INTEGER NOT NULL, number INTEGER, study_id INTEGER, state VARCHAR(8) NOT NULL, datetime_start DATETIME, "
     "datetime_complete DATETIME, PRIMARY KEY (trial_id), FOREIGN KEY(study_id) REFERENCES studies (study_id)"},
    {"trial_user_attributes",
     "trial_user_attribute_id INTEGER NOT NULL, trial_id INTEGER, \"key\" VARCHAR(512), value_json TEXT, "
     "PRIMARY KEY (trial_user_attribute_id), UNIQUE (trial_id, \"key\"), FOREIGN KEY(trial_id) REFERENCES trials (trial_id)"},
    {"trial_system_attributes",
     "trial_system_attribute_id INTEGER NOT NULL, trial_id INTEGER, \"key\" VARCHAR(512), value_json TEXT, "
     "PRIMARY KEY (trial_system_attribute_id), UNIQUE (trial_id, \"key\"), FOREIGN KEY(trial_id) REFERENCES trials (trial_id)"},
    {"trial_params",
     "param_id INTEGER NOT NULL, trial_id INTEGER, param_name VARCHAR(512), param_value FLOAT, distribution_json TEXT, "
     "PRIMARY KEY (param_id), UNIQUE (trial_id, param_name), FOREIGN KEY(trial_id) REFERENCES trials (trial_id)"},
    {"trial_values",
     "trial_value_id INTEGER NOT NULL, trial_id INTEGER NOT NULL, objective INTEGER NOT NULL, value FLOAT, "
     "value_type VARCHAR(7) NOT NULL, PRIMARY KEY (trial_value_id), UNIQUE (trial_id, objective), "
     "FOREIGN KEY(trial_id) REFERENCES trials (trial_id)"},
    {"trial_intermediate_values",
     "trial_intermediate_value_id INTEGER NOT NULL, trial_id INTEGER NOT NULL, step INTEGER NOT NULL, intermediate_value FLOAT, "
     "intermediate_value_type VARCHAR(7) NOT NULL, PRIMARY KEY (trial_intermediate_value_id), UNIQUE (trial_id, step), "
     "FOREIGN KEY(trial_id) REFERENCES trials (trial_id)"},
    {"trial_heartbeats",
     "trial_heartbeat_id INTEGER NOT NULL, trial_id INTEGER NOT NULL, heartbeat DATETIME NOT NULL, "
     "PRIMARY KEY (trial_heartbeat_id), UNIQUE (trial_id), FOREIGN KEY(trial_id) REFERENCES trials (trial_id)"},
    {"alembic_version", "version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)"},
};

/// The first column, where it is text.
std::vector<std::string> texts_of(const std::vector<Row>& rows) {
    std::vector<std::string> out;
    for (const Row& row : rows)
        if (const auto* text = std::get_if<std::string>(row.data())) out.push_back(*text);
    return out;
}

/// Revisions are named after the version of Optuna that brought them: "v3.2.0.a".
bool is_newer(const std::string& revision) {
    const auto parts = [](const std::string& text) {
        std::array<int, 3> numbers{};
        const int read = std::sscanf(text.c_str(), "v%4d.%4d.%4d", &numbers[0], &numbers[1], &numbers[2]);
        return read == 3 ? numbers : std::array<int, 3>{};
    };
    return parts(revision) > parts(kSchemaRevision);
}

void add_indices_and_version(std::vector<std::string>& statements) {
    statements.emplace_back("CREATE UNIQUE INDEX ix_studies_study_name ON studies (study_name)");
    statements.emplace_back("CREATE INDEX ix_trials_study_id ON trials (study_id)");
    statements.push_back(fmt::format("INSERT INTO version_info VALUES (1, {}, 'millrace')", kSchemaVersion));
    statements.push_back(fmt::format("INSERT INTO alembic_version VALUES ('{}')", kSchemaRevision));
}

}  // namespace

std::vector<std::string> sqlite_schema() {
    std::vector<std::string> statements;
    for (const Table& table : kTables) statements.push_back(fmt::format("CREATE TABLE {} ({})", table.name, table.columns));
    add_indices_and_version(statements);
    return statements;
}

std::vector<std::string> postgres_schema() {
    std::vector<std::string> statements = {
        "CREATE TYPE studydirection AS ENUM ('NOT_SET', 'MINIMIZE', 'MAXIMIZE')",
        "CREATE TYPE trialstate AS ENUM ('RUNNING', 'COMPLETE', 'PRUNED', 'FAIL', 'WAITING')",
        "CREATE TYPE trialvaluetype AS ENUM ('FINITE', 'INF_POS', 'INF_NEG')",
        "CREATE TYPE trialintermediatevaluetype AS ENUM ('FINITE', 'INF_POS', 'INF_NEG', 'NAN')"};
    const std::pair<const char*, const char*> types[] = {
        {"direction VARCHAR(8)", "direction studydirection"},
        {"state VARCHAR(8)", "state trialstate"},
        {"intermediate_value_type VARCHAR(7)", "intermediate_value_type trialintermediatevaluetype"},
        {"value_type VARCHAR(7)", "value_type trialvaluetype"},
        {"FLOAT", "FLOAT(53)"},
        {"datetime_start DATETIME", "datetime_start TIMESTAMP"},
        {"datetime_complete DATETIME", "datetime_complete TIMESTAMP"},
        {"heartbeat DATETIME", "heartbeat TIMESTAMP"},
        {"_id INTEGER NOT NULL", "_id SERIAL NOT NULL"},  // the first one is the key
    };
    for (const Table& table : kTables) {
        std::string columns = table.columns;
        for (const auto& [theirs, ours] : types)
            if (const size_t at = columns.find(theirs); at != std::string::npos)
                columns.replace(at, std::string_view(theirs).size(), ours);
        statements.push_back(fmt::format("CREATE TABLE {} ({})", table.name, columns));
    }
    add_indices_and_version(statements);
    return statements;
}

Result<bool> is_new(Database& database, const std::string& tables) {
    MILLRACE_LET(rows, database.run(tables));
    const std::vector<std::string> names = texts_of(rows);
    if (names.empty()) return true;
    const auto has = [&](const char* name) { return std::find(names.begin(), names.end(), name) != names.end(); };
    if (!has("alembic_version") || !has("version_info") || !has("studies"))
        return Error{
            fmt::format("is a database of another program (it has a table '{}'); name a new file or one that holds studies",
                        names.front().substr(0, 64)),
            database.place()};
    MILLRACE_LET(versions, database.run("SELECT version_num FROM alembic_version"));
    const std::vector<std::string> revisions = texts_of(versions);
    if (revisions.size() == 1 && is_newer(revisions.front()))
        return Error{fmt::format("was written by a newer Optuna: revision '{}' of its schema, this millrace knows {}; take a "
                                 "newer millrace, or name a new file",
                                 revisions.front().substr(0, 64), kSchemaRevision),
                     database.place()};
    if (revisions.size() != 1 || revisions.front() != kSchemaRevision)
        return Error{fmt::format("has revision '{}' of Optuna's schema, {} is needed; `optuna storage upgrade` of Optuna 3.2 or "
                                 "later brings it there",
                                 revisions.empty() ? "none" : revisions.front().substr(0, 64), kSchemaRevision),
                     database.place()};
    for (const Table& table : kTables)
        if (!has(table.name))
            return Error{fmt::format("lacks the table '{}' of Optuna's schema {}", table.name, kSchemaRevision),
                         database.place()};
    return false;
}

base::Result<std::unique_ptr<Database>> open_database(const std::string& place) {
    if (place.starts_with("postgresql://") || place.starts_with("postgres://")) return open_postgres(place);
    if (place.find("://") != std::string::npos)
        return base::Error{"a study is kept at postgresql://HOST/DATABASE or in a SQLite file",
                           place.substr(0, place.find("://")) + "://"};
    return open_sqlite(place);
}

}  // namespace millrace::storage
