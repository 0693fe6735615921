#pragma once
// How large a launched kernel is, in one word: what Record::bytes holds of kernels. 0: not known.

#include <cstdint>

namespace millrace::record {

struct LaunchSize {
    std::uint64_t blocks = 0;        ///< of the grid
    std::uint32_t threads = 0;       ///< of a block
    std::uint32_t registers = 0;     ///< of a thread
    std::uint32_t shared_bytes = 0;  ///< of a block, static and dynamic; kept in steps of 128, as the device gives it
};

/// What does not fit is the largest number that does.
constexpr std::uint64_t packed(const LaunchSize& size) {
    const auto kept = [](std::uint64_t value, int bits, int at) {
        const std::uint64_t most = (std::uint64_t{1} << bits) - 1;
        return (value < most ? value : most) << at;
    };
    const std::uint64_t shared = (std::uint64_t{size.shared_bytes} + 127) / 128;
    return kept(size.blocks, 32, 0) | kept(size.threads, 12, 32) | kept(size.registers, 8, 44) | kept(shared, 12, 52);
}

constexpr LaunchSize unpacked(std::uint64_t word) {
    return {word & 0xffffffff, static_cast<std::uint32_t>(word >> 32 & 0xfff), static_cast<std::uint32_t>(word >> 44 & 0xff),
            static_cast<std::uint32_t>(word >> 52) * 128};
}

}  // namespace millrace::record
