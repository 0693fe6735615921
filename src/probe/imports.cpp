#include "probe/imports.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "probe/log.h"
#include "probe/memory.h"

namespace millrace::probe {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kPlace = R_X86_64_GLOB_DAT, kCallPlace = R_X86_64_JUMP_SLOT;
#elif defined(__aarch64__)
constexpr std::uint32_t kPlace = R_AARCH64_GLOB_DAT, kCallPlace = R_AARCH64_JUMP_SLOT;
#else
constexpr std::uint32_t kPlace = ~0u, kCallPlace = ~0u;
#endif

/// Libraries that are being loaded while they are looked at fill their places later, so they are looked at again; not when
/// nothing has come and nothing was changed twice in a row.
constexpr unsigned kEnough = 2;

/// A library that needs the wanted one, as it was when the list was read. It may be gone by now.
struct Candidate {
    char path[1024];
    dl_phdr_info info;
};
constexpr unsigned kMostCandidates = 48;

/// What one look at the list of libraries gives. The loader's lock is held meanwhile, which a forked child would never get back:
/// so nothing is done there that takes time.
struct Look {
    const ImportWatch& watch;
    Candidate* candidates;
    unsigned count;
    unsigned long long loads;  ///< of libraries so far
};
Candidate candidates[kMostCandidates];
std::atomic<bool> looks{false};

struct Library {
    std::uint64_t base = 0;
    const char* strings = nullptr;
    const ElfW(Sym) * symbols = nullptr;
    const ElfW(Rela) * relocations[2] = {};
    std::size_t counts[2] = {};
    std::size_t relative = 0;                        ///< entries at the beginning of the second table that name no symbol
    std::uint64_t locked_begin = 0, locked_end = 0;  ///< made read-only once its places were filled
    std::uint64_t end = 0;                           ///< of what is loaded of it
};

/// The loader has made addresses of what a library's table says; where it has not (the kernel's own), the library is passed over.
bool read_library(const dl_phdr_info& info, const char* needed, Library& library) {
    const ElfW(Dyn)* dynamic = nullptr;
    library.base = info.dlpi_addr;
    for (int i = 0; i < info.dlpi_phnum; ++i) {
        const ElfW(Phdr)& part = info.dlpi_phdr[i];
        if (part.p_type == PT_LOAD && library.base + part.p_vaddr + part.p_memsz > library.end)
            library.end = library.base + part.p_vaddr + part.p_memsz;
        if (part.p_type == PT_DYNAMIC) dynamic = pointer_to<const ElfW(Dyn)>(library.base + part.p_vaddr);
        if (part.p_type == PT_GNU_RELRO) {
            library.locked_begin = library.base + part.p_vaddr;
            library.locked_end = library.locked_begin + part.p_memsz;
        }
    }
    if (dynamic == nullptr) return false;
    for (const ElfW(Dyn)* entry = dynamic; entry->d_tag != DT_NULL; ++entry) {
        switch (entry->d_tag) {
            case DT_STRTAB: library.strings = pointer_to<const char>(entry->d_un.d_ptr); break;
            case DT_SYMTAB: library.symbols = pointer_to<const ElfW(Sym)>(entry->d_un.d_ptr); break;
            case DT_JMPREL: library.relocations[0] = pointer_to<const ElfW(Rela)>(entry->d_un.d_ptr); break;
            case DT_PLTRELSZ: library.counts[0] = entry->d_un.d_val / sizeof(ElfW(Rela)); break;
            case DT_RELA: library.relocations[1] = pointer_to<const ElfW(Rela)>(entry->d_un.d_ptr); break;
            case DT_RELACOUNT: library.relative = entry->d_un.d_val; break;
            case DT_RELASZ: library.counts[1] = entry->d_un.d_val / sizeof(ElfW(Rela)); break;
            default: break;
        }
    }
    if (library.symbols == nullptr || reinterpret_cast<std::uint64_t>(library.strings) <= library.base) return false;
    for (const ElfW(Dyn)* entry = dynamic; entry->d_tag != DT_NULL; ++entry)
        if (entry->d_tag == DT_NEEDED && ::strstr(library.strings + entry->d_un.d_val, needed) != nullptr) return true;
    return false;
}

/// Whether a place holds what the loader puts there: the function, or, before its first call, code of the library itself. Another
/// tool's replacement is left alone, and so is a function that the library has itself.
bool is_as_loaded(const Library& library, std::uint64_t place, bool is_call, const ElfW(Sym) & symbol, const Import& import) {
    if (import.original == nullptr) return true;
    void* const now = __atomic_load_n(pointer_to<void*>(place), __ATOMIC_RELAXED);
    if (now == import.original) return true;
    const auto address = reinterpret_cast<std::uint64_t>(now);
    return is_call && import.also_unbound && symbol.st_shndx == SHN_UNDEF && address >= library.base && address < library.end;
}

bool fill(const Library& library, std::uint64_t place, void* value) {
    auto* slot = pointer_to<void*>(place);
    if (__atomic_load_n(slot, __ATOMIC_RELAXED) == value) return false;
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const bool locked = place >= library.locked_begin && place < library.locked_end;
    auto* begin = pointer_to<void>(place / page * page);
    if (locked && ::mprotect(begin, page, PROT_READ | PROT_WRITE) != 0) return false;
    __atomic_store_n(slot, value, __ATOMIC_RELEASE);
    // The last page of the locked part may hold data that stays writable.
    if (locked && place / page * page + page <= library.locked_end) ::mprotect(begin, page, PROT_READ);
    return true;
}

bool has_prefix(const ImportWatch& watch, const char* name) {
    return ::strncmp(name, watch.prefix, ::strlen(watch.prefix)) == 0 ||
           (watch.other_prefix != nullptr && ::strncmp(name, watch.other_prefix, ::strlen(watch.other_prefix)) == 0);
}

unsigned replace_in(const Library& library, const ImportWatch& watch, const Import* imports, unsigned count) {
    unsigned changed = 0;
    for (int table = 0; table < 2; ++table) {
        for (std::size_t i = table == 1 ? library.relative : 0;
             library.relocations[table] != nullptr && i < library.counts[table]; ++i) {
            const ElfW(Rela)& one = library.relocations[table][i];
            const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(one.r_info));
            if (type != kPlace && type != kCallPlace) continue;
            const ElfW(Sym)& symbol = library.symbols[ELF64_R_SYM(one.r_info)];
            const char* name = library.strings + symbol.st_name;
            if (!has_prefix(watch, name)) continue;
            const std::uint64_t place = library.base + one.r_offset;
            for (unsigned wanted = 0; wanted < count; ++wanted) {
                const Import& import = imports[wanted];
                if (::strcmp(name, import.name) == 0 && is_as_loaded(library, place, type == kCallPlace, symbol, import) &&
                    fill(library, place, import.replacement))
                    ++changed;
            }
        }
    }
    return changed;
}

