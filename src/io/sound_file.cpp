#include "io/sound_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sndfile.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>

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

enum class SoundKind : std::uint8_t { wav, flac };

/// By the first bytes; anything else is an error.
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

/// Walks the chunks of a WAV file: what libsndfile passes over in silence. An error when the fmt or data chunk is missing,
/// reaches beyond the end of the file, or says no channels, no bits or an absurd rate. A length of 0xFFFFFFFF, which programs
/// write into a pipe, means "to the end".
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

constexpr sf_count_t kSamplesPerRead = 1 << 16;  // samples per call

struct Close {
    void operator()(SNDFILE* file) const { sf_close(file); }
};

/// Adds the mean of the channels of `frames` interleaved frames to `sound`.
Status append_mean(Sound& sound, const float* block, sf_count_t frames, const Path& place) {
    const auto channels = static_cast<sf_count_t>(sound.channels);
    for (sf_count_t i = 0; i < frames; ++i) {
        double sum = 0;
        for (sf_count_t c = 0; c < channels; ++c) sum += static_cast<double>(block[i * channels + c]);
        if (!std::isfinite(sum))
            return Error{fmt::format("sample {} is {}; finite samples would be right", sound.samples.size(),
                                     std::isnan(sum) ? "NaN" : "infinite"),
                         place.string()};
        sound.samples.push_back(static_cast<float>(sum / static_cast<double>(channels)));
    }
    return base::ok();
}

struct Opened {
    std::unique_ptr<SNDFILE, Close> file;
    SF_INFO info{};
};

/// One thread at a time: why a file could not be opened stands in a variable that all threads share. The library gets a
/// descriptor of its own, because it closes the one it is given when it fails, whatever it was told.
Result<Opened> open_sound(const RegularFile& opened, const Path& place) {
    static std::mutex one;
    const std::lock_guard lock(one);
    const int descriptor = ::fcntl(opened.file.get(), F_DUPFD_CLOEXEC, 0);
    if (descriptor < 0) return system_error("cannot be opened twice", place, errno);
    Opened sound;
    sound.file.reset(sf_open_fd(descriptor, SFM_READ, &sound.info, SF_TRUE));
    if (!sound.file) return Error{fmt::format("cannot be read: {}", sf_strerror(nullptr)), place.string()};
    return sound;
}

Status check_info(const SF_INFO& info, std::uint64_t wanted, const Path& place) {
    if (info.channels < 1) return Error{fmt::format("the header says {} channels", info.channels), place.string()};
    if (info.samplerate < static_cast<int>(kLeastRate) || info.samplerate > static_cast<int>(kMostRate))
        return Error{fmt::format("the header says {} Hz; {} to {} would be right", info.samplerate, kLeastRate, kMostRate),
                     place.string()};
    if (info.frames == 0) return Error{"holds no sound: 0 frames", place.string()};
    if (wanted > kMostSoundFrames)
        return Error{fmt::format("is {} frames long; at most {} (1 GiB of samples) are read", wanted, kMostSoundFrames),
                     place.string()};
    return base::ok();
}

}  // namespace

bool can_read_sound() { return true; }

Result<Sound> read_sound(const Path& path, double seconds) {
    MILLRACE_LET(opened, open_regular(path));
    MILLRACE_LET(kind, sound_kind(opened, path));
    if (kind == SoundKind::wav) MILLRACE_TRY(check_wav(opened, path));
    MILLRACE_LET(reader, open_sound(opened, path));
    const auto& [file, info] = reader;

    const bool known = info.frames >= 0 && info.frames < SF_COUNT_MAX;  // FLAC may leave the length open
    const std::uint64_t length = known ? static_cast<std::uint64_t>(info.frames) : kMostSoundFrames + 1;
    const double asked = std::ceil(seconds * info.samplerate);
    const std::uint64_t wanted = asked < static_cast<double>(length) ? static_cast<std::uint64_t>(asked) : length;
    MILLRACE_TRY(check_info(info, known ? wanted : 0, path));
    Sound sound{static_cast<std::uint32_t>(info.samplerate), static_cast<std::uint32_t>(info.channels), known ? length : 0, {}};
    const sf_count_t frames = std::max<sf_count_t>(1, kSamplesPerRead / info.channels);
    std::vector<float> block(static_cast<std::size_t>(frames * info.channels));
    std::string failed;  // why a call gave less than was asked for; the next call forgets it
    while (sound.samples.size() < wanted) {
        const auto left = static_cast<sf_count_t>(wanted - sound.samples.size());
        const sf_count_t got = sf_readf_float(file.get(), block.data(), std::min(frames, left));
        if (got <= 0) break;
        if (sf_error(file.get()) != SF_ERR_NO_ERROR) failed = sf_strerror(file.get());
        MILLRACE_TRY(append_mean(sound, block.data(), got, path));
    }
    if (sf_error(file.get()) != SF_ERR_NO_ERROR)
        return Error{fmt::format("cannot be read behind frame {}: {}", sound.samples.size(), sf_strerror(file.get())),
                     path.string()};
    if (known && sound.samples.size() < wanted)
        return Error{
            fmt::format("the header claims {} frames, but the file ends after {}: cut off", length, sound.samples.size()),
            path.string()};
    if (!failed.empty() && sound.samples.size() < wanted)
        return Error{fmt::format("cannot be read behind frame {}: {}", sound.samples.size(), failed), path.string()};
    if (sound.samples.size() > kMostSoundFrames)
        return Error{fmt::format("is more than {} frames (1 GiB of samples) long", kMostSoundFrames), path.string()};
    if (sound.samples.empty()) return Error{"holds no sound: 0 frames", path.string()};
    return sound;
}

}  // namespace millrace::io
