#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "io/sound_file.h"

namespace millrace::io {
namespace {

constexpr std::size_t kSamplesPerWrite = 4096;  // samples between two writes
constexpr std::uint16_t kPcm = 1, kFloat = 3;

/// Little-endian, on any machine.
void put(std::string& bytes, std::uint32_t value, int size) {
    for (int i = 0; i < size; ++i) bytes.push_back(static_cast<char>(value >> (8 * i) & 0xFF));
}

std::string wav_header(std::uint32_t frames, std::uint32_t rate, WavFormat format) {
    const std::uint32_t width = format == WavFormat::pcm16 ? 2 : 4;
    std::string bytes = "RIFF";
    put(bytes, 36 + frames * width, 4);
    bytes += "WAVEfmt ";
    put(bytes, 16, 4);
    put(bytes, format == WavFormat::pcm16 ? kPcm : kFloat, 2);
    put(bytes, 1, 2);  // channels
    put(bytes, rate, 4);
    put(bytes, rate * width, 4);
    put(bytes, width, 2);
    put(bytes, 8 * width, 2);
    bytes += "data";
    put(bytes, frames * width, 4);
    return bytes;
}

std::uint32_t encoded(float sample, WavFormat format) {
    if (format == WavFormat::pcm16)
        return static_cast<std::uint32_t>(std::lround(std::clamp(static_cast<double>(sample) * 32768.0, -32768.0, 32767.0)));
    std::uint32_t bits = 0;
    std::memcpy(&bits, &sample, sizeof bits);
    return bits;
}

}  // namespace

Status write_wav(const Path& path, std::span<const float> samples, std::uint32_t rate, WavFormat format) {
    const std::size_t width = format == WavFormat::pcm16 ? 2 : 4;
    if (samples.size() > (std::numeric_limits<std::uint32_t>::max() - 36) / width)
        return Error{fmt::format("{} samples do not fit into a WAV file of 4 GiB", samples.size()), path.string()};
    if (rate < kLeastRate || rate > kMostRate)
        return Error{fmt::format("cannot be written with {} Hz; {} to {} would be right", rate, kLeastRate, kMostRate),
                     path.string()};
    if (!std::ranges::all_of(samples, [](float sample) { return std::isfinite(sample); }))
        return Error{"a sample to write is NaN or infinite", path.string()};
    const auto fill = [&](FileWriter& writer) -> Status {
        MILLRACE_TRY(writer.write(bytes_of(wav_header(static_cast<std::uint32_t>(samples.size()), rate, format))));
        std::string bytes;
        for (std::size_t i = 0; i < samples.size(); ++i) {
            put(bytes, encoded(samples[i], format), static_cast<int>(width));
            if (bytes.size() < kSamplesPerWrite * width && i + 1 < samples.size()) continue;
            MILLRACE_TRY(writer.write(bytes_of(bytes)));
            bytes.clear();
        }
        return base::ok();
    };
    MILLRACE_TRY(write_atomically(path, fill));
    return base::ok();
}

}  // namespace millrace::io
