#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace millrace::io {

/// A 64-bit sum against accidents (torn, swapped or flipped bytes), not against forgery. Independent of how the bytes are cut
/// into updates, equal on every little-endian machine. Four lanes of 8 bytes, so that a checkpoint is summed at memory speed.
class Checksum64 {
public:
    void update(std::span<const std::byte> bytes);
    [[nodiscard]] std::uint64_t value() const;

private:
    void block(const std::byte* at);

    std::array<std::uint64_t, 4> lanes_{0x9e3779b97f4a7c15u, 0xc2b2ae3d27d4eb4fu, 0x165667b19e3779f9u, 0x27d4eb2f165667c5u};
    std::array<std::byte, 32> pending_{};
    std::size_t pending_size_ = 0;
    std::uint64_t length_ = 0;
};

std::uint64_t checksum_of(std::span<const std::byte> bytes);

/// CRC-32C (Castagnoli), as storage formats of others use it. Our own files are summed by Checksum64.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace millrace::io
