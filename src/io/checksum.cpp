#include "io/checksum.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace millrace::io {
namespace {

static_assert(std::endian::native == std::endian::little, "sums and files are little-endian");

constexpr std::uint64_t kOdd = 0xd6e8feb86659fd93u;

std::uint64_t mix(std::uint64_t lane, std::uint64_t word) { return std::rotl((lane ^ word) * kOdd, 29); }

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

void Checksum64::block(const std::byte* at) {
    std::array<std::uint64_t, 4> words;
    std::memcpy(words.data(), at, sizeof(words));
    for (std::size_t i = 0; i < 4; ++i) lanes_[i] = mix(lanes_[i], words[i]);
}

void Checksum64::update(std::span<const std::byte> bytes) {
    length_ += bytes.size();
    if (pending_size_ > 0) {
        const std::size_t take = std::min(bytes.size(), pending_.size() - pending_size_);
        std::copy_n(bytes.data(), take, pending_.data() + pending_size_);
        pending_size_ += take;
        bytes = bytes.subspan(take);
        if (pending_size_ < pending_.size()) return;
        block(pending_.data());
        pending_size_ = 0;
    }
    for (; bytes.size() >= pending_.size(); bytes = bytes.subspan(pending_.size())) block(bytes.data());
    std::copy(bytes.begin(), bytes.end(), pending_.begin());
    pending_size_ = bytes.size();
}

std::uint64_t Checksum64::value() const {
    std::uint64_t sum = length_ * kOdd;
    for (const std::uint64_t lane : lanes_) sum = mix(sum, lane);
    for (std::size_t i = 0; i < pending_size_; ++i) sum = mix(sum, static_cast<std::uint64_t>(pending_[i]) + 1);
    sum ^= sum >> 32;
    sum *= kOdd;
    return sum ^ (sum >> 29);
}

std::uint64_t checksum_of(std::span<const std::byte> bytes) {
    Checksum64 sum;
    sum.update(bytes);
    return sum.value();
}

std::uint32_t crc32c(std::string_view bytes) {
    std::uint32_t sum = ~0u;
    for (const char byte : bytes) sum = (sum >> 8) ^ kCrcTable[(sum ^ static_cast<unsigned char>(byte)) & 0xff];
    return ~sum;
}

}  // namespace millrace::io
