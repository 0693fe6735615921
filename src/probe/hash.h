#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace millrace::probe {

inline std::uint64_t mix(std::uint64_t value) {
    value ^= value >> 32;
    value *= 0xd6e8feb86659fd93u;
    value ^= value >> 32;
    value *= 0xd6e8feb86659fd93u;
    return value ^ value >> 32;
}

inline std::uint64_t hash_more(std::uint64_t hash, std::uint64_t word) { return mix(hash + 0x9e3779b97f4a7c15u + word); }

/// A hash that tells texts and blocks of memory apart; not against those who choose them.
inline std::uint64_t hash_bytes(const void* bytes, std::size_t size, std::uint64_t hash = 0) {
    const auto* at = static_cast<const unsigned char*>(bytes);
    hash ^= size * 0x9e3779b97f4a7c15u;
    for (; size >= 8; size -= 8, at += 8) {
        std::uint64_t word;
        std::memcpy(&word, at, 8);
        hash = (hash ^ word) * 0xd6e8feb86659fd93u;
        hash ^= hash >> 29;
    }
    std::uint64_t rest = 0;
    if (size > 0) std::memcpy(&rest, at, size);
    return mix(hash ^ rest);
}

}  // namespace millrace::probe
