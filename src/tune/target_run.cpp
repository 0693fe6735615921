#include "tune/target_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

namespace millrace::tune {
namespace {

constexpr double kStudent = 2.365;  ///< 97.5 % of Student's distribution, of kTargetSeeds - 1 degrees of freedom
/// Samples up to this ratio apart are taken together: their losses differ by 3 %, less than they scatter (4 to 7 %,
/// docs/performance/tune.md).
constexpr double kNear = 7.0 / 6;
/// The best rate may lie between those tried: half of the best costs that much (same place).
constexpr double kBetweenRates = 1.1;
constexpr std::size_t kTargetPoints = 64, kParts = 3;
constexpr std::size_t kLeastSteps = 2 * kTargetPoints;  ///< of the recipe's batch
constexpr const char* kTooSlow = "the trainings of all batches take too long; more --seconds would be needed";
constexpr double kNever = std::numeric_limits<double>::infinity();

/// Of one rate around a point, over all seeds but `without`. Losses scatter more from one evaluation to the next than from seed
/// to seed, so those near it count as well; the last points have none beyond them.
double mean_loss(const LossCurves& curves, std::size_t point, std::size_t rate, std::size_t without) {
    const double samples = curves.samples[point];
    double sum = samples * kNear > curves.samples.back() ? kNever : 0, count = 0;
    for (std::size_t i = 0; i < curves.samples.size() && curves.samples[i] <= samples * kNear; ++i) {
        if (curves.samples[i] * kNear < samples) continue;
        for (std::size_t seed = 0; seed < kTargetSeeds; ++seed)
            if (seed != without) {
                sum += curves.losses[i][rate * kTargetSeeds + seed];
                count += 1;
            }
    }
    return std::isfinite(sum) ? sum / count : kNever;
}

struct Reached {
    double samples = kNever;
    std::size_t rate = 0;
};
/// Where the first rate is at the target; between two points losses follow a power of the samples.
Reached reach(const LossCurves& curves, double target, std::size_t without) {
    Reached best;
    for (std::size_t rate = 0; rate < std::size(kTargetRates); ++rate) {
        double before = kNever, samples = kNever;
        for (std::size_t i = 0; i < curves.samples.size() && samples == kNever; ++i) {
            const double loss = mean_loss(curves, i, rate, without);
            if (loss <= target) {
                const double share = before < kNever && loss > 0 ? std::log(before / target) / std::log(before / loss) : 1;
                samples = std::pow(curves.samples[i], share) * (i == 0 ? 1 : std::pow(curves.samples[i - 1], 1 - share));
            }
            before = loss;
        }
        if (samples < best.samples) best = {samples, rate};
    }
    return best;
}

}  // namespace

void compare_curves(const LossCurves& own, const LossCurves& other, TargetBatch& batch) {
    using Logs = std::array<double, kTargetSeeds + 1>;  // of the ratio, without each seed and with all
    std::vector<Logs> targets;
    double least = kNever;
    for (std::size_t i = 0; i < own.samples.size(); ++i) {
        const double target = mean_loss(own, i, 0, kTargetSeeds);
        if (!(target < least)) continue;
        least = target;
        Logs logs;
        for (std::size_t without = 0; without < logs.size(); ++without)
            logs[without] = std::log(reach(other, target, without).samples / reach(own, target, without).samples);
        if (own.samples[i] < own.samples.back() / 6 || !std::ranges::all_of(logs, [](double x) { return std::isfinite(x); }))
            continue;
        targets.push_back(logs);
        batch.rate = kTargetRates[reach(other, target, kTargetSeeds).rate];
    }
    if (targets.size() < 2 * kParts) return;
    Span log{0, kNever, -kNever};
    for (std::size_t part = 0; part < kParts; ++part) {
        const std::size_t begin = part * targets.size() / kParts, end = (part + 1) * targets.size() / kParts;
        Logs mean{};
        for (std::size_t target = begin; target < end; ++target)
            for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += targets[target][i] / static_cast<double>(end - begin);
        double sum = 0, squares = 0;
        for (std::size_t seed = 0; seed < kTargetSeeds; ++seed) {
            sum += mean[seed];
            squares += mean[seed] * mean[seed];
        }
        constexpr double n = kTargetSeeds;
        const double error = kStudent * std::sqrt(std::max(0.0, squares - sum * sum / n) * (n - 1) / n);
        log = {log.value + mean.back() / kParts, std::min(log.low, mean.back() - error), std::max(log.high, mean.back() + error)};
    }
    batch.samples = Span{std::exp(log.value), std::exp(log.low) / kBetweenRates, std::exp(log.high) * kBetweenRates};
}

namespace {

class TargetTraining {
public:
    TargetTraining(const TrainingRequest& request, const std::vector<BatchCandidate>& batches, const base::Clock& clock)
        : request_(request), batches_(batches), clock_(clock) {}

