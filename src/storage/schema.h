#pragma once
// The tables of a study in the schema of Optuna 3.2 and later (revision v3.2.0.a, version 12), so that Optuna and its dashboard
// open the database. Enumerations are stored by name.

#include <string>
#include <vector>

#include "base/result.h"
#include "storage/database.h"

namespace millrace::storage {

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