int look_at(dl_phdr_info* info, std::size_t, void* data) {
    auto* look = static_cast<Look*>(data);
    look->loads = info->dlpi_adds;
    if (look->loads == look->watch.loads_seen && look->watch.unchanged >= kEnough) return 1;
    Library library;
    if (look->count == kMostCandidates || !read_library(*info, look->watch.needed, library)) return 0;
    const char* path = info->dlpi_name != nullptr ? info->dlpi_name : "";
    if (look->watch.only != nullptr && ::strcmp(path, look->watch.only) != 0) return 0;
    const std::size_t length = ::strlen(path);
    if (length >= sizeof look->candidates[0].path) return 0;
    Candidate& candidate = look->candidates[look->count++];
    ::memcpy(candidate.path, path, length + 1);
    candidate.info = *info;
    return 0;
}

/// Its places are changed while it is held: loaded to the end, as the thread that loads it has a lock that this waits for, and
/// not unloaded.
unsigned replace_in(const Candidate& candidate, const ImportWatch& watch, const Import* imports, unsigned count) {
    void* const held = ::dlopen(candidate.path[0] != 0 ? candidate.path : nullptr, RTLD_LAZY | RTLD_NOLOAD);
    if (held == nullptr) return 0;
    const link_map* map = nullptr;
    Library library;
    unsigned changed = 0;
    if (::dlinfo(held, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr && map->l_addr == candidate.info.dlpi_addr &&
        read_library(candidate.info, watch.needed, library))
        changed = replace_in(library, watch, imports, count);
    ::dlclose(held);
    return changed;
}

struct Search {
    const char* name;
    char found[4096];
};

int match_name(dl_phdr_info* info, std::size_t, void* data) {
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

unsigned replace_imports(ImportWatch& watch, const Import* imports, unsigned count) {
    Look look{watch, candidates, 0, 0};
    looks.store(true);
    ::dl_iterate_phdr(look_at, &look);
    looks.store(false);
    unsigned changed = 0;
    for (unsigned at = 0; at < look.count; ++at) changed += replace_in(candidates[at], watch, imports, count);
    watch.unchanged = look.loads == watch.loads_seen && changed == 0 ? watch.unchanged + 1 : 0;
    watch.loads_seen = look.loads;
    return changed;
}

void let_fork() {
    const timespec moment{0, 100'000};
    for (int tries = 0; tries < 1'000 && looks.load(); ++tries) ::nanosleep(&moment, nullptr);
}

void* loaded_library(const char* name) {
    Search search;
    search.name = name;
    search.found[0] = 0;
    if (::dl_iterate_phdr(match_name, &search) == 0) return nullptr;
    log_line("found %s", search.found);
    return ::dlopen(search.found, RTLD_LAZY | RTLD_NOLOAD);
}

}  // namespace millrace::probe
