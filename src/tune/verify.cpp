#include "tune/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

namespace millrace::tune {
namespace {

constexpr std::int64_t kTimes[] = {1, 2, 4, 8};
constexpr std::int64_t kWindowSteps = 32;  ///< of the recipe's rows, over which losses are averaged
/// Steps of the recipe's size that all lanes together may take for one of the first lane: those with large steps save few of them
/// at worst, and each is two trainings.
constexpr double kCost = 2 * (1 + 2 + 4 + 8);
constexpr std::uint64_t kLeastSteps = 4 * kWindowSteps;

}  // namespace

std::optional<double> samples_to_target(const std::vector<double>& losses, std::int64_t rows, std::int64_t window,
                                        double target) {
    const auto steps = static_cast<std::size_t>(std::max<std::int64_t>(1, window / rows));
    double sum = 0;
    for (std::size_t i = 0; i < losses.size(); ++i) {
        sum += losses[i];
        if (i + 1 < steps) continue;
        if (sum / static_cast<double>(steps) <= target)
            return (static_cast<double>(i + 1) - static_cast<double>(steps) / 2) * static_cast<double>(rows);
        sum -= losses[i + 1 - steps];
    }
    return std::nullopt;
}

namespace {

class Verifying {
public:
    Verifying(const VerifyRequest& request, const base::Clock& clock) : request_(request), clock_(clock) {}

    base::Status run(VerifyResult& result) {
        if (request_.recipe.integer("members") != 1)
            return base::Error{fmt::format("--verify needs members = 1, not {}", request_.recipe.integer("members"))};
        const double left = std::chrono::duration<double>(request_.deadline - clock_.now()).count();
        const double affordable = left / (request_.step_seconds * (kCost + 1));
        if (!(affordable >= kLeastSteps))
            return base::Error{fmt::format("there is time for {:.0f} steps, not {}; more --seconds would be needed",
                                           std::max(0.0, affordable), kLeastSteps)};
        const auto steps = static_cast<std::uint64_t>(std::min(affordable, 20000.0));
        MILLRACE_LET(start, Lane::open(request_.recipe, joined(request_.settings, still_rate())));
        MILLRACE_TRY(start->steps(steps / 2));
        result.before = steps / 2;
        start_ = std::move(start);
        for (const std::int64_t times : kTimes) {
            MILLRACE_LET(lane, measure(times, steps / 2, result.target));
            result.lanes.push_back(lane);
            if (request_.progress)
                request_.progress(static_cast<double>(result.lanes.size()) / static_cast<double>(std::size(kTimes)));
        }
        return base::ok();
    }

private:
    static Settings still_rate() {
        return {{"optim.schedule", "constant"}, {"optim.warmup_steps", "0"}, {"optim.warmup_epochs", "0"}};
    }

    /// The first lane sets the target: what it has after `steps` steps.
    base::Result<VerifyLane> measure(std::int64_t times, std::uint64_t steps, double& target) {
        VerifyLane result;
        result.times = times;
        const double factor =
            request_.recipe.text("optim.name") == "sgd" ? static_cast<double>(times) : std::sqrt(static_cast<double>(times));
        const double rate = request_.recipe.real("optim.lr");
        MILLRACE_LET(
            lane, Lane::open(request_.recipe, joined(joined(request_.settings, still_rate()),
                                                     {{"train.accumulate", fmt::format("{}", request_.facts.accumulate * times)},
                                                      {"members", "2"},
                                                      {"optim.lr", fmt::format("{},{}", rate, rate * factor)}})));
        copy_weights(start_->engine(), lane->engine(), true);
        lane->change_order(true);
        const std::int64_t rows = request_.facts.step_rows() * times, window = request_.facts.step_rows() * kWindowSteps;
        std::vector<double> losses[2];
        std::optional<double> found[2];
        // In pieces: a lane that has reached the target stops soon.
        while (lane->done() < steps && clock_.now() < request_.deadline) {
            MILLRACE_LET(piece, lane->steps(std::max<std::uint64_t>(1, steps / 16)));
            for (std::size_t i = 0; i < piece.size(); ++i)
                losses[i % 2].push_back(piece[i].rows > 0 ? piece[i].loss / piece[i].rows : piece[i].loss);
            for (std::size_t member = 0; times > 1 && member < 2; ++member)
                found[member] = samples_to_target(losses[member], rows, window, target);
            if (found[0] && found[1]) break;
        }
        if (times == 1) {
            const auto last = static_cast<std::size_t>(std::min<std::int64_t>(kWindowSteps, std::ssize(losses[0])));
            target = 0;
            for (std::size_t i = losses[0].size() - last; i < losses[0].size(); ++i)
                target += losses[0][i] / static_cast<double>(last);
            for (std::size_t member = 0; member < 2; ++member)
                found[member] = samples_to_target(losses[member], rows, window, target);
        }
        for (std::size_t member = 0; member < 2; ++member) {
            if (!found[member]) continue;
            const double taken = *found[member] / static_cast<double>(rows);
            if (result.steps && *result.steps <= taken) continue;
            result.steps = taken;
            result.rate = member == 0 ? 1 : factor;
        }
        return result;
    }

    const VerifyRequest& request_;
    const base::Clock& clock_;
    std::unique_ptr<Lane> start_;
};

}  // namespace

VerifyResult verify(const VerifyRequest& request, const base::Clock& clock) {
    VerifyResult result;
    if (const base::Status ran = Verifying(request, clock).run(result); !ran.ok()) result.failure = ran.error().text();
    return result;
}

}  // namespace millrace::tune
