#include "tune/noise_scale.h"

#include <fmt/format.h>

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

constexpr std::size_t kPoints = 24;
constexpr std::int64_t kMostBig = 32, kLeastBig = 4;  ///< small batches of a big one
constexpr double kTrainingShare = 0.4, kBigShare = 0.7;

/// Mean of the squared norms that steps of `batch` rows left, of those that are finite; an epoch's last step may be shorter.
double mean_square(const std::vector<ops::MetricsRow>& rows, std::int64_t batch) {
    double sum = 0, count = 0;
    for (const ops::MetricsRow& row : rows) {
        const double norm = row.grad_norm;
        if (row.rows != batch || row.nonfinite != 0 || !std::isfinite(norm)) continue;
        sum += norm * norm;
        count += 1;
    }
    return count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN();
}

/// Of the time: one big batch at each of the fewest points that do, and two for the beginning.
constexpr double big_share() { return kBigShare * (1 - kTrainingShare) / static_cast<double>(kLeastPoints + 2); }

std::int64_t small_batch(const Facts& facts) { return facts.may_split() && facts.batch % 4 == 0 ? facts.batch / 4 : facts.batch; }

class Measuring {
public:
    Measuring(const TrainingRequest& request, const base::Clock& clock) : request_(request), clock_(clock) {}

    base::Status run(NoiseRun& result) {
        MILLRACE_TRY(choose_sizes(result));
        MILLRACE_TRY(open(result));
        MILLRACE_TRY(plan());
        std::vector<NormPair> points;
        const double planned = seconds_left() / static_cast<double>(points_);
        for (std::size_t i = 0; i < points_ && clock_.now() < request_.deadline; ++i) {
            if (i > 0) slow_down(planned, points_ - i);
            const auto begin = clock_.now();
            MILLRACE_TRY(trained_->steps(steps_));
            MILLRACE_LET(pair, norms(result));
            if (std::isfinite(pair.small + pair.big)) points.push_back(pair);
            took_ = std::chrono::duration<double>(clock_.now() - begin).count();
            request_.progress();
        }
        result.steps = trained_->done();
        result.points = points.size();
        result.scale = noise_scale(points, static_cast<double>(result.small), static_cast<double>(result.big));
        if (points.size() < kLeastPoints)
            return base::Error{fmt::format("there was time for {} points, not {}", points.size(), kLeastPoints)};
        if (!result.scale.known)
            return base::Error{
                fmt::format("its interval is wider than a factor of 2: {}",
                            std::isfinite(result.scale.samples.high)
                                ? fmt::format("{:.0f} to {:.0f}", result.scale.samples.low, result.scale.samples.high)
                                : "no gradient stands out of the noise")};
        return base::ok();
    }

private:
    [[nodiscard]] double seconds_left() const { return std::chrono::duration<double>(request_.deadline - clock_.now()).count(); }

    base::Status choose_sizes(NoiseRun& result) {
        const Facts& facts = request_.facts;
        result.small = small_batch(facts);
        // A big batch takes a large part of the epoch at most: sampling without repetition would take noise away.
        const double row_seconds = request_.step_seconds / static_cast<double>(facts.step_rows());
        for (times_ = kMostBig; times_ >= kLeastBig; times_ /= 2) {
            result.big = result.small * times_;
            if (result.big * 8 <= facts.samples && row_seconds * static_cast<double>(result.big) < big_share() * seconds_left())
                return base::ok();
        }
        if (result.small * kLeastBig * 8 > facts.samples)
            return base::Error{
                fmt::format("{} samples to train on are too few for batches of {}", facts.samples, result.small * kLeastBig)};
        return base::Error{"the steps are too slow for the time that was left; more --seconds would be needed"};
    }