    base::Status run(TargetRun& result) {
        if (request_.recipe.integer("members") != 1)
            return base::Error{fmt::format("it needs members = 1, not {}", request_.recipe.integer("members"))};
        const std::int64_t own = batches_.front().rows;
        std::int64_t first = 0;
        for (const BatchCandidate& each : batches_) first = std::max(first, 2 * each.rows);
        // At most: members take as long as one after the other, as on a CPU.
        const double least = request_.step_seconds * static_cast<double>(kLeastSteps * batches_.size() * kTargetMembers);
        if (least > seconds_left()) return base::Error{kTooSlow};
        open(result);
        if (!steppers_.front()) return base::Error{result.batches.front().failure};
        double took = 0;
        for (const std::int64_t piece : {1, 2}) {  // in the first, kernels load
            took = seconds_left();
            evaluating_ = 0;
            MILLRACE_TRY(train_to(piece * first, result));
            took -= seconds_left();
        }
        const train::RunSettings& settings = steppers_.front()->setup().settings;
        double steps = settings.epochs * static_cast<double>(steppers_.front()->engine().epoch().count());
        if (settings.step_limit > 0) steps = std::min(steps, static_cast<double>(settings.step_limit));
        const double affordable =
            static_cast<double>(first) * (seconds_left() - kTargetPoints * evaluating_) / (took - evaluating_);
        if (affordable < kLeastSteps * static_cast<double>(own)) return base::Error{kTooSlow};
        const auto samples = static_cast<std::int64_t>(std::min(steps * static_cast<double>(own), affordable));
        for (std::size_t point = 1; point <= kTargetPoints && clock_.now() < request_.deadline; ++point) {
            result.samples = static_cast<std::int64_t>(point) * samples / static_cast<std::int64_t>(kTargetPoints);
            if (result.samples > 2 * first) MILLRACE_TRY(train_to(result.samples, result));
        }
        for (std::size_t i = 0; i < steppers_.size(); ++i) {
            TargetBatch& batch = result.batches[i];
            if (!steppers_[i]) continue;
            compare_curves(result.curves.front(), result.curves[i], batch);
            if (i == 0 && batch.samples) batch.samples = Span{1, 1, 1};
            batch.rate *= rate_factor(batch.rows);
            if (!batch.samples) batch.failure = "it did not reach enough of the losses that the recipe's batch came to";
        }
        return base::ok();
    }

private:
    [[nodiscard]] double seconds_left() const { return std::chrono::duration<double>(request_.deadline - clock_.now()).count(); }

    [[nodiscard]] double rate_factor(std::int64_t rows) const {
        const double ratio = static_cast<double>(rows) / static_cast<double>(batches_.front().rows);
        return request_.recipe.text("optim.name") == "sgd" ? ratio : std::sqrt(ratio);
    }

    void open(TargetRun& result) {
        for (const BatchCandidate& batch : batches_) {
            std::vector<double> rates;
            std::vector<std::int64_t> seeds;
            for (std::size_t k = 0; k < kTargetMembers; ++k) {
                rates.push_back(request_.recipe.real("optim.lr") * kTargetRates[k / kTargetSeeds] * rate_factor(batch.rows));
                seeds.push_back(request_.recipe.integer("seed") + static_cast<std::int64_t>(k % kTargetSeeds));
            }
            auto stepper = Stepper::open(request_.recipe, joined(joined(request_.settings, batch.settings),
                                                                 {{"members", fmt::format("{}", kTargetMembers)},
                                                                  {"seed", fmt::format("{}", fmt::join(seeds, ","))},
                                                                  {"optim.lr", fmt::format("{}", fmt::join(rates, ","))},
                                                                  {"optim.schedule", "constant"},
                                                                  {"optim.warmup_steps", "0"},
                                                                  {"optim.warmup_epochs", "0"}}));
            result.batches.push_back({batch.rows, stepper.ok() ? "" : stepper.error().text(), {}});
            steppers_.push_back(stepper.ok() ? std::move(stepper).value() : nullptr);
        }
        result.curves.resize(steppers_.size());
    }

    /// All batches in turns, so that each has come as far when the time is over.
    base::Status train_to(std::int64_t samples, TargetRun& result) {
        for (std::size_t i = 0; i < steppers_.size(); ++i) {
            if (!steppers_[i]) continue;
            const std::uint64_t steps = static_cast<std::uint64_t>(samples / batches_[i].rows) - steppers_[i]->done();
            if (steps == 0) continue;
            MILLRACE_LET(rows, steppers_[i]->steps(steps));
            const double before = seconds_left();
            MILLRACE_LET(scores,
                         steppers_[i]->engine().evaluate(data::Part::validation, nullptr, std::vector<bool>(kTargetMembers)));
            evaluating_ += before - seconds_left();
            result.validation = !scores.empty();
            LossCurves& curves = result.curves[i];
            double trained = curves.samples.empty() ? 0 : curves.samples.back();
            auto& losses = curves.losses.emplace_back();
            for (std::size_t k = 0; k < rows.size(); ++k) {
                trained += rows[k].rows / static_cast<double>(kTargetMembers);
                losses[k % kTargetMembers] += rows[k].loss / std::max<double>(1, rows[k].rows) / static_cast<double>(steps);
            }
            for (std::size_t k = 0; k < scores.size(); ++k) losses[k] = scores[k].loss;
            curves.samples.push_back(trained);
            request_.progress();
        }
        return base::ok();
    }

    const TrainingRequest& request_;
    const std::vector<BatchCandidate>& batches_;
    const base::Clock& clock_;
    std::vector<std::unique_ptr<Stepper>> steppers_;  ///< null: it could not be opened
    double evaluating_ = 0;                           ///< seconds
};

}  // namespace

TargetRun measure_targets(const TrainingRequest& request, const std::vector<BatchCandidate>& batches, const base::Clock& clock) {
    TargetRun result;
    if (const base::Status ran = TargetTraining(request, batches, clock).run(result); !ran.ok())
        result.reason = ran.error().text();
    return result;
}

}  // namespace millrace::tune
