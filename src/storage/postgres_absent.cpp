// Databases on servers, of a build without libpq: none.
#include "storage/database.h"

namespace millrace::storage {

bool has_postgres() { return false; }

base::Result<std::unique_ptr<Database>> open_postgres(const std::string&) {
    return base::Error{"this millrace was built without libpq; install Debian's libpq-dev and build again", "PostgreSQL"};
}

}  // namespace millrace::storage
