#include <algorithm>

#include "data/sound/mel.h"
#include "models/leak_cnn/ops/mel.h"
#include "ops/host_kernels.h"

namespace millrace::ops {
namespace {

/// One row of the slots; T is what they are computed in, and stored in unless y is f16.
template <class T>
void bands_of_row(const Bound& b, int member, int row) {
    std::array<T, data::kMelBands> decibels;
    data::mel_bands_of<T, T>(std::span<const T, data::kShortWindow>(b[mel_bands::x].at<T>(member, 0, row), data::kShortWindow),
                             decibels);
    if (b[mel_bands::y].dtype == tensor::DType::f16)
        std::ranges::transform(decibels, b[mel_bands::y].at<std::uint16_t>(member, 0, row),
                               [](T value) { return tensor::to_f16(static_cast<float>(value)); });
    else
        std::ranges::copy(decibels, b[mel_bands::y].at<T>(member, 0, row));
}

}  // namespace

MILLRACE_HOST_ROWS(mel_bands, y, data::kShortWindow, bands_of_row);

}  // namespace millrace::ops
