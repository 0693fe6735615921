#include "data/pictures/pictures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

namespace millrace::data {
namespace {

/// What the output pixels of one side are means of.
struct Taps {
    struct Range {
        std::size_t first = 0, count = 0;
    };
    std::vector<Range> ranges;   ///< by output
    std::vector<float> weights;  ///< of all ranges, one behind the other
};

/// Outputs [0, count) that show the stretch [begin, begin + length) of a side of `side` pixels: a triangle as wide as what one
/// output stands for.
Taps taps_of(std::uint32_t side, double begin, double length, std::uint32_t count) {
    const double step = length / count, reach = std::max(1.0, step);
    Taps taps;
    for (std::uint32_t i = 0; i < count; ++i) {
        const double centre = begin + (i + 0.5) * step;
        const auto first = static_cast<std::int64_t>(std::max(0.0, std::floor(centre - reach))),
                   end = static_cast<std::int64_t>(std::min<double>(side, std::ceil(centre + reach)));
        const std::size_t before = taps.weights.size();
        taps.ranges.push_back({static_cast<std::size_t>(first), static_cast<std::size_t>(end - first)});
        double sum = 0;
        for (std::int64_t at = first; at < end; ++at) {
            const double weight = std::max(0.0, 1 - std::abs(static_cast<double>(at) + 0.5 - centre) / reach);
            taps.weights.push_back(static_cast<float>(weight));
            sum += weight;
        }
        for (std::size_t at = before; at < taps.weights.size(); ++at) taps.weights[at] /= static_cast<float>(sum);
    }
    return taps;
}

constexpr std::size_t kRowsAtOnce = 4;

/// The three channels of a pixel, and one of the next: rows have one more value for it.
using Pixel = float __attribute__((vector_size(16)));

/// to[r][x] = sum over i of weight[x][i] rows[r][first[x] + i], a pixel of Value each, in the order of i.
template <class Value>
void shrink_rows(const std::array<std::vector<float>, kRowsAtOnce>& rows, const Taps& taps, std::size_t channels,
                 std::array<float*, kRowsAtOnce> to) {
    const float* weight = taps.weights.data();
    for (const Taps::Range& range : taps.ranges) {
        std::array<Value, kRowsAtOnce> sums{};
        std::size_t at = range.first * channels;
        for (std::size_t i = 0; i < range.count; ++i, at += channels, ++weight)
            for (std::size_t r = 0; r < kRowsAtOnce; ++r) {
                Value pixel;
                std::memcpy(&pixel, rows[r].data() + at, sizeof pixel);
                sums[r] += *weight * pixel;
            }
        for (std::size_t r = 0; r < kRowsAtOnce; ++r) {
            std::memcpy(to[r], &sums[r], sizeof(Value));
            to[r] += channels;
        }
    }
}

/// The nearest byte, halves up: what std::lround gives, in steps that a compiler makes vectors of.
void round_row(const float* __restrict sums, std::size_t count, std::uint8_t* __restrict to) {
    for (std::size_t i = 0; i < count; ++i) {
        const auto whole = static_cast<std::int32_t>(sums[i]);
        const std::int32_t nearest = whole + (sums[i] - static_cast<float>(whole) >= 0.5f ? 1 : 0);
        to[i] = static_cast<std::uint8_t>(std::min(nearest, 255));
    }
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
    const Taps columns = taps_of(picture.width, (picture.width - length_x) / 2, length_x, wide);
    const Taps rows = taps_of(picture.height, (picture.height - length_y) / 2, length_y, high);
    const std::size_t whole = picture.width * channels, width = wide * channels, stride = width + 1;
    std::array<std::vector<float>, kRowsAtOnce> across;
    across.fill(std::vector<float>(whole + 1));
    std::vector<float> narrow(picture.height * stride), sums(width);
    for (std::size_t y = 0; y < picture.height; y += kRowsAtOnce) {
        std::array<float*, kRowsAtOnce> to_row{};
        for (std::size_t r = 0; r < kRowsAtOnce; ++r) {
            const std::size_t row = std::min<std::size_t>(y + r, picture.height - 1);  // the last one several times
            std::copy_n(picture.pixels.data() + row * whole, whole, across[r].data());
            to_row[r] = narrow.data() + row * stride;
        }
        (channels == 3 ? shrink_rows<Pixel> : shrink_rows<float>)(across, columns, channels, to_row);
    }
    std::ranges::fill(to, std::uint8_t{0});
    const std::size_t left = (frame.width - wide) / 2, top = (frame.height - high) / 2;
    const float* weight = rows.weights.data();
    for (std::size_t y = 0; y < high; ++y) {
        std::ranges::fill(sums, 0.0f);
        for (std::size_t i = 0; i < rows.ranges[y].count; ++i) {
            const float* from = narrow.data() + (rows.ranges[y].first + i) * stride;
            const float share = *weight++;
            for (std::size_t at = 0; at < width; ++at) sums[at] += share * from[at];
        }
        round_row(sums.data(), width, to.data() + ((top + y) * frame.width + left) * channels);
    }
}

}  // namespace millrace::data
