#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "io/file.h"

namespace millrace::record {

struct ElfSymbols {
    std::map<std::string, std::uint64_t> values;  ///< as the file has them
    std::uint16_t type = 0;                       ///< ET_DYN: a shared library, or a program that can lie anywhere
    std::uint16_t machine = 0;                    ///< EM_X86_64, EM_AARCH64 and so on
    std::uint64_t first_load = 0;  ///< where the file's first byte would lie; addresses move by a multiple of pages
};

/// Finds `names` among the symbols of a 64-bit little-endian ELF file. Names that it does not have are left out; a file that is
/// no such ELF or makes no sense is an error. Reads headers and symbol tables alone, and no table above 32 MiB.
base::Result<ElfSymbols> find_elf_symbols(const io::Path& path, const std::vector<std::string>& names);

}  // namespace millrace::record
