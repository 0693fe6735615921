#include "probe/loaded_library.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include <cstddef>

#include "probe/log.h"

namespace millrace::probe {
namespace {

struct Search {
    const char* name;
    char found[4096];
};

int look_at(dl_phdr_info* info, std::size_t, void* data) {
    auto* search = static_cast<Search*>(data);
    const char* path = info->dlpi_name;
    const char* slash = path != nullptr ? ::strrchr(path, '/') : nullptr;
    const char* name = slash != nullptr ? slash + 1 : path;
    if (name == nullptr || ::strncmp(name, search->name, ::strlen(search->name)) != 0) return 0;
    const std::size_t length = ::strlen(path);
    if (length >= sizeof search->found) return 0;
    ::memcpy(search->found, path, length + 1);
    return 1;
}

}  // namespace

void* loaded_library(const char* name) {
    Search search;
    search.name = name;
    search.found[0] = 0;
    if (::dl_iterate_phdr(look_at, &search) == 0) return nullptr;
    log_line("found %s", search.found);
    return ::dlopen(search.found, RTLD_LAZY | RTLD_NOLOAD);
}

}  // namespace millrace::probe
