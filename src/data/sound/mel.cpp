#include "data/sound/mel.h"

#include <algorithm>
#include <array>

#include "base/half.h"

namespace millrace::data {

void mels_of_recording(std::span<const float, kSoundSamples> samples, std::span<std::uint16_t, kRecordingMels> decibels) {
    std::array<double, kMelBands> bands;
    for (std::uint32_t window = 0; window < kLongs * kShorts; ++window) {
        ops::mel_bands_of<double, float>(samples.subspan(std::size_t{window} * kShortWindow).first<kShortWindow>(), bands);
        std::ranges::transform(bands, decibels.begin() + std::ptrdiff_t{window} * kMelBands,
                               [](double value) { return base::to_half(static_cast<float>(value)); });
    }
}

}  // namespace millrace::data
