#pragma once
// A study's database as one file. Not on network file systems: SQLite's locks do not hold there.

#include "storage/database.h"

namespace millrace::storage {

/// Whether this build has SQLite.
bool has_sqlite();

/// Opens the file or creates it with the tables of schema.h. Refuses, without changing it, a file that is no database, one of
/// another program and one with another version of the schema. Writes ahead (journal mode WAL); each commit is synced.
/// A connection belongs to the process that opened it: fork before, not after.
base::Result<std::unique_ptr<Database>> open_sqlite(const std::string& file);

}  // namespace millrace::storage
