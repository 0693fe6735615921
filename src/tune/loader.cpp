#include "tune/loader.h"

#include <algorithm>
#include <cmath>

namespace millrace::tune {
namespace {

constexpr std::chrono::seconds kReading{1};
constexpr std::uint64_t kStepsBetweenLooks = 64;

}  // namespace

base::Result<double> reader_seconds(const base::Recipe& recipe, const Settings& settings, std::chrono::nanoseconds longest,
                                    const base::Clock& clock) {
    MILLRACE_LET(stepper, Stepper::open(recipe, joined(settings, {{"data.threads", "1"}})));
    const auto begin = clock.now(), end = begin + std::min<std::chrono::nanoseconds>(kReading, longest);
    double samples = 0;
    do {
        for (std::uint64_t i = 0; i < kStepsBetweenLooks; ++i) {
            MILLRACE_TRY(stepper->skip_rows());
            samples += static_cast<double>(stepper->step_samples() / stepper->engine().members());
        }
    } while (clock.now() < end);
    return std::chrono::duration<double>(clock.now() - begin).count() / samples;
}

std::vector<std::int64_t> reader_threads(double samples_per_second, double reader_seconds, int cores) {
    const double needed = std::ceil(samples_per_second * reader_seconds);
    const auto threads = static_cast<std::int64_t>(std::clamp(needed, 1.0, static_cast<double>(std::max(1, cores))));
    std::vector<std::int64_t> all{threads};
    if (threads < cores) all.push_back(threads + 1);
    return all;
}

}  // namespace millrace::tune
