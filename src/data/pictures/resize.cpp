#include "data/pictures/resize.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace millrace::data {
namespace {

/// What one output pixel is a mean of, along one side.
struct Tap {
    std::size_t first = 0;
    std::vector<float> weights;
};

/// Outputs [0, count) that show the stretch [begin, begin + length) of a side of `side` pixels: a triangle as wide as what one
/// output stands for.
std::vector<Tap> taps_of(std::uint32_t side, double begin, double length, std::uint32_t count) {
    const double step = length / count, reach = std::max(1.0, step);
    std::vector<Tap> taps(count);
    for (std::uint32_t i = 0; i < count; ++i) {
        const double centre = begin + (i + 0.5) * step;
        const auto first = static_cast<std::int64_t>(std::max(0.0, std::floor(centre - reach))),
                   end = static_cast<std::int64_t>(std::min<double>(side, std::ceil(centre + reach)));
        Tap& tap = taps[i];
        tap.first = static_cast<std::size_t>(first);
        double sum = 0;
        for (std::int64_t at = first; at < end; ++at) {
            const double weight = std::max(0.0, 1 - std::abs(static_cast<double>(at) + 0.5 - centre) / reach);
            tap.weights.push_back(static_cast<float>(weight));
            sum += weight;
        }
        for (float& weight : tap.weights) weight /= static_cast<float>(sum);
    }
    return taps;
}

}  // namespace

PictureSide scaled_size(std::uint32_t width, std::uint32_t height, const PictureSide& frame, Resize how) {
    const double x = static_cast<double>(frame.width) / width, y = static_cast<double>(frame.height) / height;
    const double scale = how == Resize::fit ? std::min(x, y) : std::max(x, y);
    const auto side = [&](std::uint32_t whole) { return static_cast<std::uint32_t>(std::max(1L, std::lround(whole * scale))); };
    return {side(width), side(height)};
}

void place_picture(const io::Picture& picture, const PictureSide& frame, Resize how, std::span<std::uint8_t> to) {
    const std::size_t channels = picture.channels;
    if (picture.width == frame.width && picture.height == frame.height) {
        std::ranges::copy(picture.pixels, to.begin());
        return;
    }
    const PictureSide scaled = scaled_size(picture.width, picture.height, frame, how);
    const std::uint32_t wide = std::min(scaled.width, frame.width), high = std::min(scaled.height, frame.height);
    // Of the picture: what of it is shown.
    const double length_x = static_cast<double>(picture.width) * wide / scaled.width,
                 length_y = static_cast<double>(picture.height) * high / scaled.height;
    const auto columns = taps_of(picture.width, (picture.width - length_x) / 2, length_x, wide);
    const auto rows = taps_of(picture.height, (picture.height - length_y) / 2, length_y, high);
    std::vector<float> narrow(std::size_t{picture.height} * wide * channels);
    for (std::size_t y = 0; y < picture.height; ++y)
        for (std::size_t x = 0; x < wide; ++x)
            for (std::size_t c = 0; c < channels; ++c) {
                const Tap& tap = columns[x];
                float sum = 0;
                for (std::size_t i = 0; i < tap.weights.size(); ++i)
                    sum += tap.weights[i] * picture.pixels[(y * picture.width + tap.first + i) * channels + c];
                narrow[(y * wide + x) * channels + c] = sum;
            }
    std::ranges::fill(to, std::uint8_t{0});
    const std::size_t left = (frame.width - wide) / 2, top = (frame.height - high) / 2, stride = wide * channels;
    for (std::size_t y = 0; y < high; ++y)
        for (std::size_t at = 0; at < stride; ++at) {
            const Tap& tap = rows[y];
            float sum = 0;
            for (std::size_t i = 0; i < tap.weights.size(); ++i) sum += tap.weights[i] * narrow[(tap.first + i) * stride + at];
            to[((top + y) * frame.width + left) * channels + at] =
                static_cast<std::uint8_t>(std::clamp(std::lround(sum), 0L, 255L));
        }
}

}  // namespace millrace::data
