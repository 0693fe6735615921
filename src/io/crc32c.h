#pragma once
#include <cstdint>
#include <string_view>

namespace millrace::io {

/// CRC-32C (Castagnoli), as storage formats of others use it. Our own files are summed by Checksum64.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace millrace::io