    base::Status open(const NoiseRun& result) {
        const auto rows = fmt::format("{}", result.small);
        const Settings still{{"optim.lr", "0"},
                             {"optim.weight_decay", "0"},
                             {"train.batch", rows},
                             {"train.accumulate", "1"},
                             {"train.micro_batch", rows}};
        MILLRACE_SET(trained_, Stepper::open(request_.recipe, request_.settings));
        MILLRACE_SET(small_, Stepper::open(request_.recipe, joined(request_.settings, still)));
        MILLRACE_SET(big_, Stepper::open(request_.recipe, joined(joined(request_.settings, still),
                                                                 {{"train.accumulate", fmt::format("{}", times_)}})));
        for (Stepper* stepper : {small_.get(), big_.get()}) stepper->change_order();
        return base::ok();
    }

    base::Result<double> seconds_of(Stepper& stepper, std::uint64_t count) {
        MILLRACE_TRY(stepper.steps(1));
        const auto begin = clock_.now();
        MILLRACE_TRY(stepper.steps(count));
        return std::chrono::duration<double>(clock_.now() - begin).count() / static_cast<double>(count);
    }

    base::Status plan() {
        MILLRACE_LET(small, seconds_of(*small_, 4));
        MILLRACE_LET(big, seconds_of(*big_, 1));
        const double left = seconds_left();
        points_ = kPoints;
        while (points_ > kLeastPoints && left * (1 - kTrainingShare) / static_cast<double>(points_) * kBigShare < big)
            points_ -= 4;
        const double point = std::max(0.0, left * (1 - kTrainingShare) / static_cast<double>(points_));
        const auto count = [](double value, double least, double most) {
            return static_cast<std::uint64_t>(std::clamp(value, least, most));
        };
        big_count_ = count(kBigShare * point / big, 1, 64);
        small_count_ = count((1 - kBigShare) * point / small, 4, 256);
        const train::RunSettings& settings = trained_->setup().settings;
        const auto epoch = static_cast<std::uint64_t>(trained_->engine().epoch().count());
        std::uint64_t total = settings.epochs * epoch;
        if (settings.step_limit > 0) total = std::min(total, settings.step_limit);
        const double affordable = std::max(0.0, kTrainingShare * left / request_.step_seconds);
        steps_ = count(std::min(affordable, static_cast<double>(total)) / static_cast<double>(points_), 1, 1e9);
        return base::ok();
    }

    /// Where points take longer than planned, the next ones get less work, so that the last ones are reached.
    void slow_down(double planned, std::size_t left) {
        const double share = seconds_left() / (static_cast<double>(left) * took_);
        if (took_ <= planned || share >= 1) return;
        const auto less = [share](std::uint64_t count, std::uint64_t least) {
            return std::max(least, static_cast<std::uint64_t>(std::max(0.0, share) * static_cast<double>(count)));
        };
        steps_ = less(steps_, 1);
        small_count_ = less(small_count_, 4);
        big_count_ = less(big_count_, 1);
    }

    base::Result<NormPair> norms(const NoiseRun& sizes) {
        copy_weights(trained_->engine(), small_->engine());
        copy_weights(trained_->engine(), big_->engine());
        MILLRACE_LET(small, small_->steps(small_count_));
        MILLRACE_LET(big, big_->steps(big_count_));
        return NormPair{mean_square(small, sizes.small), mean_square(big, sizes.big)};
    }

    const TrainingRequest& request_;
    const base::Clock& clock_;
    std::unique_ptr<Stepper> trained_, small_, big_;
    std::int64_t times_ = 0;
    std::size_t points_ = 0;
    double took_ = 0;  ///< seconds of the newest point
    std::uint64_t steps_ = 0, small_count_ = 0, big_count_ = 0;
};

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

double least_noise_seconds(const Facts& facts, double step_seconds) {
    const auto rows = static_cast<double>(small_batch(facts) * kLeastBig);
    return rows * step_seconds / static_cast<double>(facts.step_rows()) / big_share();
}

NoiseRun measure_noise(const TrainingRequest& request, const base::Clock& clock) {
    NoiseRun result;
    const base::Status ran = Measuring(request, clock).run(result);
    if (!ran.ok()) {
        result.reason = ran.error().text();
        result.scale.known = false;
    }
    return result;
}

}  // namespace millrace::tune
