#include "io/sound_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sndfile.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <memory>
#include <mutex>

#include "io/wav_header.h"

namespace millrace::io {
namespace {

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
