#include "probe/imports.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace millrace::probe {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kPlace = R_X86_64_GLOB_DAT, kCallPlace = R_X86_64_JUMP_SLOT;
#elif defined(__aarch64__)
constexpr std::uint32_t kPlace = R_AARCH64_GLOB_DAT, kCallPlace = R_AARCH64_JUMP_SLOT;
#else
constexpr std::uint32_t kPlace = ~0u, kCallPlace = ~0u;
#endif

struct Wish {
    ImportWatch& watch;
    const Import* imports;
    unsigned count, changed;
    unsigned long long loads;  ///< of libraries so far
};

/// Libraries that are being loaded while they are looked at fill their places later, so they are looked at again; not when
/// nothing has come and nothing was changed twice in a row.
constexpr unsigned kEnough = 2;

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
        if (part.p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const ElfW(Dyn)*>(library.base + part.p_vaddr);
        if (part.p_type == PT_GNU_RELRO) {
            library.locked_begin = library.base + part.p_vaddr;
            library.locked_end = library.locked_begin + part.p_memsz;
        }
    }
    if (dynamic == nullptr) return false;
    for (const ElfW(Dyn)* entry = dynamic; entry->d_tag != DT_NULL; ++entry) {
        switch (entry->d_tag) {
            case DT_STRTAB: library.strings = reinterpret_cast<const char*>(entry->d_un.d_ptr); break;
            case DT_SYMTAB: library.symbols = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr); break;
            case DT_JMPREL: library.relocations[0] = reinterpret_cast<const ElfW(Rela)*>(entry->d_un.d_ptr); break;
            case DT_PLTRELSZ: library.counts[0] = entry->d_un.d_val / sizeof(ElfW(Rela)); break;
            case DT_RELA: library.relocations[1] = reinterpret_cast<const ElfW(Rela)*>(entry->d_un.d_ptr); break;
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
/// tool's replacement is left alone.
bool is_as_loaded(const Library& library, std::uint64_t place, const Import& import) {
    if (import.original == nullptr) return true;
    void* const now = __atomic_load_n(reinterpret_cast<void**>(place), __ATOMIC_RELAXED);
    const auto address = reinterpret_cast<std::uint64_t>(now);
    return now == import.original || (address >= library.base && address < library.end);
}

bool fill(const Library& library, std::uint64_t place, void* value) {
    auto* slot = reinterpret_cast<void**>(place);
    if (__atomic_load_n(slot, __ATOMIC_RELAXED) == value) return false;
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const bool locked = place >= library.locked_begin && place < library.locked_end;
    auto* begin = reinterpret_cast<void*>(place / page * page);
    if (locked && ::mprotect(begin, page, PROT_READ | PROT_WRITE) != 0) return false;
    __atomic_store_n(slot, value, __ATOMIC_RELEASE);
    // The last page of the locked part may hold data that stays writable.
    if (locked && place / page * page + page <= library.locked_end) ::mprotect(begin, page, PROT_READ);
    return true;
}

int look_at(dl_phdr_info* info, std::size_t, void* data) {
    auto* wish = static_cast<Wish*>(data);
    wish->loads = info->dlpi_adds;
    const ImportWatch& watch = wish->watch;
    if (wish->loads == watch.loads_seen && watch.unchanged >= kEnough) return 1;
    Library library;
    if (!read_library(*info, watch.needed, library)) return 0;
    for (int table = 0; table < 2; ++table) {
        for (std::size_t i = table == 1 ? library.relative : 0;
             library.relocations[table] != nullptr && i < library.counts[table]; ++i) {
            const ElfW(Rela)& one = library.relocations[table][i];
            const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(one.r_info));
            if (type != kPlace && type != kCallPlace) continue;
            const ElfW(Sym)& symbol = library.symbols[ELF64_R_SYM(one.r_info)];
            const char* name = library.strings + symbol.st_name;
            if (::strncmp(name, watch.prefix, ::strlen(watch.prefix)) != 0) continue;
            const std::uint64_t place = library.base + one.r_offset;
            for (unsigned wanted = 0; wanted < wish->count; ++wanted) {
                const Import& import = wish->imports[wanted];
                if (::strcmp(name, import.name) == 0 && is_as_loaded(library, place, import) &&
                    fill(library, place, import.replacement))
                    ++wish->changed;
            }
        }
    }
    return 0;
}

}  // namespace

unsigned replace_imports(ImportWatch& watch, const Import* imports, unsigned count) {
    Wish wish{watch, imports, count, 0, 0};
    ::dl_iterate_phdr(look_at, &wish);
    watch.unchanged = wish.loads == watch.loads_seen && wish.changed == 0 ? watch.unchanged + 1 : 0;
    watch.loads_seen = wish.loads;
    return wish.changed;
}

}  // namespace millrace::probe
