#include "io/wav_header.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <string_view>

#include "io/sound_file.h"

namespace millrace::io {
namespace {

constexpr std::uint32_t kToTheEnd = 0xFFFFFFFF;
constexpr int kMostChunks = 4096;  // a file of empty chunks must not keep us

struct ChunkReader {
    const RegularFile& opened;
    const Path& place;
    bool big_endian = false;

    template <std::size_t N>
    Result<std::array<unsigned char, N>> bytes(std::uint64_t offset) const {
        std::array<unsigned char, N> read{};
        MILLRACE_TRY(read_exactly(opened.file, std::as_writable_bytes(std::span(read)), offset, place));
        return read;
    }
    [[nodiscard]] std::uint32_t number(const unsigned char* at, int size) const {
        std::uint32_t value = 0;
        for (int i = 0; i < size; ++i) value |= std::uint32_t{at[big_endian ? size - 1 - i : i]} << (8 * i);
        return value;
    }
};

bool says(const unsigned char* at, std::string_view word) { return std::memcmp(at, word.data(), word.size()) == 0; }

Status check_format(const ChunkReader& reader, std::uint64_t offset, std::uint32_t size) {
    if (size < 16)
        return Error{fmt::format("the fmt chunk has {} bytes; at least 16 would be right", size), reader.place.string()};
    MILLRACE_LET(fields, reader.bytes<16>(offset));
    const std::uint32_t channels = reader.number(&fields[2], 2), rate = reader.number(&fields[4], 4);
    if (channels == 0) return Error{"the header says 0 channels", reader.place.string()};
    if (rate < kLeastRate || rate > kMostRate)
        return Error{fmt::format("the header says {} Hz; {} to {} would be right", rate, kLeastRate, kMostRate),
                     reader.place.string()};
    return base::ok();
}

}  // namespace

Result<SoundKind> sound_kind(const RegularFile& opened, const Path& place) {
    if (opened.size == 0) return Error{"is empty: 0 bytes", place.string()};
    const ChunkReader reader{opened, place};
    if (opened.size >= 12) {
        MILLRACE_LET(head, reader.bytes<12>(0));
        if (says(head.data(), "fLaC")) return SoundKind::flac;
        if ((says(head.data(), "RIFF") || says(head.data(), "RIFX") || says(head.data(), "RF64")) && says(&head[8], "WAVE"))
            return SoundKind::wav;
    }
    return Error{"is neither WAV nor FLAC by its first bytes", place.string()};
}

Status check_wav(const RegularFile& opened, const Path& place) {
    ChunkReader reader{opened, place};
    MILLRACE_LET(head, reader.bytes<12>(0));
    if (says(head.data(), "RF64")) return base::ok();  // its lengths stand elsewhere; reading notices an early end
    reader.big_endian = says(head.data(), "RIFX");
    bool format = false;
    std::uint64_t at = 12;
    for (int chunk = 0; chunk < kMostChunks && at + 8 <= opened.size; ++chunk) {
        MILLRACE_LET(start, reader.bytes<8>(at));
        const std::uint32_t size = reader.number(&start[4], 4);
        const std::uint64_t inside = opened.size - at - 8;
        const bool data = says(start.data(), "data");
        if (says(start.data(), "fmt ") && size <= inside) {
            MILLRACE_TRY(check_format(reader, at + 8, size));
            format = true;
        }
        if (data && !format) return Error{"has no fmt chunk before its data", place.string()};
        if (data && size == kToTheEnd) return base::ok();
        if (size > inside && (data || !format))
            return Error{fmt::format("the header claims {} bytes of {}, but the file ends after {}: cut off, or not a WAV file",
                                     size, data ? "sound" : "a chunk", inside),
                         place.string()};
        if (data) return base::ok();
        at += 8 + std::uint64_t{size} + (size & 1);
    }
    return Error{"has no data chunk: cut off, or not a WAV file", place.string()};
}

}  // namespace millrace::io
