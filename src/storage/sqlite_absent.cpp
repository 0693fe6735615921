// Databases of a build without SQLite: none.
#include "storage/database.h"

namespace millrace::storage {

bool has_sqlite() { return false; }

base::Result<std::unique_ptr<Database>> open_sqlite(const std::string& file) {
    return base::Error{
        "cannot be opened: this millrace was built without SQLite; install Debian's libsqlite3-dev and build again", file};
}

}  // namespace millrace::storage
