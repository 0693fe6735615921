#include "tune/noise_scale.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace millrace::tune {
namespace {

constexpr std::size_t kSegments = 4;
constexpr int kDraws = 2000;
constexpr double kWidest = 2;
constexpr double kRelation = 3, kRest = 1.1;  ///< factors that the time to target allows for

double scale_of(double small_norm, double big_norm, double small, double big) {
    const double signal = (big * big_norm - small * small_norm) / (big - small);
    const double noise = (small_norm - big_norm) / (1 / small - 1 / big);
    return signal > 0 ? std::max(0.0, noise / signal) : std::numeric_limits<double>::infinity();
}

}  // namespace

NoiseScale noise_scale(std::span<const NormPair> points, double small, double big, std::uint64_t seed) {
    MILLRACE_ASSERT(small > 0 && big > small);
    NoiseScale scale;
    if (points.size() < kLeastPoints) return scale;
    const auto mean_scale = [&](auto pick, std::vector<double>* segments) {
        double sum = 0;
        for (std::size_t s = 0; s < kSegments; ++s) {
            const std::size_t begin = s * points.size() / kSegments, end = (s + 1) * points.size() / kSegments;
            double small_norm = 0, big_norm = 0;
            for (std::size_t i = begin; i < end; ++i) {
                const NormPair& point = points[pick(i, begin, end)];
                small_norm += point.small;
                big_norm += point.big;
            }
            const double part = scale_of(small_norm, big_norm, small, big);
            if (segments != nullptr) segments->push_back(part);
            sum += part / kSegments;
        }
        return sum;
    };
    scale.samples.value = mean_scale([](std::size_t i, std::size_t, std::size_t) { return i; }, &scale.segments);
    std::mt19937_64 random(seed);
    std::vector<double> draws;
    draws.reserve(kDraws);
    for (int draw = 0; draw < kDraws; ++draw)
        draws.push_back(mean_scale(
            [&](std::size_t, std::size_t begin, std::size_t end) { return begin + random() % (end - begin); }, nullptr));
    std::ranges::sort(draws);
    // A part of n points resampled spreads less than its mean by sqrt((n - 1) / n).
    const double each = static_cast<double>(points.size()) / kSegments, widen = std::sqrt(each / (each - 1));
    const double value = scale.samples.value;
    scale.samples.low = std::max(0.0, value - widen * (value - draws[kDraws / 40]));
    scale.samples.high = value + widen * (draws[kDraws - 1 - kDraws / 40] - value);
    scale.known = std::isfinite(scale.samples.high) && scale.samples.low > 0 && scale.samples.high <= kWidest * scale.samples.low;
    return scale;
}

Span time_to_target(const NoiseScale& noise, double batch, double own_batch, const Span& sample_time) {
    // Samples to the target are proportional to B (1 + B_noise / B).
    const auto samples = [&](double scale) { return (batch + scale) / (own_batch + scale); };
    if (batch == own_batch) return sample_time;
    double least = std::min(noise.samples.low, noise.samples.value / kRelation);
    double most = std::max(noise.samples.high, noise.samples.value * kRelation);
    for (const double part : noise.segments) {
        least = std::min(least, part);
        most = std::max(most, part);
    }
    const double a = samples(least), b = samples(most);
    return {samples(noise.samples.value) * sample_time.value, std::min(a, b) * sample_time.low / kRest,
            std::max(a, b) * sample_time.high * kRest};
}

}  // namespace millrace::tune
