#include "record/elf_symbols.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <span>

namespace millrace::record {
namespace {

constexpr std::size_t kMostHeaders = 4096;
constexpr std::uint64_t kMostTable = std::uint64_t{32} << 20;
constexpr std::size_t kSymbolsAtOnce = 4096;  ///< symbols read at once

template <class T>
base::Result<std::vector<T>> read_table(const io::FileDescriptor& file, std::uint64_t offset, std::uint64_t count,
                                        const io::Path& path) {
    std::vector<T> table(count);
    MILLRACE_TRY(io::read_exactly(file, std::as_writable_bytes(std::span(table)), offset, path));
    return table;
}

/// Looks through one symbol table for what is still missing.
base::Status search(const io::FileDescriptor& file, const Elf64_Shdr& symbols, const Elf64_Shdr& strings,
                    const std::vector<std::string>& names, ElfSymbols& found, const io::Path& path) {
    if (symbols.sh_size > kMostTable || strings.sh_size > kMostTable) return base::ok();  // no interpreter has so many
    MILLRACE_LET(text, read_table<char>(file, strings.sh_offset, strings.sh_size, path));
    const std::uint64_t count = symbols.sh_size / sizeof(Elf64_Sym);
    for (std::uint64_t at = 0; at < count && found.values.size() < names.size(); at += kSymbolsAtOnce) {
        const std::uint64_t some = std::min<std::uint64_t>(kSymbolsAtOnce, count - at);
        MILLRACE_LET(piece, read_table<Elf64_Sym>(file, symbols.sh_offset + at * sizeof(Elf64_Sym), some, path));
        for (const Elf64_Sym& symbol : piece) {
            if (symbol.st_shndx == SHN_UNDEF || symbol.st_name >= text.size()) continue;
            const char* name = text.data() + symbol.st_name;
            const std::size_t size = ::strnlen(name, text.size() - symbol.st_name);
            const auto wanted = std::ranges::find(names, std::string_view(name, size));
            if (wanted != names.end()) found.values.try_emplace(*wanted, symbol.st_value);
        }
    }
    return base::ok();
}

}  // namespace

base::Result<ElfSymbols> find_elf_symbols(const io::Path& path, const std::vector<std::string>& names) {
    MILLRACE_LET(opened, io::open_regular(path));
    const io::FileDescriptor& file = opened.file;
    MILLRACE_LET(heads, read_table<Elf64_Ehdr>(file, 0, 1, path));
    const Elf64_Ehdr& head = heads.front();
    const bool is_elf = std::memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 && head.e_ident[EI_CLASS] == ELFCLASS64 &&
                        head.e_ident[EI_DATA] == ELFDATA2LSB;
    if (!is_elf || head.e_phentsize != sizeof(Elf64_Phdr) || head.e_shentsize != sizeof(Elf64_Shdr) ||
        head.e_phnum > kMostHeaders || head.e_shnum > kMostHeaders)
        return base::Error{"is no 64-bit ELF file with a section table", path.string()};
    ElfSymbols found;
    found.type = head.e_type;
    found.machine = head.e_machine;
    MILLRACE_LET(segments, read_table<Elf64_Phdr>(file, head.e_phoff, head.e_phnum, path));
    const auto load = std::ranges::find(segments, std::uint32_t{PT_LOAD}, &Elf64_Phdr::p_type);
    if (load != segments.end()) found.first_load = load->p_vaddr - load->p_offset;
    MILLRACE_LET(sections, read_table<Elf64_Shdr>(file, head.e_shoff, head.e_shnum, path));
    for (const std::uint32_t kind : {std::uint32_t{SHT_DYNSYM}, std::uint32_t{SHT_SYMTAB}})
        for (const Elf64_Shdr& section : sections) {
            if (section.sh_type != kind || section.sh_link >= sections.size()) continue;
            if (found.values.size() == names.size()) break;
            MILLRACE_TRY(search(file, section, sections[section.sh_link], names, found, path));
        }
    return found;
}

}  // namespace millrace::record
