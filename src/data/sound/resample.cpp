#include "data/sound/resample.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>

#include "base/result.h"

namespace millrace::data {
namespace {

constexpr double kCrossings = 64;                          // of the sinc on either side
constexpr double kBeta = 8.6;                              // of the Kaiser window: 90 dB
constexpr double kCutoff = 0.477;                          // of the lower rate: the transition ends at its half
constexpr std::size_t kTableLimit = std::size_t{1} << 21;  // entries: 8 MiB
constexpr double kSteps = 4096;                            // per crossing where phases are interpolated: an error of -140 dB
constexpr std::size_t kLanes = 8;

/// The modified Bessel function I0.
double bessel(double x) {
    double sum = 1, term = 1;
    for (int k = 1; term > 1e-17 * sum; ++k) {
        term *= (x / (2 * k)) * (x / (2 * k));
        sum += term;
    }
    return sum;
}

/// The kernel at `time` input samples from its centre; `cutoff` in cycles per input sample, `reach` where the window ends.
double kernel(double time, double cutoff, double reach) {
    const double relative = time / reach;
    if (std::abs(relative) >= 1) return 0;
    const double angle = 2 * std::numbers::pi * cutoff * time;
    const double sinc = std::abs(angle) < 1e-9 ? 1 : std::sin(angle) / angle;
    static const double whole = bessel(kBeta);
    return 2 * cutoff * sinc * bessel(kBeta * std::sqrt(1 - relative * relative)) / whole;
}

}  // namespace

Resampler::Resampler(std::uint32_t from, std::uint32_t to) {
    MILLRACE_ASSERT(from > 0 && to > 0, "rates are positive");
    const std::uint32_t common = std::gcd(from, to);
    from_ = from / common;
    to_ = to / common;
    if (from_ == to_) return;
    const double lower = std::min(1.0, static_cast<double>(to) / from);  // the lower rate, in input samples
    const double half_width = kCrossings / lower / (2 * kCutoff);
    reach_ = static_cast<std::int64_t>(std::ceil(half_width)) + 1;
    reach_ = (reach_ + 3) / 4 * 4;  // whole lanes
    const std::size_t width = static_cast<std::size_t>(2 * reach_);
    const auto enough = static_cast<std::uint32_t>(std::ceil(kSteps * lower));
    phases_ = to_ * width <= kTableLimit ? static_cast<std::uint32_t>(to_) : std::min(static_cast<std::uint32_t>(to_), enough);
    table_.resize((phases_ + std::size_t{1}) * width);
    for (std::uint32_t phase = 0; phase <= phases_; ++phase) {
        float* row = table_.data() + phase * width;
        const double shift = static_cast<double>(phase) / phases_;
        double sum = 0;
        std::vector<double> exact(width);
        for (std::size_t i = 0; i < width; ++i)
            sum += exact[i] =
                kernel(static_cast<double>(i) - static_cast<double>(reach_ - 1) - shift, kCutoff * lower, half_width);
        for (std::size_t i = 0; i < width; ++i) row[i] = static_cast<float>(exact[i] / sum);  // a constant keeps its value
    }
}

std::uint64_t Resampler::length(std::uint64_t input) const { return (input * to_ + from_ - 1) / from_; }

std::uint64_t Resampler::needs(std::uint64_t output) const {
    return output == 0 ? 0 : (output - 1) * from_ / to_ + 1 + static_cast<std::uint64_t>(reach_);
}

double Resampler::apply(std::span<const float> input, std::int64_t centre, std::uint32_t phase) const {
    const auto width = 2 * reach_;
    const std::int64_t start = centre - (reach_ - 1), size = std::ssize(input);
    const float* row = table_.data() + static_cast<std::int64_t>(phase) * width;
    const std::int64_t begin = std::max<std::int64_t>(0, -start), end = std::min(width, size - start);
    std::array<float, kLanes> sums{};
    std::int64_t i = begin;
    for (; i + static_cast<std::int64_t>(kLanes) <= end; i += kLanes)
        for (std::size_t lane = 0; lane < kLanes; ++lane)
            sums[lane] += row[i + static_cast<std::int64_t>(lane)] * input[static_cast<std::size_t>(start + i) + lane];
    double sum = std::accumulate(sums.begin(), sums.end(), 0.0);
    for (; i < end; ++i) sum += static_cast<double>(row[i]) * static_cast<double>(input[static_cast<std::size_t>(start + i)]);
    return sum;
}

std::vector<float> Resampler::resample(std::span<const float> input, std::uint64_t most) const {
    const std::uint64_t count = std::min(most, length(input.size()));
    if (from_ == to_) return {input.begin(), input.begin() + static_cast<std::ptrdiff_t>(count)};
    std::vector<float> output(count);
    for (std::uint64_t n = 0; n < count; ++n) {
        const std::uint64_t position = n * from_;
        const auto centre = static_cast<std::int64_t>(position / to_);
        const std::uint64_t scaled = position % to_ * phases_;
        const auto phase = static_cast<std::uint32_t>(scaled / to_);
        const double between = static_cast<double>(scaled % to_) / static_cast<double>(to_);
        double value = apply(input, centre, phase);
        if (between > 0) value += between * (apply(input, centre, phase + 1) - value);
        output[n] = static_cast<float>(value);
    }
    return output;
}

std::shared_ptr<const Resampler> Resamplers::from(std::uint32_t rate) {
    {
        const std::lock_guard guard(lock_);
        if (const auto found = kept_.find(rate); found != kept_.end()) return found->second;
    }
    auto made = std::make_shared<const Resampler>(rate, to_);
    const std::lock_guard guard(lock_);
    if (kept_.size() < kKept) kept_.emplace(rate, made);
    return made;
}

}  // namespace millrace::data
