#include "storage/database.h"

namespace millrace::storage {

base::Result<std::unique_ptr<Database>> open_database(const std::string& place) {
    if (place.starts_with("postgresql://") || place.starts_with("postgres://")) return open_postgres(place);
    if (place.find("://") != std::string::npos)
        return base::Error{"a study is kept at postgresql://HOST/DATABASE or in a SQLite file",
                           place.substr(0, place.find("://")) + "://"};
    return open_sqlite(place);
}

}  // namespace millrace::storage
