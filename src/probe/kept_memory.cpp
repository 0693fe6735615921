#include "probe/kept_memory.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>

#include <atomic>
#include <cstdint>

#include "probe/imports.h"
#include "probe/log.h"

namespace millrace::probe {
namespace {

std::atomic<bool> keeping{false};
std::atomic<std::uint32_t> kept{0};

void free_or_keep(void* memory) {
    if (memory == nullptr || !keeping.load(std::memory_order_acquire)) return ::free(memory);
    kept.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

bool can_keep_memory(void* library) {
    static bool leads = false;
    if (leads) return true;
    const link_map* map = nullptr;
    if (library == nullptr || ::dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return false;
    static ImportWatch watch{"libc.so", "free"};
    watch.only = map->l_name;
    const Import imports[] = {{"free", reinterpret_cast<void*>(free_or_keep)}};
    leads = replace_imports(watch, imports, 1) > 0;
    return leads;
}

void keep_memory() { keeping.store(true, std::memory_order_release); }

void stop_keeping() {
    if (keeping.exchange(false)) log_line("kept %u pieces of CUPTI's memory", kept.load());
}

}  // namespace millrace::probe
