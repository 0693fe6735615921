#include "io/crc32c.h"

#include <array>

namespace millrace::io {
namespace {

constexpr auto kCrcTable = [] {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t rest = byte;
        for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? 0x82f63b78u : 0u);
        table[byte] = rest;
    }
    return table;
}();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
    std::uint32_t sum = ~0u;
    for (const char byte : bytes) sum = (sum >> 8) ^ kCrcTable[(sum ^ static_cast<unsigned char>(byte)) & 0xff];
    return ~sum;
}

}  // namespace millrace::io
