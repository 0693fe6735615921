#pragma once
// A study's database on a PostgreSQL server, for workers on several machines.

#include "storage/database.h"

namespace millrace::storage {

/// Whether this build has libpq.
bool has_postgres();

/// Connects to postgresql://[user[:password]@]host[:port]/database and creates the tables of schema.h where there are none. What
/// the URL leaves out comes from libpq's environment (PGHOST, PGPASSWORD, ...) and ~/.pgpass; a password is never printed.
/// Refuses a database with tables of others. A connection that was lost is made again when the next transaction begins, which
/// waits up to a minute for the server; the transaction in which it was lost fails and has written nothing.
base::Result<std::unique_ptr<Database>> open_postgres(const std::string& url);

/// A database by the URL of a server (postgresql:// or postgres://) or by the name of a SQLite file.
base::Result<std::unique_ptr<Database>> open_database(const std::string& place);

}  // namespace millrace::storage
